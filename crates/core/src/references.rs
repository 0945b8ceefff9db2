//! What sessions refer to: who is likely to come back, and to what (rules S-3 to S-7).
//!
//! A session has one frontier: the boundary that its last request reached. What that boundary needs, per
//! component, is *referenced*. A reference is a place like a lock (rule L-2), so it survives splits, but it
//! protects nothing: it only tells the policy. When pages leave, the references on them leave too.
//!
//! References stand beside the holdings, in a vector that is empty until the first session registers.

use crate::arena::Id;
use crate::node::NodeId;
use crate::places::Places;
use crate::sessions::{Frontier, Hints};
use crate::tree::Tree;

impl Tree {
    /// References to what a component holds, or could hold, of a node.
    pub(crate) fn references(&self, node: NodeId, component: usize) -> Option<&Places> {
        let places = self.references.get(node.index() * self.components.len() + component);
        places.filter(|places| !places.is_empty())
    }

    fn references_mut(&mut self, node: NodeId, component: usize) -> &mut Places {
        let index = node.index() * self.components.len() + component;
        if self.references.len() <= index {
            self.references.resize_with(index + 1, Places::default);
        }
        &mut self.references[index]
    }

    /// How many sessions refer to a page of what is held.
    #[inline]
    pub(crate) fn sessions_of(&self, node: NodeId, component: usize) -> u32 {
        let places = self.references(node, component);
        places.map_or(0, |places| places.count_before(self.holding(node, component).end()))
    }

    /// How many pages can leave from the tail of a run before fewer sessions refer to it (rule P-3).
    pub(crate) fn pages_of_equal_rank(&self, node: NodeId, component: usize) -> u32 {
        let end = self.holding(node, component).end();
        let place = self.references(node, component).and_then(|places| places.last_before(end));
        end - place.unwrap_or(0)
    }

    /// Cuts the references of a node that is split at a page.
    pub(crate) fn split_references(&mut self, lower: NodeId, upper: NodeId, at_page: u32) {
        for component in 0..self.components.len() {
            if self.references(lower, component).is_some() {
                let head = self.references_mut(lower, component).split(at_page);
                *self.references_mut(upper, component) = head;
            }
        }
    }

    /// Forgets the references to a node from a page on, which leave the tree.
    pub(crate) fn cut_references(&mut self, node: NodeId, from_page: u32) {
        for component in 0..self.components.len() {
            if self.references(node, component).is_some() {
                self.references_mut(node, component).truncate(from_page);
            }
        }
    }

    /// Sessions that ended at a node that leaves end at its parent from now on (rule S-5).
    pub(crate) fn lift_frontiers(&mut self, node: NodeId, parent: NodeId) {
        let has_pages = self.nodes[parent].parent.is_some();
        self.sessions.lift(node, has_pages.then_some(parent));
    }

    /// Takes the references of the frontier before back, and adds those of the new one.
    ///
    /// Where both refer alike nothing changes: a session that goes on costs what is new. Policies are asked when
    /// both is done, and only where it makes a difference (rule P-3).
    pub(crate) fn move_frontier(&mut self, session: Id, to: Option<Frontier>) {
        let from = self.sessions.place(session, to);
        let goes_on = from.zip(to).filter(|(from, to)| self.path_up(to.node).any(|step| step == from.node));
        for component in 0..self.components.len() {
            let first = |frontier: Frontier| self.first_page(component, frontier.boundary);
            let alike = goes_on.filter(|&(from, to)| first(from) == first(to)).map(|(from, _)| from.node);
            if let Some(to) = to {
                for (step, place) in self.referenced(to, component, alike) {
                    self.references_mut(step, component).add(place, 1);
                }
            }
            if let Some(from) = from.filter(|_| alike.is_none()) {
                for (step, place) in self.referenced(from, component, None) {
                    self.references_mut(step, component).remove(place);
                }
            }
        }
        if !self.policy_is_recency {
            let hints = self.sessions.table[session].hints;
            self.tell_policy(from, to, hints);
        }
    }

    /// Nodes up from a frontier in which there are pages that its boundary needs of a component, and the first
    /// of these pages; those from `stop` on left out.
    pub(crate) fn referenced(
        &self,
        frontier: Frontier,
        component: usize,
        stop: Option<NodeId>,
    ) -> Vec<(NodeId, u32)> {
        let first = self.first_page(component, frontier.boundary);
        self.path_up(frontier.node)
            .take_while(|&step| Some(step) != stop && self.nodes[step].end() > first)
            .map(|step| (step, first.max(self.nodes[step].start)))
            .collect()
    }

    /// Gives hints to what is referenced now (rule S-7), and asks the policy where something changed.
    fn tell_policy(&mut self, from: Option<Frontier>, to: Option<Frontier>, hints: Hints) {
        for component in 0..self.components.len() {
            for (step, _) in to.map_or_else(Vec::new, |to| self.referenced(to, component, None)) {
                self.give_hints(step, component, hints);
            }
            for frontier in [from, to].into_iter().flatten() {
                for (step, _) in self.referenced(frontier, component, None) {
                    self.ask_again(step, component);
                    self.move_candidate(step, component);
                }
            }
        }
    }

    fn give_hints(&mut self, node: NodeId, component: usize, hints: Hints) {
        let now_s = self.sessions.now_s;
        let known = self.known_mut(node, component);
        let usage = &mut known.usage;
        let before = (usage.priority, usage.return_s);
        usage.priority = usage.priority.max(hints.priority);
        if let Some(expected_return_s) = hints.expected_return_s {
            let expected_s = now_s + expected_return_s;
            let is_ahead = usage.return_s > now_s;
            usage.return_s = if is_ahead { usage.return_s.min(expected_s) } else { expected_s };
        }
        known.stale |= before != (usage.priority, usage.return_s);
    }
}
