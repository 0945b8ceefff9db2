//! Storage in which a name is never used twice (rule T-6).

use std::num::NonZeroU32;
use std::ops::{Index, IndexMut};

/// Place of an entry: valid while the entry is there. `Option<Id>` takes four bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Id(NonZeroU32);

impl Id {
    fn new(index: usize) -> Self {
        let number = u32::try_from(index + 1).expect("fewer than 2^32 - 1 entries");
        Self(NonZeroU32::MIN.saturating_add(number - 1))
    }

    /// Index into arrays that run beside the arena.
    pub(crate) fn index(self) -> usize {
        self.0.get() as usize - 1
    }
}

/// A name that outlives its entry: the place and how often it was given away before. Never zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Handle(u64);

impl Handle {
    /// The handle of nothing.
    pub const NONE: Self = Self(0);

    /// Reads a handle that came back from outside; any number is safe, a wrong one finds nothing.
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// The number to give outside.
    #[must_use]
    pub const fn to_bits(self) -> u64 {
        self.0
    }
}

#[derive(Debug)]
struct Entry<T> {
    generation: u32,
    value: Option<T>,
}

/// A vector of entries with a free list. An entry's generation grows each time that it is given back;
/// one whose generations are used up is left empty for good.
#[derive(Debug)]
pub(crate) struct Arena<T> {
    entries: Vec<Entry<T>>,
    free: Vec<Id>,
    count: usize,
}

impl<T> Arena<T> {
    pub(crate) const fn new() -> Self {
        Self { entries: Vec::new(), free: Vec::new(), count: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.count
    }

    pub(crate) fn insert(&mut self, value: T) -> Id {
        self.count += 1;
        if let Some(id) = self.free.pop() {
            self.entries[id.index()].value = Some(value);
            return id;
        }
        self.entries.push(Entry { generation: 1, value: Some(value) });
        Id::new(self.entries.len() - 1)
    }

    pub(crate) fn remove(&mut self, id: Id) -> T {
        let entry = &mut self.entries[id.index()];
        let value = entry.value.take().expect("an entry is removed once");
        self.count -= 1;
        if let Some(next) = entry.generation.checked_add(1) {
            entry.generation = next;
            self.free.push(id);
        }
        value
    }

    pub(crate) fn handle(&self, id: Id) -> Handle {
        let generation = u64::from(self.entries[id.index()].generation);
        Handle(generation << 32 | id.index() as u64)
    }

    /// Entry of a handle, or `None` when it is gone.
    pub(crate) fn find(&self, handle: Handle) -> Option<Id> {
        let index = (handle.0 & u64::from(u32::MAX)) as usize;
        let entry = self.entries.get(index)?;
        (u64::from(entry.generation) == handle.0 >> 32 && entry.value.is_some()).then(|| Id::new(index))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Id, &T)> {
        self.entries
            .iter()
            .enumerate()
            .filter_map(|(index, entry)| entry.value.as_ref().map(|value| (Id::new(index), value)))
    }
}

impl<T> Index<Id> for Arena<T> {
    type Output = T;

    #[inline]
    fn index(&self, id: Id) -> &T {
        self.entries[id.index()].value.as_ref().expect("an id is used while its entry is there")
    }
}

impl<T> IndexMut<Id> for Arena<T> {
    #[inline]
    fn index_mut(&mut self, id: Id) -> &mut T {
        self.entries[id.index()].value.as_mut().expect("an id is used while its entry is there")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_is_never_used_twice() {
        let mut arena = Arena::new();
        let first = arena.insert('a');
        let handle = arena.handle(first);
        assert_ne!(handle, Handle::NONE);
        assert_eq!(arena.find(handle), Some(first));
        assert_eq!(arena.remove(first), 'a');
        assert_eq!(arena.find(handle), None);
        let second = arena.insert('b');
        assert_eq!(second, first, "the place is used again");
        assert_eq!(arena.find(handle), None, "the old handle does not reach the new entry");
        assert_eq!(arena.find(arena.handle(second)), Some(second));
    }

    #[test]
    fn a_place_whose_generations_are_used_up_stays_empty() {
        let mut arena = Arena::new();
        let id = arena.insert('a');
        arena.entries[id.index()].generation = u32::MAX;
        arena.remove(id);
        assert_ne!(arena.insert('b'), id);
        assert_eq!(arena.len(), 1);
    }

    #[test]
    fn foreign_numbers_find_nothing() {
        let mut arena = Arena::new();
        arena.insert('a');
        assert_eq!(arena.find(Handle::NONE), None);
        assert_eq!(arena.find(Handle::from_bits(u64::MAX)), None);
    }
}
