//! Insert: a request's values become part of the tree (rules N-1 to N-6).
//!
//! Who owns a slot afterwards, for each page given:
//!
//! ```text
//! page not held by the component    the tree: adopted (a tombstone is healed)
//! page already held                 the caller, as before: a duplicate
//! page given by nobody              stays a hole (a tombstone)
//! ```

use smallvec::SmallVec;

use crate::arena::Handle;
use crate::error::Result;
use crate::node::NodeId;
use crate::plan::{GivenRun, Insertion, Piece, Pieces};
use crate::tree::Tree;
use crate::usage::holds_any;
use crate::values::Values;

/// What became of the pages given, by component.
struct Adoption {
    adopted: Values,
    duplicates: Values,
}

impl Tree {
    /// Adds the pages after a lease's boundary. Cost: O(new tokens), not of the path before them.
    ///
    /// `tokens` start at the boundary of the lease `grown_from`; a rest of less than a page is left out.
    /// `values` are the pages that the caller has, by the component's name. With `move_lease` the lease is
    /// released and one at the end of the inserted path is granted, without a moment unprotected.
    ///
    /// # Errors
    /// The lease was released; pages outside the inserted path, overlapping, or missing for a
    /// prefix-closed component. The tree is as before then.
    pub fn insert(
        &mut self,
        grown_from: Handle,
        tokens: &[u32],
        values: Vec<(impl AsRef<str>, Vec<GivenRun>)>,
        move_lease: bool,
    ) -> Result<Insertion> {
        let record = self.lease_record(grown_from)?;
        let (leased, start) = (self.leases[record].node, self.leases[record].boundary);
        let page = self.page_tokens as usize;
        let pages = u32::try_from(tokens.len() / page).expect("fewer than 2^32 pages");
        let (tokens, end) = (&tokens[..pages as usize * page], start + pages);
        let given = self.check_values(values, start, end)?;
        let (path, known) = self.walk(leased, tokens);
        let bottom = path.last().copied().unwrap_or(leased);
        self.missing_closed(&given, start + known, end)?;
        let mut bottom = self.grow(bottom, &tokens[known as usize * page..], start + known);
        let result = self.adopt(bottom, start, &given);
        while self.nodes[bottom].start >= end {
            // split at the end of the path
            let Some(above) = self.nodes[bottom].parent else { break };
            bottom = above;
        }
        if move_lease && self.nodes[bottom].end() > end {
            // before the use is counted: what lies deeper has no part in it
            bottom = self.split(bottom, end);
        }
        self.settle(bottom, start, end, &result.adopted);
        let lease = if move_lease {
            let lease = self.open_lease(bottom, end);
            self.release(grown_from)?;
            Some(lease)
        } else {
            self.prune(bottom);
            None
        };
        Ok(Insertion {
            boundary_tokens: u64::from(end) * u64::from(self.page_tokens),
            new_pages: pages - known,
            adopted: result.adopted,
            duplicates: result.duplicates,
            lease,
        })
    }

    /// Makes the rest of the path below `bottom`, where the tree knows only what is before `known_end`.
    fn grow(&mut self, bottom: NodeId, rest: &[u32], known_end: u32) -> NodeId {
        if rest.is_empty() {
            return bottom;
        }
        let above = if self.nodes[bottom].end() > known_end { self.split(bottom, known_end) } else { bottom };
        self.add_leaf(above, rest)
    }

    /// Offers every page given to the nodes of the path.
    ///
    /// Shallow runs come first, so that a node is cut only where a gap remains (rule T-3).
    fn adopt(&mut self, bottom: NodeId, start: u32, given: &Values) -> Adoption {
        let nothing = vec![Pieces::new(); self.components.len()];
        let mut result = Adoption { adopted: nothing.clone(), duplicates: nothing };
        for (component, runs) in given.iter().enumerate() {
            for run in runs {
                let mut node = bottom;
                while self.nodes[node].end() > run.first_page.max(start) {
                    node = self.adopt_in_node(node, component, run, &mut result);
                    let Some(above) = self.nodes[node].parent else { break };
                    node = above;
                }
            }
            result.adopted[component].sort_by_key(|run| run.first_page);
            result.duplicates[component].sort_by_key(|run| run.first_page);
        }
        result
    }

    /// Adopts the part of `run` that lies in `node`; returns the node from which to go on upward.
    fn adopt_in_node(
        &mut self,
        node: NodeId,
        component: usize,
        run: &Piece,
        result: &mut Adoption,
    ) -> NodeId {
        let here = &self.nodes[node];
        let (first, last) = (run.first_page.max(here.start), run.end_page().min(here.end()));
        if first >= last {
            return node;
        }
        let holding = self.holding(node, component);
        let (low, high) = if holding.is_empty() { (last, last) } else { (holding.first, holding.end()) };
        let pieces = [
            (first.max(high), last, true),
            (first.max(low), last.min(high), false),
            (first, last.min(low), true),
        ];
        let mut node = node;
        for (begin, end, is_new) in pieces {
            if begin >= end {
                continue;
            }
            let (from, to) = ((begin - run.first_page) as usize, (end - run.first_page) as usize);
            let part = Piece { first_page: begin, slots: run.slots.view(from, to) };
            if !is_new {
                result.duplicates[component].push(part);
                continue;
            }
            let mut slots = run.slots.clone();
            slots.keep(from, to);
            node = self.attach(node, component, begin, slots);
            self.count_came(node, component, end - begin);
            self.record_stored(node, component, begin, end);
            result.adopted[component].push(part);
        }
        node
    }

    /// Finds the boundaries of the path again, from the top down, and counts the use.
    fn settle(&mut self, bottom: NodeId, start: u32, end: u32, fresh: &Values) {
        let path: SmallVec<[NodeId; 16]> =
            self.path_up(bottom).take_while(|&node| self.nodes[node].end() > start).collect();
        for &node in path.iter().rev() {
            self.reconsider(node);
        }
        for &node in path.iter().rev() {
            for (component, new) in fresh.iter().enumerate() {
                if !self.closed(component) && holds_any(self.holding(node, component), new) {
                    self.reconsider_below(node, component, self.nodes[node].end() - 1);
                }
            }
        }
        self.touch(bottom, end, fresh);
    }
}
