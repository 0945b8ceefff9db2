//! The candidates for eviction of one component, in order at all times (rule E-6).
//!
//! An indexed binary heap: each node's place in it is known, so a candidate is changed or taken out where
//! it stands. There is nothing stale in it and nothing to sweep, and what is leased is not in it at all;
//! the cost of a change is O(log candidates). A linked list would do for plain recency only.

use std::cmp::Ordering;

use crate::node::NodeId;

const ABSENT: u32 = u32::MAX;

/// Order of leaving: dead before live, then the lowest level, the lowest rank, the older tick, the shallower
/// node (rule P-2).
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Key {
    pub(crate) live: bool,
    pub(crate) level: u64,
    pub(crate) rank: f64,
    pub(crate) tick: u64,
    pub(crate) start: u32,
}

/// A node with its key; the highest bit of `class` is set for live values, the rest is their level.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    class: u64,
    rank: f64,
    tick: u64,
    start: u32,
    node: NodeId,
}

const LIVE: u64 = 1 << 63;

impl Entry {
    pub(crate) fn new(key: Key, node: NodeId) -> Self {
        let Key { live, level, rank, tick, start } = key;
        debug_assert!(level < LIVE, "a level leaves one bit free");
        Self { class: level | if live { LIVE } else { 0 }, rank, tick, start, node }
    }

    pub(crate) fn node(&self) -> NodeId {
        self.node
    }

    pub(crate) fn key(&self) -> Key {
        let &Self { class, rank, tick, start, .. } = self;
        Key { live: class & LIVE != 0, level: class & !LIVE, rank, tick, start }
    }

    fn before(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Less
    }
}

impl Ord for Entry {
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        let order = self.class.cmp(&other.class);
        let order = order.then_with(|| self.rank.total_cmp(&other.rank));
        let order = order.then_with(|| self.tick.cmp(&other.tick));
        order.then_with(|| self.start.cmp(&other.start)).then_with(|| self.node.cmp(&other.node))
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Entry {}

/// The heap, and each node's place in it.
#[derive(Debug, Default)]
pub(crate) struct Candidates {
    heap: Vec<Entry>,
    places: Vec<u32>,
}

impl Candidates {
    pub(crate) fn len(&self) -> usize {
        self.heap.len()
    }

    /// All of them, in no order that means anything.
    pub(crate) fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.heap.iter()
    }

    /// Node whose values leave next, and its key.
    pub(crate) fn first(&self) -> Option<(NodeId, Key)> {
        self.heap.first().map(|entry| (entry.node, entry.key()))
    }

    pub(crate) fn key(&self, node: NodeId) -> Option<Key> {
        self.place(node).map(|place| self.heap[place].key())
    }

    /// Adds a node, or moves it to where its new key belongs.
    pub(crate) fn set(&mut self, node: NodeId, key: Key) {
        let entry = Entry::new(key, node);
        let Some(place) = self.place(node) else {
            if self.places.len() <= node.index() {
                self.places.resize(node.index() + 1, ABSENT);
            }
            self.heap.push(entry);
            self.rise(self.heap.len() - 1);
            return;
        };
        self.replace(place, entry);
    }

    /// Takes a node out; nothing happens when it is not there.
    pub(crate) fn remove(&mut self, node: NodeId) {
        let Some(place) = self.place(node) else { return };
        self.places[node.index()] = ABSENT;
        let last = self.heap.pop().expect("a heap with a place is not empty");
        if last.node != node {
            self.replace(place, last);
        }
    }

    fn replace(&mut self, place: usize, entry: Entry) {
        let order = entry.cmp(&self.heap[place]);
        self.heap[place] = entry;
        match order {
            Ordering::Less => self.rise(place),
            Ordering::Equal => {} // ranked again, and nothing changed
            Ordering::Greater => self.sink(place),
        }
    }

    #[inline]
    fn place(&self, node: NodeId) -> Option<usize> {
        let place = *self.places.get(node.index())?;
        (place != ABSENT).then_some(place as usize)
    }

    fn rise(&mut self, mut place: usize) {
        let moved = self.heap[place];
        while place > 0 {
            let parent = (place - 1) / 2;
            if !moved.before(&self.heap[parent]) {
                break;
            }
            self.put(place, self.heap[parent]);
            place = parent;
        }
        self.put(place, moved);
    }

    fn sink(&mut self, mut place: usize) {
        let moved = self.heap[place];
        loop {
            let mut child = 2 * place + 1;
            if child >= self.heap.len() {
                break;
            }
            if child + 1 < self.heap.len() && self.heap[child + 1].before(&self.heap[child]) {
                child += 1;
            }
            if !self.heap[child].before(&moved) {
                break;
            }
            self.put(place, self.heap[child]);
            place = child;
        }
        self.put(place, moved);
    }

    #[inline]
    fn put(&mut self, place: usize, entry: Entry) {
        self.heap[place] = entry;
        self.places[entry.node.index()] = place as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arena::Arena;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn key(live: bool, rank: u32, tick: u64) -> Key {
        Key { live, level: 0, rank: f64::from(rank), tick, start: 0 }
    }

    #[test]
    fn dead_leave_before_live_then_level_then_rank_then_tick_then_place() {
        let node = Arena::new().insert(());
        let order = [
            Key { level: 7, ..key(false, 9, 9) },
            key(true, 1, 5),
            key(true, 2, 3),
            key(true, 2, 4),
            Key { start: 1, ..key(true, 2, 4) },
            Key { level: 1, ..key(true, 0, 0) },
        ];
        let entries = order.map(|key| Entry::new(key, node));
        assert!(entries.windows(2).all(|pair| pair[0].before(&pair[1]) && !pair[1].before(&pair[0])));
        assert_eq!(entries.map(|entry| entry.key()), order);
    }

    proptest! {
        #[test]
        fn the_first_is_always_the_least(steps in prop::collection::vec((0..12_usize, any::<bool>(), 0..9_u32), 1..200)) {
            let mut arena = Arena::new();
            let ids: Vec<_> = (0..12).map(|n| arena.insert(n)).collect();
            let mut heap = Candidates::default();
            let mut model = BTreeMap::new();
            for (tick, (index, keep, rank)) in steps.into_iter().enumerate() {
                if keep {
                    heap.set(ids[index], key(rank > 2, rank, tick as u64));
                    model.insert(index, (rank > 2, rank, tick));
                } else {
                    heap.remove(ids[index]);
                    model.remove(&index);
                }
                let least = model.iter().min_by_key(|(_, order)| **order).map(|(index, _)| ids[*index]);
                prop_assert_eq!(heap.first().map(|(node, _)| node), least);
                prop_assert_eq!(heap.len(), model.len());
            }
        }
    }
}
