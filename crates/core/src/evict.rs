//! Evict: frees the slots asked for, dead values first, page by page (rules E-1 to E-7).

use std::cmp::Reverse;

use crate::arena::Handle;
use crate::candidates::Key;
use crate::liveness::Evictable;
use crate::node::NodeId;
use crate::plan::{Freed, Reason};
use crate::tree::Tree;

/// Slots that left, by component.
type Harvest = Freed;

impl Tree {
    /// Frees up to `wanted` slots of a component, fewer when fewer may go.
    ///
    /// Other components lose what the freed pages made useless on the same pages (rule E-5). Cost: O(freed +
    /// log candidates), however many leaves there are and however much is leased.
    ///
    /// # Panics
    /// `component` is not an index of a component.
    pub fn evict(&mut self, component: usize, wanted: u64) -> Freed {
        self.evict_from_first(component, wanted, |tree| tree.pools[component].candidates.first())
    }

    /// Frees up to `wanted` slots of the candidates of a component that `first` finds.
    pub(crate) fn evict_from_first(
        &mut self,
        component: usize,
        wanted: u64,
        first: impl Fn(&mut Self) -> Option<(NodeId, Key)>,
    ) -> Freed {
        let mut harvest = self.harvest();
        let mut missing = wanted;
        let at_most = wanted.min(self.pools[component].counters.held);
        harvest.slots[component].reserve_exact(usize::try_from(at_most).unwrap_or(0));
        self.refresh(component);
        while missing > 0 {
            let Some((node, key)) = first(self) else { break };
            if key.live && self.is_spared(node, component) {
                self.move_candidate(node, component);
                continue;
            }
            let at_most = u32::try_from(missing).unwrap_or(u32::MAX);
            missing -= u64::from(self.evict_from(node, component, at_most, &mut harvest));
        }
        harvest
    }

    /// Frees everything that no lease protects (rule E-7). Cost: O(nodes log nodes).
    pub fn clear(&mut self) -> Freed {
        let mut harvest = self.harvest();
        let order = |(id, node): (NodeId, &crate::node::Node)| {
            (Reverse(node.end()), node.born, self.nodes.handle(id), node.parent.is_some())
        };
        let mut nodes: Vec<(Reverse<u32>, u64, Handle, bool)> = self.nodes.iter().map(order).collect();
        nodes.sort_unstable_by_key(|&(end, born, _, _)| (end, born));
        for (_, _, handle, has_pages) in nodes {
            if let Some(node) = self.nodes.find(handle).filter(|_| has_pages) {
                self.clear_node(node, &mut harvest);
            }
        }
        harvest
    }

    pub(crate) fn harvest(&self) -> Harvest {
        let count = self.components.len();
        Freed { slots: vec![Vec::new(); count], dead_pages: vec![0; count] }
    }

    /// Takes pages of one class from one node; returns how many.
    fn evict_from(&mut self, node: NodeId, component: usize, wanted: u32, harvest: &mut Harvest) -> u32 {
        let pages = self.evictable(node, component);
        if pages.dead() > 0 {
            return self.evict_dead(node, component, pages, wanted, harvest);
        }
        if self.closed(component) {
            let count = wanted.min(self.live_tail(node));
            let from_page = self.nodes[node].end() - count;
            self.drop_path(node, from_page, Reason::Evicted, harvest);
            return count;
        }
        let count = self.live_head(node, component, wanted.min(pages.live));
        self.drop_head(node, component, count, Reason::Evicted, harvest);
        self.prune(node);
        count
    }

    /// Takes dead pages: those at the head first, then those at the tail.
    fn evict_dead(
        &mut self,
        node: NodeId,
        component: usize,
        pages: Evictable,
        wanted: u32,
        harvest: &mut Harvest,
    ) -> u32 {
        if self.closed(component) {
            let count = wanted.min(pages.dead_tail);
            let from_page = self.nodes[node].end() - count;
            self.drop_path(node, from_page, Reason::Dead, harvest);
            return count;
        }
        let head = wanted.min(pages.dead_head);
        let tail = (wanted - head).min(pages.dead_tail).min(self.pages_of_equal_rank(node, component));
        if head > 0 {
            self.drop_head(node, component, head, Reason::Dead, harvest);
        }
        if tail > 0 {
            let from_page = self.holding(node, component).end() - tail;
            self.drop_tail(node, component, from_page, Reason::Dead, harvest);
            self.rank_holding(node, component); // no boundary used them
        }
        self.prune(node);
        head + tail
    }

    /// Whether some boundary of the node needs nothing of some component.
    fn has_free_boundary(&self, node: NodeId) -> bool {
        let (start, end) = (self.nodes[node].start, self.nodes[node].end());
        let free = |rule: crate::Rule| rule.free_at_or_above(start + 1, end, self.page_tokens).is_some();
        self.components.iter().any(|component| free(component.rule))
    }

