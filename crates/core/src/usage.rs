//! Uses: what a lease or an insertion touches (rule P-1).

use crate::candidates::Key;
use crate::node::{Holding, NodeId};
use crate::plan::{Piece, Pieces};
use crate::tree::Tree;

impl Tree {
    /// Counts a use of what `boundary` needs on the path to `node`, and of holdings that are new.
    ///
    /// In the order of the components, shallow before deep, so that of equally useful windows and
    /// checkpoints the shallow ones are the older. `fresh` are, by component, the pages that got a value just
    /// now, in order; none at all when it is empty.
    pub(crate) fn touch(&mut self, node: NodeId, boundary: u32, fresh: &[Pieces]) {
        let path = self.take_path(node);
        for component in 0..self.components.len() {
            if self.policy_is_recency && self.closed(component) {
                self.touch_closed(&path, component);
                continue;
            }
            let first = self.first_page(component, boundary);
            let new = fresh.get(component).map_or(&[][..], Pieces::as_slice);
            let shallowest = new.first().map_or(first, |run| run.first_page.min(first));
            let deep = path.iter().take_while(|&&step| self.nodes[step].end() > shallowest).count();
            for &step in path[..deep].iter().rev() {
                let holding = self.holding(step, component);
                let needed = first.max(holding.first) < boundary.min(holding.end());
                if needed || holds_any(holding, new) {
                    if self.policy_ages && fresh.is_empty() {
                        self.tell_found(step, component);
                    }
                    self.touch_holding(step, component);
                }
            }
        }
        self.path_buffer = path;
    }

    /// One use of all that a prefix-closed component holds of a path, under plain recency.
    ///
    /// It holds every page (rule T-7), and none but the deepest node can be a candidate: a tick each is all.
    fn touch_closed(&mut self, path: &[NodeId], component: usize) {
        let count = self.components.len();
        for &step in path.iter().rev() {
            self.clock += 1;
            self.holdings[step.index() * count + component].last_tick = self.clock;
        }
        if let Some(&deepest) = path.first() {
            self.move_candidate(deepest, component);
        }
    }

    /// One use of one holding.
    #[inline]
    fn touch_holding(&mut self, node: NodeId, component: usize) {
        self.clock += 1;
        self.count_use(node, component);
        self.move_candidate(node, component);
    }

    /// Moves a holding's candidate, if it has one, to where its usage belongs.
    pub(crate) fn move_candidate(&mut self, node: NodeId, component: usize) {
        if self.nodes[node].children != 0 && self.closed(component) {
            return; // it has none
        }
        let (level, rank) = self.standing(node, component);
        let tick = self.holding(node, component).last_tick;
        if let Some(key) = self.pools[component].candidates.key(node) {
            self.set_candidate(node, component, Some(Key { level, rank, tick, ..key }));
        }
    }
}

/// Whether some page of the runs is held here.
pub(crate) fn holds_any(holding: &Holding, runs: &[Piece]) -> bool {
    let touches = |run: &Piece| run.first_page < holding.end() && holding.first < run.end_page();
    !holding.is_empty() && runs.iter().any(touches)
}
