//! Leases: protection of exactly the pages that a boundary needs (rules L-1 to L-5).
//!
//! A lock is a place, not a receipt: component `c` of a lease at boundary `b` protects the pages
//! `[first_page(b), b)`, whatever is or will be held there. So release undoes acquire exactly, however often
//! the nodes between were split, emptied or healed.

use smallvec::SmallVec;

use crate::arena::Handle;
use crate::boundaries::Voters;
use crate::error::{Error, Result};
use crate::key::Namespace;
use crate::node::NodeId;
use crate::plan::{HeldParts, Lease};
use crate::tree::{LeaseRecord, Tree};

impl Tree {
    /// Protects the boundary of a match and counts a use of it.
    ///
    /// Splits the node in which the boundary lies. Cost: O(nodes that the boundary needs).
    ///
    /// # Errors
    /// The match is out of date: its boundary is not valid any more.
    pub fn lease(&mut self, namespace: &Namespace, boundary_tokens: u64, node: Handle) -> Result<Lease> {
        let boundary = self.boundary(boundary_tokens);
        if boundary == 0 {
            let root = self.root(namespace);
            return Ok(self.open_lease(root, 0));
        }
        let mut node = self.step_up(self.node(node)?, boundary);
        let end = self.nodes[node].end();
        if end < boundary || self.deepest_agreed(node, Voters::All, boundary) != boundary {
            let message = format!("boundary {boundary_tokens} is not valid any more");
            return Err(Error::stale(message, "values were evicted; match again"));
        }
        if end > boundary {
            node = self.split(node, boundary);
        }
        let granted = self.open_lease(node, boundary);
        self.touch(node, boundary, &[]);
        Ok(granted)
    }

    /// The node itself, or its ancestor in which a boundary lies that is not 0.
    pub(crate) fn step_up(&self, node: NodeId, boundary: u32) -> NodeId {
        let inside = |&step: &NodeId| self.nodes[step].start < boundary;
        self.path_up(node).find(inside).unwrap_or(node)
    }

    /// Locks what `boundary`, the end of `node`, needs of every component.
    pub(crate) fn open_lease(&mut self, node: NodeId, boundary: u32) -> Lease {
        self.nodes[node].leases += 1;
        let path = self.take_path(node);
        let held: Vec<HeldParts> =
            (0..self.components.len()).map(|component| self.lock(&path, component, boundary)).collect();
        self.path_buffer = path;
        self.rank_node(node);
        let protects = SmallVec::from_elem(true, self.components.len());
        let record = self.leases.insert(LeaseRecord { node, boundary, protects });
        let boundary_tokens = u64::from(boundary) * u64::from(self.page_tokens);
        Lease { handle: self.leases.handle(record), boundary_tokens, held }
    }

    /// Adds one lock on the pages that `boundary` needs of a component; returns what is held of them, as far
    /// back from the boundary as there is no gap. The caller ranks the deepest node of the path.
    fn lock(&mut self, path: &[NodeId], component: usize, boundary: u32) -> HeldParts {
        if self.closed(component) {
            return self.lock_closed(path, component, boundary);
        }
        let first = self.first_page(component, boundary);
        let mut parts = SmallVec::new();
        let mut pages = 0;
        let mut gapless = true;
        for &step in path {
            let (start, end) = (self.nodes[step].start, self.nodes[step].end());
            if end <= first {
                break;
            }
            let holding = self.holding_mut(step, component);
            gapless &= !holding.is_empty() && holding.end() == end;
            if gapless {
                let skipped = first.saturating_sub(holding.first);
                parts.push(holding.slots.view(skipped as usize, holding.slots.len()));
                pages += holding.count() - skipped;
                gapless = holding.first == start;
            }
            let before = holding.locks.first();
            holding.locks.add(first.max(start), 1);
            if holding.locks.first() != before {
                self.rank_holding(step, component);
            }
        }
        parts.reverse();
        HeldParts { first_page: boundary - pages, pages, parts }
    }

    /// `lock` for a prefix-closed component, of which every page of the path is held (rule T-7).
    ///
    /// What it holds of inner nodes may not leave, locked or not: only the leased pages are counted. A lease of a
    /// long path comes by here for every node.
    fn lock_closed(&mut self, path: &[NodeId], component: usize, boundary: u32) -> HeldParts {
        let count = self.components.len();
        let mut parts = Vec::with_capacity(path.len().next_power_of_two()); // of sizes that fit again
        let mut leased = 0;
        for &step in path.iter().rev() {
            let holding = &mut self.holdings[step.index() * count + component];
            parts.push(holding.slots.clone());
            if holding.locks.is_empty() {
                holding.leased_pages = holding.count();
                leased += u64::from(holding.leased_pages);
            }
            holding.locks.add(holding.first, 1);
        }
        self.pools[component].counters.leased += leased;
        HeldParts { first_page: 0, pages: boundary, parts: parts.into() }
    }

    /// Takes back one lock on the pages that `boundary` needs of a component; the caller ranks the node.
    fn unlock(&mut self, node: NodeId, component: usize, boundary: u32) {
        if self.closed(component) {
            return self.unlock_closed(node, component);
        }
        let first = self.first_page(component, boundary);
        let mut next = Some(node);
        while let Some(step) = next {
            let (start, end) = (self.nodes[step].start, self.nodes[step].end());
            next = self.nodes[step].parent;
            if end <= first || next.is_none() {
                break;
            }
            let locks = &mut self.holding_mut(step, component).locks;
            let before = locks.first();
            locks.remove(first.max(start));
            if locks.first() != before {
                self.rank_holding(step, component);
            }
        }
    }

    fn unlock_closed(&mut self, node: NodeId, component: usize) {
        let count = self.components.len();
        let mut leased = 0;
        let mut step = node;
        while let Some(above) = self.nodes[step].parent {
            let holding = &mut self.holdings[step.index() * count + component];
            holding.locks.remove(holding.first);
            if holding.locks.is_empty() {
                leased += u64::from(std::mem::take(&mut holding.leased_pages));
            }
            step = above;
        }
        self.pools[component].counters.leased -= leased;
    }

    /// Gives a lease back. Cost: O(nodes that the boundary needs).
    ///
    /// # Errors
    /// It was released before.
    pub fn release(&mut self, lease: Handle) -> Result<()> {
        let record = self.lease_record(lease)?;
        let LeaseRecord { node, boundary, protects } = self.leases.remove(record);
        for component in (0..protects.len()).filter(|&component| protects[component]) {
            self.unlock(node, component, boundary);
        }
        self.nodes[node].leases -= 1;
        self.rank_node(node);
        self.prune(node);
        Ok(())
    }

    /// Lets some components of a lease go early: a window left behind, a checkpoint copied (rule L-3).
    ///
    /// # Errors
    /// The lease was released, or no component has one of the names; nothing is let go then.
    pub fn release_components<'a>(
        &mut self,
        lease: Handle,
        names: impl IntoIterator<Item = &'a str>,
    ) -> Result<()> {
        let record = self.lease_record(lease)?;
        let components: Result<SmallVec<[usize; 8]>> =
            names.into_iter().map(|name| self.component(name)).collect();
        for component in components? {
            let LeaseRecord { node, boundary, protects } = &mut self.leases[record];
            let (node, boundary) = (*node, *boundary);
            if std::mem::take(&mut protects[component]) {
                self.unlock(node, component, boundary);
                self.rank_holding(node, component);
            }
        }
        Ok(())
    }
}
