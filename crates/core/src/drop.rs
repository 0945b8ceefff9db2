//! Drop: one state leaves before its turn, because its owner knows that it has been superseded (rule E-9).

use crate::arena::Handle;
use crate::error::{Error, Result};
use crate::node::NodeId;
use crate::plan::{Freed, Reason};
use crate::rule::Rule;
use crate::tree::Tree;

impl Tree {
    /// Takes a component's state at one boundary of a lease's path out of the tree.
    ///
    /// Nothing leaves where nothing is held, where a lease protects it, where a session refers to it, or where
    /// paths part. Cost: O(nodes between the lease's boundary and the state's).
    ///
    /// # Errors
    /// A component without states, not a boundary of the lease's path, or a lease that was released.
    ///
    /// # Panics
    /// `component` is not an index of a component.
    pub fn drop_state(&mut self, lease: Handle, component: usize, boundary_tokens: i64) -> Result<Freed> {
        let record = &self.leases[self.lease_record(lease)?];
        let (end, end_boundary) = (record.node, record.boundary);
        self.require_states(component)?;
        let boundary = self.boundary_before(boundary_tokens, end_boundary)?;
        let node = self.step_up(end, boundary);
        let mut harvest = self.harvest();
        if self.may_drop(node, component, boundary) {
            self.take_state(node, component, boundary - 1, &mut harvest);
        }
        Ok(harvest)
    }

    fn require_states(&self, component: usize) -> Result<()> {
        if self.rule(component) == Rule::Checkpoint {
            return Ok(());
        }
        let name = &self.components[component].name;
        Err(Error::Config {
            message: format!("component '{name}' holds no states"),
            hint: "only checkpoints are dropped one by one; evict frees pages of other components".to_owned(),
        })
    }

    /// A boundary in pages that is not 0 and lies on a lease's path.
    fn boundary_before(&self, boundary_tokens: i64, end: u32) -> Result<u32> {
        let page = u64::from(self.page_tokens);
        let last = u64::from(end) * page;
        match u64::try_from(boundary_tokens) {
            Ok(tokens) if tokens % page == 0 && 0 < tokens && tokens <= last => Ok(self.boundary(tokens)),
            _ => Err(Error::Config {
                message: format!(
                    "boundary {boundary_tokens} is not a multiple of {page} tokens between {page} and {last}"
                ),
                hint: "choose a page boundary on the lease's path".to_owned(),
            }),
        }
    }

    /// Whether a state is held at a boundary in a node, and nobody needs it but the path that it lies on.
    fn may_drop(&self, node: NodeId, component: usize, boundary: u32) -> bool {
        let (here, holding) = (&self.nodes[node], self.holding(node, component));
        let page = boundary - 1;
        let is_held = !holding.is_empty() && holding.first <= page && page < holding.end();
        let is_leased = holding.locks.first().is_some_and(|first| first <= page);
        let references = self.references(node, component).and_then(|places| places.first());
        let is_referenced = references.is_some_and(|first| first <= page);
        let is_branch = here.end() == boundary && here.children > 1;
        is_held && !(is_leased || is_referenced || is_branch)
    }

    /// Takes the state on one page; the node is cut where its run would get a gap (rule T-3).
    fn take_state(&mut self, node: NodeId, component: usize, page: u32, harvest: &mut Freed) {
        let (first, end) = (self.holding(node, component).first, self.holding(node, component).end());
        let (dead_head, dead_tail) = self.dead_pages(node, component);
        let is_live = (first + dead_head..end - dead_tail).contains(&page);
        let reason = if is_live { Reason::Evicted } else { Reason::Dead };
        if page + 1 == end {
            self.drop_tail(node, component, page, reason, harvest);
            self.reconsider(node); // no boundary below needs it
            return;
        }
        if first < page {
            self.split(node, page); // the handle stays with the deeper half
        }
        self.drop_head(node, component, 1, reason, harvest);
    }
}