    /// How many pages can be cut from a leaf's tail while the page before stays usable; at least 1.
    ///
    /// Boundaries between the shallowest and the deepest one are all valid unless one of them needs nothing.
    fn live_tail(&self, node: NodeId) -> u32 {
        let holds_nothing = |component| self.holding(node, component).is_empty();
        if self.has_free_boundary(node) || (0..self.components.len()).any(holds_nothing) {
            return 1;
        }
        let here = &self.nodes[node];
        (here.deepest - here.shallowest).max(1)
    }

    /// How many pages can be cut from a run's head while the next one stays usable; at least 1.
    ///
    /// Each is the first page that some boundary of the node needs; the deepest boundary keeps its own.
    fn live_head(&self, node: NodeId, component: usize, wanted: u32) -> u32 {
        let here = &self.nodes[node];
        let first = self.holding(node, component).first;
        let serves_others = here.deepest == 0 || here.below != 0 || self.has_free_boundary(node);
        if serves_others || self.run_start(node, component) < first {
            return 1;
        }
        let mut page = first;
        let (rule, page_tokens) = (self.rule(component), self.page_tokens);
        for boundary in here.shallowest..here.deepest {
            let needed = rule.first_page(boundary, page_tokens);
            if page == first + wanted || needed > page {
                break;
            }
            page += u32::from(needed == page);
        }
        (page - first).max(1)
    }

    /// Takes the first pages of a run that is not prefix-closed.
    pub(crate) fn drop_head(
        &mut self,
        node: NodeId,
        component: usize,
        count: u32,
        reason: Reason,
        harvest: &mut Harvest,
    ) {
        let first = self.holding(node, component).first;
        let kept_from = first + count;
        self.record_removed(node, component, first, kept_from, reason);
        let holding = self.holding_mut(node, component);
        harvest.slots[component].extend_from_slice(&holding.slots[..count as usize]);
        holding.slots.keep(count as usize, holding.slots.len());
        holding.first = kept_from;
        self.take(node, component, count, reason, harvest);
        if reason == Reason::Dead {
            self.rank_holding(node, component); // no boundary used them
            return;
        }
        self.reconsider(node);
        self.reconsider_below(node, component, kept_from - 1);
    }

    /// Takes the pages of a run from `from_page` on; the caller reconsiders or ranks the node.
    pub(crate) fn drop_tail(
        &mut self,
        node: NodeId,
        component: usize,
        from_page: u32,
        reason: Reason,
        harvest: &mut Harvest,
    ) {
        let holding = self.holding(node, component);
        let (first, end) = (holding.first, holding.end());
        let from_page = from_page.max(first);
        if holding.is_empty() || from_page >= end {
            return;
        }
        self.record_removed(node, component, from_page, end, reason);
        let holding = self.holding_mut(node, component);
        let kept = (from_page - first) as usize;
        let freed = &mut harvest.slots[component];
        let before = freed.len();
        freed.extend_from_slice(&holding.slots[kept..]);
        freed[before..].reverse();
        holding.slots.keep(0, kept);
        self.take(node, component, end - from_page, reason, harvest);
    }

    /// Cuts a leaf's pages from `from_page` on, with all that any component holds there (rule E-5).
    fn drop_path(&mut self, node: NodeId, from_page: u32, reason: Reason, harvest: &mut Harvest) {
        for component in 0..self.components.len() {
            let leaves_as_asked = self.closed(component) || reason == Reason::Cleared;
            let why = if leaves_as_asked { reason } else { Reason::PathEvicted };
            self.drop_tail(node, component, from_page, why, harvest);
        }
        self.prune(node); // and finds its boundaries again
    }

    /// Books pages that left a holding.
    fn take(&mut self, node: NodeId, component: usize, count: u32, reason: Reason, harvest: &mut Harvest) {
        self.holding_mut(node, component).lost = true;
        self.count_left(node, component, count);
        if matches!(reason, Reason::Dead | Reason::PathEvicted) {
            harvest.dead_pages[component] += u64::from(count);
        }
    }

    /// Frees what may go of one node, whose descendants were cleared before.
    fn clear_node(&mut self, node: NodeId, harvest: &mut Harvest) {
        for component in 0..self.components.len() {
            let count = self.evictable(node, component).all();
            if count > 0 && self.closed(component) {
                self.drop_path(node, self.nodes[node].start, Reason::Cleared, harvest);
                return;
            }
            if count > 0 {
                self.drop_head(node, component, count, Reason::Cleared, harvest);
            }
        }
        self.prune(node);
    }
}
