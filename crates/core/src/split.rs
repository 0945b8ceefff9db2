//! Splitting and removing nodes.

use crate::node::{Holding, NodeId};
use crate::tree::Tree;

impl Tree {
    /// Cuts a node in two and returns the upper half; `node` stays the deeper half (rule T-5).
    ///
    /// Runs, locks, references and usage are cut with it. Cost: O(components + log candidates), and copying the smaller half.
    pub(crate) fn split(&mut self, node: NodeId, at_page: u32) -> NodeId {
        let (root, parent, start) = (self.nodes[node].root, self.nodes[node].parent, self.nodes[node].start);
        let cut = at_page - start;
        assert!(0 < cut && cut < self.nodes[node].pages, "a node is split inside");
        let upper = self.add_node(root, parent, start);
        self.replace_child(node, upper);
        let below = self.nodes[node].first_boundary();
        let lower = &mut self.nodes[node];
        let tail = lower.tokens.split_off(cut as usize * self.page_tokens as usize);
        let head = std::mem::replace(&mut lower.tokens, tail);
        lower.start = at_page;
        lower.pages -= cut;
        self.nodes[upper].tokens = head;
        self.nodes[upper].pages = cut;
        self.nodes[upper].below = below;
        if let Some(keys) = self.page_keys.get_mut(&node) {
            let tail = keys.split_off(keys.len().min(cut as usize));
            let head = std::mem::replace(keys, tail);
            self.page_keys.insert(upper, head);
        }
        for component in 0..self.components.len() {
            *self.holding_mut(upper, component) = split_holding(self.holding_mut(node, component), at_page);
        }
        self.split_references(node, upper, at_page);
        self.copy_usage(node, upper);
        self.reconsider(node);
        self.reconsider(upper);
        upper
    }

    /// Removes what holds nothing and is not leased: a tail, a node, its ancestors (rule T-4).
    pub(crate) fn prune(&mut self, node: NodeId) {
        let mut node = node;
        loop {
            let here = &self.nodes[node];
            if here.children != 0 || here.leases != 0 {
                return;
            }
            if here.parent.is_none() {
                self.remove_root(node);
                return;
            }
            let end = self.held_end(node);
            if end > here.start {
                self.trim(node, end);
                return;
            }
            node = self.remove(node);
        }
    }

    /// One past the last page of which anything is held; the node's start for nothing.
    pub(crate) fn held_end(&self, node: NodeId) -> u32 {
        let holdings = (0..self.components.len()).map(|component| self.holding(node, component));
        let held = holdings.filter(|holding| !holding.is_empty());
        held.map(Holding::end).max().unwrap_or(self.nodes[node].start)
    }

    /// Cuts the pages from `end` on, of which nothing is held, with the references on them (rule S-5).
    fn trim(&mut self, node: NodeId, end: u32) {
        let here = &mut self.nodes[node];
        if end == here.end() {
            return;
        }
        self.path_pages -= u64::from(here.end() - end);
        here.pages = end - here.start;
        here.tokens.keep(0, here.pages as usize * self.page_tokens as usize);
        if let Some(keys) = self.page_keys.get_mut(&node) {
            keys.truncate(here.pages as usize);
        }
        self.cut_references(node, end);
        self.reconsider(node);
    }

    /// Takes a childless node out of the tree and returns its parent.
    fn remove(&mut self, node: NodeId) -> NodeId {
        for component in 0..self.components.len() {
            let holding = self.holding(node, component);
            assert!(holding.locks.is_empty() && holding.is_empty(), "L-4: a node in use is not removed");
        }
        let here = &mut self.nodes[node];
        let before = here.first_boundary();
        (here.shallowest, here.deepest, here.below) = (0, 0, 0);
        self.rank_node(node);
        self.carry_up(node, before);
        self.unlink_child(node);
        for component in 0..self.components.len() {
            *self.holding_mut(node, component) = Holding::new();
        }
        self.forget_usage(node);
        self.cut_references(node, 0);
        self.page_keys.remove(&node);
        let gone = self.nodes.remove(node);
        self.path_pages -= u64::from(gone.pages);
        let parent = gone.parent.expect("a root is removed otherwise");
        self.lift_frontiers(node, parent);
        self.ask_exposed(parent);
        self.rank_node(parent);
        parent
    }

    fn remove_root(&mut self, root: NodeId) {
        let space = self.namespaces.remove(&root).expect("a root has a namespace");
        self.roots.remove(&space.name);
        self.nodes.remove(root);
    }
}

/// Cuts what one component holds at a page; returns the upper half.
fn split_holding(lower: &mut Holding, at_page: u32) -> Holding {
    let kept = at_page.saturating_sub(lower.first).min(lower.count());
    let tail = lower.slots.split_off(kept as usize);
    let upper = Holding {
        slots: std::mem::replace(&mut lower.slots, tail),
        last_tick: lower.last_tick,
        locks: lower.locks.split(at_page),
        first: lower.first,
        leased_pages: 0,
        dead_pages: 0,
        lost: lower.lost,
    };
    lower.first += kept;
    upper
}
