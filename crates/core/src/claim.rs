//! Claims: what is held along a known path, and leases at boundaries of it that need not be valid.
//!
//! They are what moves between tiers are made of: a claim keeps the pages that a boundary needs from
//! leaving while they are copied, or while the missing ones come, and counts no use.

use smallvec::smallvec;

use crate::arena::Handle;
use crate::error::{Error, Result};
use crate::key::Namespace;
use crate::node::NodeId;
use crate::plan::{HeldParts, Lease, Match};
use crate::tree::Tree;

/// Known path of a match: what `claim` and `holdings` need of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownPath {
    /// How much of the key the tree knew.
    pub tokens: u64,
    /// The deepest node.
    pub node: Handle,
}

impl From<&Match> for KnownPath {
    fn from(found: &Match) -> Self {
        Self { tokens: found.path_tokens, node: found.path_node }
    }
}

impl Tree {
    /// A lease at any boundary of a match's known path, valid or not; counts no use.
    ///
    /// Splits the node in which the boundary lies. Cost: O(nodes that the boundary needs).
    ///
    /// # Errors
    /// Not a boundary of the known path, or the path does not reach it any more.
    pub fn claim(&mut self, namespace: &Namespace, path: KnownPath, boundary_tokens: i64) -> Result<Lease> {
        let boundary = self.known_boundary(path, boundary_tokens)?;
        if boundary == 0 {
            let root = self.root(namespace);
            return Ok(self.open_lease(root, 0));
        }
        let mut node = self.known_node(path, boundary)?;
        if self.nodes[node].end() > boundary {
            node = self.split(node, boundary);
        }
        Ok(self.open_lease(node, boundary))
    }

    /// All runs that are held before a boundary of a match's known path, by component; changes nothing.
    ///
    /// Runs that follow on each other are one. Cost: O(nodes on the path x components).
    ///
    /// # Errors
    /// Not a boundary of the known path, or the path does not reach it any more.
    pub fn holdings(&self, path: KnownPath, boundary_tokens: i64) -> Result<Vec<Vec<HeldParts>>> {
        let boundary = self.known_boundary(path, boundary_tokens)?;
        let mut steps: Vec<NodeId> = Vec::new();
        if boundary > 0 {
            steps.extend(self.path_up(self.known_node(path, boundary)?));
        }
        let runs = |component| {
            let mut runs: Vec<HeldParts> = Vec::new();
            for &step in steps.iter().rev() {
                let holding = self.holding(step, component);
                let count = holding.end().min(boundary).saturating_sub(holding.first) as usize;
                if holding.is_empty() || count == 0 {
                    continue;
                }
                let (part, pages) = (holding.slots.view(0, count), count as u32);
                match runs.last_mut() {
                    Some(last) if last.end_page() == holding.first => {
                        last.pages += pages;
                        last.parts.push(part);
                    }
                    _ => runs.push(HeldParts { first_page: holding.first, pages, parts: smallvec![part] }),
                }
            }
            runs
        };
        Ok((0..self.components.len()).map(runs).collect())
    }

    /// A boundary of a known path, in pages.
    fn known_boundary(&self, path: KnownPath, boundary_tokens: i64) -> Result<u32> {
        let page = u64::from(self.page_tokens);
        match u64::try_from(boundary_tokens) {
            Ok(tokens) if tokens % page == 0 && tokens <= path.tokens => Ok(self.boundary(tokens)),
            _ => Err(Error::Config {
                message: format!(
                    "boundary {boundary_tokens} is not a multiple of {page} tokens between 0 and {}",
                    path.tokens
                ),
                hint: "choose a page boundary on the match's known path".to_owned(),
            }),
        }
    }

    /// A boundary in pages; one that no path reaches for more than fit.
    pub(crate) fn boundary(&self, boundary_tokens: u64) -> u32 {
        u32::try_from(boundary_tokens / u64::from(self.page_tokens)).unwrap_or(u32::MAX)
    }

    /// Node of a known path in which a boundary lies that is not 0.
    fn known_node(&self, path: KnownPath, boundary: u32) -> Result<NodeId> {
        let node = self.step_up(self.node(path.node)?, boundary);
        if self.nodes[node].end() < boundary {
            let boundary_tokens = u64::from(boundary) * u64::from(self.page_tokens);
            let message = format!("boundary {boundary_tokens} is not in the tree any more");
            return Err(Error::stale(message, "values were evicted; match again"));
        }
        Ok(node)
    }
}
