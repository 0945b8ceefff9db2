//! The candidates for eviction of one component, in order at all times (rule E-6).
//!
//! An indexed binary heap: each node's place in it is known, so a candidate is changed or taken out where
//! it stands. There is nothing stale in it and nothing to sweep, and what is leased is not in it at all;
//! the cost of a change is O(log candidates). A linked list would do for plain recency only.

use std::cmp::Ordering;

use crate::node::NodeId;

const ABSENT: u32 = u32::MAX;

/// Order of leaving: dead before live, then the lowest rank, the older tick, the shallower node (rule P-2).
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Key {
    pub(crate) live: bool,
    pub(crate) rank: f64,
    pub(crate) tick: u64,
    pub(crate) start: u32,
}

impl Key {
    fn before(&self, other: &Self) -> bool {
        let order = self.live.cmp(&other.live);
        let order = order.then_with(|| self.rank.total_cmp(&other.rank));
        let order = order.then_with(|| self.tick.cmp(&other.tick));
        order.then_with(|| self.start.cmp(&other.start)) == Ordering::Less
    }
}

/// The heap, and each node's place in it.
#[derive(Debug, Default)]
pub(crate) struct Candidates {
    heap: Vec<(Key, NodeId)>,
    places: Vec<u32>,
}

impl Candidates {
    pub(crate) fn len(&self) -> usize {
        self.heap.len()
    }

    /// Node whose values leave next.
    pub(crate) fn first(&self) -> Option<NodeId> {
        self.heap.first().map(|&(_, node)| node)
    }

    pub(crate) fn key(&self, node: NodeId) -> Option<Key> {
        self.place(node).map(|place| self.heap[place].0)
    }

    /// Adds a node, or moves it to where its new key belongs.
    pub(crate) fn set(&mut self, node: NodeId, key: Key) {
        let Some(place) = self.place(node) else {
            if self.places.len() <= node.index() {
                self.places.resize(node.index() + 1, ABSENT);
            }
            self.heap.push((key, node));
            self.rise(self.heap.len() - 1);
            return;
        };
        let rises = key.before(&self.heap[place].0);
        self.heap[place].0 = key;
        if rises { self.rise(place) } else { self.sink(place) }
    }

    /// Takes a node out; nothing happens when it is not there.
    pub(crate) fn remove(&mut self, node: NodeId) {
        let Some(place) = self.place(node) else { return };
        self.places[node.index()] = ABSENT;
        let (key, last) = self.heap.pop().expect("a heap with a place is not empty");
        if last != node {
            let rises = key.before(&self.heap[place].0);
            self.heap[place] = (key, last);
            if rises { self.rise(place) } else { self.sink(place) }
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
            if !moved.0.before(&self.heap[parent].0) {
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
            if child + 1 < self.heap.len() && self.heap[child + 1].0.before(&self.heap[child].0) {
                child += 1;
            }
            if !self.heap[child].0.before(&moved.0) {
                break;
            }
            self.put(place, self.heap[child]);
            place = child;
        }
        self.put(place, moved);
    }

    #[inline]
    fn put(&mut self, place: usize, entry: (Key, NodeId)) {
        self.heap[place] = entry;
        self.places[entry.1.index()] = place as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arena::Arena;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn key(live: bool, rank: u32, tick: u64) -> Key {
        Key { live, rank: f64::from(rank), tick, start: 0 }
    }

    #[test]
    fn dead_leave_before_live_then_rank_then_tick_then_place() {
        let order = [key(false, 9, 9), key(true, 1, 5), key(true, 2, 3), key(true, 2, 4)];
        assert!(order.windows(2).all(|pair| pair[0].before(&pair[1]) && !pair[1].before(&pair[0])));
        let deeper = Key { start: 1, ..order[0] };
        assert!(order[0].before(&deeper));
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
                prop_assert_eq!(heap.first(), least);
                prop_assert_eq!(heap.len(), model.len());
            }
        }
    }
}
