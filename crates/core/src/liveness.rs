//! Which values a boundary can still use, and the order in which the others and they may leave.
//!
//! A value is *live* when it lies between the first page that the shallowest and the end that the deepest
//! agreed boundary of its node need, or when a boundary below needs it; else it is *dead* (rule E-1). Values
//! of one boundary are thus judged together: when a state goes, the pages that only that state made usable
//! are dead from then on, in every pool.

use crate::boundaries::Voters;
use crate::candidates::Key;
use crate::node::NodeId;
use crate::tree::Tree;

/// Pages of one run that may leave: dead ones at the head, dead ones at the tail, then live ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Evictable {
    pub(crate) dead_head: u32,
    pub(crate) dead_tail: u32,
    pub(crate) live: u32,
}

impl Evictable {
    pub(crate) fn dead(self) -> u32 {
        self.dead_head + self.dead_tail
    }

    pub(crate) fn all(self) -> u32 {
        self.dead() + self.live
    }
}

impl Tree {
    /// Finds the node's agreed boundaries again and carries a change upward (rule E-1).
    pub(crate) fn reconsider(&mut self, node: NodeId) {
        let before = self.nodes[node].first_boundary();
        self.find_boundaries(node);
        self.rank_node(node);
        self.carry_up(node, before);
    }

    /// Reconsiders every descendant with a boundary that may need pages of `component` up to `last_page`.
    pub(crate) fn reconsider_below(&mut self, node: NodeId, component: usize, last_page: u32) {
        let mut pending: Vec<NodeId> = self.children_of(node).collect();
        while let Some(child) = pending.pop() {
            if self.first_page(component, self.nodes[child].start + 1) <= last_page {
                let before = self.nodes[child].first_boundary();
                if self.find_boundaries(child) {
                    self.rank_node(child); // what it holds is as before: so is all else that ranks it
                    self.carry_up(child, before);
                }
                pending.extend(self.children_of(child));
            }
        }
    }

    /// Finds the node's agreed boundaries again; whether they are others than before.
    fn find_boundaries(&mut self, node: NodeId) -> bool {
        let here = &self.nodes[node];
        let deepest = if here.pages == 0 { 0 } else { self.deepest_agreed(node, Voters::All, here.end()) };
        let shallowest = if deepest == 0 { 0 } else { self.shallowest_agreed(node) };
        let here = &mut self.nodes[node];
        let before = (here.shallowest, here.deepest);
        (here.shallowest, here.deepest) = (shallowest, deepest);
        before != (shallowest, deepest)
    }

    /// Hull of the node's pages that some boundary needs of a component; empty as (end, end).
    fn live_span(&self, node: NodeId, component: usize) -> (u32, u32) {
        let here = &self.nodes[node];
        let end = here.end();
        let (mut first, mut last) = (end, end);
        if here.shallowest != 0 {
            first = here.start.max(self.first_page(component, here.shallowest));
            last = here.deepest;
        }
        if here.below != 0 {
            let needed = here.start.max(self.first_page(component, here.below));
            if needed < end {
                (first, last) = (first.min(needed), end);
            }
        }
        (first, last)
    }

    /// How many pages of the run are dead, at its head and at its tail.
    pub(crate) fn dead_pages(&self, node: NodeId, component: usize) -> (u32, u32) {
        let holding = self.holding(node, component);
        let count = holding.count();
        if count == 0 {
            return (0, 0);
        }
        let (first, last) = self.live_span(node, component);
        if first >= last || holding.first >= last {
            return (count, 0); // all of it
        }
        let head = first.saturating_sub(holding.first).min(count);
        let tail = holding.end().saturating_sub(last).min(count - head);
        (head, tail)
    }

    /// Pages of the run that may leave now (rules E-2 to E-4).
    pub(crate) fn evictable(&self, node: NodeId, component: usize) -> Evictable {
        self.evictable_of(node, component, self.dead_pages(node, component))
    }

    fn evictable_of(&self, node: NodeId, component: usize, dead: (u32, u32)) -> Evictable {
        let holding = self.holding(node, component);
        let (count, (head, tail)) = (holding.count(), dead);
        if self.closed(component) {
            let here = &self.nodes[node];
            if !holding.locks.is_empty() || here.children != 0 || here.leases != 0 {
                return Evictable::default();
            }
            return Evictable { dead_head: 0, dead_tail: head + tail, live: count - head - tail };
        }
        if count == 0 {
            return Evictable::default();
        }
        let Some(locked_from) = holding.locks.first().filter(|&page| page < holding.end()) else {
            return Evictable { dead_head: head, dead_tail: tail, live: count - head - tail };
        };
        let open = locked_from.saturating_sub(holding.first);
        let head = head.min(open);
        Evictable { dead_head: head, dead_tail: 0, live: open - head }
    }

    /// Brings the candidates and counters of a node's holdings up to date.
    pub(crate) fn rank_node(&mut self, node: NodeId) {
        for component in 0..self.components.len() {
            self.rank_holding(node, component);
        }
    }

    /// Brings one holding's candidate and counters up to date. Cost: O(log candidates).
    pub(crate) fn rank_holding(&mut self, node: NodeId, component: usize) {
        self.ask_again(node, component);
        let dead = self.dead_pages(node, component);
        let pages = self.evictable_of(node, component, dead);
        self.count_leased(node, component, self.holding(node, component).locked_pages());
        self.count_dead(node, component, dead.0 + dead.1);
        if pages.all() == 0 {
            self.set_candidate(node, component, None);
        } else {
            let key = self.key(node, component, pages);
            self.set_candidate(node, component, Some(key));
        }
    }

    /// Where a holding stands among the candidates.
    pub(crate) fn key(&self, node: NodeId, component: usize, pages: Evictable) -> Key {
        let (level, rank) = self.standing(node, component);
        let (tick, start) = (self.holding(node, component).last_tick, self.nodes[node].start);
        Key { live: pages.dead() == 0, level, rank, tick, start }
    }

    /// Brings the counter of leased pages up to date for one holding (rule L-5).
    #[inline]
    pub(crate) fn count_leased(&mut self, node: NodeId, component: usize, leased: u32) {
        let before = std::mem::replace(&mut self.holding_mut(node, component).leased_pages, leased);
        let counters = &mut self.pools[component].counters;
        counters.leased = counters.leased + u64::from(leased) - u64::from(before);
    }

    /// Brings the counter of dead pages up to date for one holding (rule L-5).
    #[inline]
    fn count_dead(&mut self, node: NodeId, component: usize, dead: u32) {
        let before = std::mem::replace(&mut self.holding_mut(node, component).dead_pages, dead);
        let counters = &mut self.pools[component].counters;
        counters.dead = counters.dead + u64::from(dead) - u64::from(before);
    }
}
