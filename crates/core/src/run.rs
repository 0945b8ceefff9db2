//! Consecutive tokens or slots of one node.

use std::ops::Deref;
use std::sync::Arc;

/// As many values need no buffer: a state, a short window, the pages of a short turn.
const INLINE_MAX: usize = 7;

/// Values that never change: a few of its own, or a part of a shared buffer.
///
/// Readers keep a run alive by cloning it, which copies no buffer. A run uses at least half of its buffer:
/// where it would become shorter it moves to one of its own, so memory stays within twice of what is held,
/// and cutting a run in two copies only the smaller part.
#[derive(Clone, Debug)]
pub struct Run<T>(Values<T>);

#[derive(Clone, Debug)]
enum Values<T> {
    Inline { count: u8, values: [T; INLINE_MAX] },
    Shared { buffer: Arc<[T]>, first: u32, count: u32 },
}

impl<T: Copy + Default> Run<T> {
    /// A run of nothing.
    #[must_use]
    pub fn empty() -> Self {
        Self::inline(&[])
    }

    fn inline(few: &[T]) -> Self {
        let mut values = [T::default(); INLINE_MAX];
        values[..few.len()].copy_from_slice(few);
        Self(Values::Inline { count: few.len() as u8, values })
    }

    /// A run of its own with the values of `parts`, one after the other.
    pub(crate) fn joined(parts: [&[T]; 2]) -> Self {
        match parts {
            [only, []] | [[], only] => Self::from(only),
            _ => Self::from(parts.concat().as_slice()),
        }
    }

    /// Cuts the values from `at` on off, and returns them.
    pub(crate) fn split_off(&mut self, at: usize) -> Self {
        let mut tail = self.clone();
        tail.keep(at, self.len());
        self.keep(0, at);
        tail
    }

    /// Keeps the values in `[begin, end)`. Cost: O(1), or a copy of what is kept when that is little.
    pub(crate) fn keep(&mut self, begin: usize, end: usize) {
        assert!(begin <= end && end <= self.len(), "what is kept is there");
        let kept = end - begin;
        match &mut self.0 {
            Values::Shared { buffer, first, count } if kept > INLINE_MAX && kept * 2 >= buffer.len() => {
                *first += begin as u32;
                *count = kept as u32;
            }
            _ => *self = Self::from(&self[begin..end]),
        }
    }

    /// The values in `[begin, end)`, for a reader: copies no buffer, but keeps all of it alive.
    pub(crate) fn view(&self, begin: usize, end: usize) -> Self {
        assert!(begin <= end && end <= self.len(), "what is looked at is there");
        match &self.0 {
            Values::Shared { buffer, first, .. } => Self(Values::Shared {
                buffer: Arc::clone(buffer),
                first: first + begin as u32,
                count: (end - begin) as u32,
            }),
            Values::Inline { .. } => Self::inline(&self[begin..end]),
        }
    }
}

impl<T: Copy + Default> Default for Run<T> {
    fn default() -> Self {
        Self::empty()
    }
}

impl<T: Copy + Default> From<Vec<T>> for Run<T> {
    fn from(values: Vec<T>) -> Self {
        Self::from(values.as_slice())
    }
}

impl<T: Copy + Default> FromIterator<T> for Run<T> {
    fn from_iter<I: IntoIterator<Item = T>>(values: I) -> Self {
        Self::from(values.into_iter().collect::<Vec<T>>())
    }
}

impl<T: PartialEq> PartialEq for Run<T> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl<T: Eq> Eq for Run<T> {}

impl<T: Copy + Default> From<&[T]> for Run<T> {
    fn from(values: &[T]) -> Self {
        if values.len() <= INLINE_MAX {
            return Self::inline(values);
        }
        let count = u32::try_from(values.len()).expect("fewer than 2^32 values");
        Self(Values::Shared { buffer: Arc::from(values), first: 0, count })
    }
}

impl<T> Deref for Run<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        match &self.0 {
            Values::Inline { count, values } => &values[..usize::from(*count)],
            Values::Shared { buffer, first, count } => &buffer[*first as usize..][..*count as usize],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buffer(run: &Run<i32>) -> &Arc<[i32]> {
        match &run.0 {
            Values::Shared { buffer, .. } => buffer,
            Values::Inline { .. } => panic!("no buffer"),
        }
    }

    #[test]
    fn a_cut_copies_the_smaller_part_only() {
        let all: Vec<i32> = (0..20).collect();
        let mut head = Run::from(all.as_slice());
        let whole = Arc::clone(buffer(&head));
        let tail = head.split_off(8);
        assert_eq!((&*head, &*tail), (&all[..8], &all[8..]));
        assert!(Arc::ptr_eq(buffer(&tail), &whole));
        assert_eq!(buffer(&head).len(), 8);
    }

    #[test]
    fn a_run_uses_at_least_half_of_its_buffer() {
        let mut run = Run::from((0..100).collect::<Vec<i32>>().as_slice());
        for first in 1..=100 {
            run.keep(1, run.len());
            assert_eq!(run.first().copied(), (first < 100).then_some(first));
            if let Values::Shared { buffer, .. } = &run.0 {
                assert!(run.len() > INLINE_MAX && buffer.len() <= 2 * run.len());
            }
        }
        assert!(run.is_empty());
    }

    #[test]
    fn few_values_need_no_buffer() {
        assert_eq!(size_of::<Run<i32>>(), 32);
        let mut run = Run::from([1, 2, 3, 4, 5].as_slice());
        let tail = run.split_off(2);
        assert_eq!((&*run, &*tail), ([1, 2].as_slice(), [3, 4, 5].as_slice()));
        assert_eq!((&*run.view(1, 2), &*run.view(2, 2)), ([2].as_slice(), [].as_slice()));
    }

    #[test]
    fn a_view_leaves_the_run_alone() {
        let run: Run<i32> = (0..9).collect();
        assert_eq!(&*run.view(6, 8), [6, 7]);
        assert_eq!(&*run.view(6, 8).view(1, 2), [7]);
        assert!(Arc::ptr_eq(buffer(&run.view(6, 8)), buffer(&run)));
        assert!(run.view(9, 9).is_empty());
        assert_eq!(run.len(), 9);
    }

    #[test]
    fn joined_runs_follow_on_each_other() {
        let (a, b) = ([1, 2, 3], [4, 5, 6, 7]);
        assert_eq!(&*Run::joined([&a, &b]), [1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(&*Run::joined([&[], &b]), b);
    }
}
