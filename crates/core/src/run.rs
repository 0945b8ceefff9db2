//! Consecutive tokens or slots of one node.

use std::ops::Deref;
use std::sync::Arc;

/// A part of a shared buffer that never changes.
///
/// Readers keep a run alive by cloning it, which copies nothing. A run uses at least half of its buffer:
/// where it would become shorter it moves to a buffer of its own, so memory stays within twice of what is
/// held, and cutting a run in two copies only the smaller part.
#[derive(Clone, Debug)]
pub struct Run<T> {
    buffer: Arc<[T]>,
    first: u32,
    count: u32,
}

impl<T: Copy> Run<T> {
    /// A run of nothing; takes no memory of its own.
    #[must_use]
    pub fn empty() -> Self {
        Self { buffer: Arc::default(), first: 0, count: 0 }
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
        let kept = &self[begin..end];
        if kept.len() * 2 < self.buffer.len() {
            *self = Self::from(kept);
        } else {
            self.first += begin as u32;
            self.count = (end - begin) as u32;
        }
    }

    /// Leaves the first values out of a view that will not be kept; copies nothing.
    pub(crate) fn skip(&mut self, count: usize) {
        let count = count.min(self.len()) as u32;
        self.first += count;
        self.count -= count;
    }
}

impl<T: Copy> From<&[T]> for Run<T> {
    fn from(values: &[T]) -> Self {
        if values.is_empty() {
            return Self::empty();
        }
        let count = u32::try_from(values.len()).expect("fewer than 2^32 values");
        Self { buffer: Arc::from(values), first: 0, count }
    }
}

impl<T> Deref for Run<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        &self.buffer[self.first as usize..][..self.count as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_copies_the_smaller_part_only() {
        let mut head = Run::from([1, 2, 3, 4, 5].as_slice());
        let whole = Arc::clone(&head.buffer);
        let tail = head.split_off(2);
        assert_eq!((&*head, &*tail), ([1, 2].as_slice(), [3, 4, 5].as_slice()));
        assert!(Arc::ptr_eq(&tail.buffer, &whole));
        assert!(!Arc::ptr_eq(&head.buffer, &whole));
        assert_eq!(head.buffer.len(), 2);
    }

    #[test]
    fn a_run_uses_at_least_half_of_its_buffer() {
        let mut run = Run::from((0..100).collect::<Vec<i32>>().as_slice());
        for first in 1..=100 {
            run.keep(1, run.len());
            assert_eq!(run.first().copied(), (first < 100).then_some(first));
            assert!(run.len() * 2 >= run.buffer.len());
        }
    }
}
