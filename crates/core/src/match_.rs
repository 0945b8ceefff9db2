//! Match: the longest reusable prefix of a key. Changes nothing (rule M-1).

use smallvec::SmallVec;

use crate::arena::Handle;
use crate::boundaries::Voters;
use crate::key::Namespace;
use crate::node::NodeId;
use crate::plan::{Match, Vote};
use crate::tree::Tree;

impl Tree {
    /// Looks up a key; `limit_tokens` caps the boundary (rule M-3), `None` leaves it to the key.
    ///
    /// Cost: one comparison of the tokens, plus O(nodes on the path x components) when the tail refuses.
    #[must_use]
    pub fn match_(&self, namespace: &Namespace, tokens: &[u32], limit_tokens: Option<u64>) -> Match {
        let Some(&root) = self.roots.get(namespace) else {
            return self.nothing_known();
        };
        let page = u64::from(self.page_tokens);
        let offered = limit_tokens.unwrap_or(u64::MAX).min(tokens.len() as u64) / page * page;
        let (path, known) = self.walk(root, &tokens[..offered as usize]);
        let boundary = self.deepest_on_path(&path, Voters::All, known);
        let votes: Vec<Vote> = (0..self.components.len())
            .map(|component| self.vote(&path, component, boundary, known))
            .collect();
        let limiting = self.limiting_component(&votes, boundary, known);
        let reason = limiting.map_or("", |component| self.refusal(&path, component, votes[component], known));
        Match {
            boundary_tokens: u64::from(boundary) * page,
            path_tokens: u64::from(known) * page,
            limited_by: limiting,
            lost_tokens: u64::from(known - boundary) * page,
            reason,
            branch_tokens: u64::from(self.branch_point(&votes, boundary, known)) * page,
            node: self.nodes.handle(self.node_at(root, &path, boundary)),
            path_node: self.nodes.handle(path.last().copied().unwrap_or(root)),
            votes,
        }
    }

    /// The match of a namespace that the tree has never seen.
    fn nothing_known(&self) -> Match {
        Match {
            boundary_tokens: 0,
            path_tokens: 0,
            votes: vec![Vote { boundary_tokens: 0, without_tokens: 0 }; self.components.len()],
            limited_by: None,
            lost_tokens: 0,
            reason: "",
            branch_tokens: 0,
            node: Handle::NONE,
            path_node: Handle::NONE,
        }
    }

    /// Nodes below `node` along a key of whole pages, from the first one, and how many pages of it they know.
    pub(crate) fn walk(&self, node: NodeId, tokens: &[u32]) -> (SmallVec<[NodeId; 16]>, u32) {
        let page = self.page_tokens as usize;
        let mut path = SmallVec::new();
        let (mut node, mut rest, mut known) = (node, tokens, 0);
        while !rest.is_empty() {
            let Some((child, common)) = self.child_along(node, rest) else { break };
            path.push(child);
            known += common;
            rest = &rest[common as usize * page..];
            node = child;
            if common < self.nodes[child].pages {
                break;
            }
        }
        (path, known)
    }

    /// Deepest boundary on the path that all voters accept, in pages.
    fn deepest_on_path(&self, path: &[NodeId], voters: Voters, limit: u32) -> u32 {
        let inside = path.iter().rev().filter(|&&node| self.nodes[node].start < limit);
        inside
            .map(|&node| self.deepest_agreed(node, voters, limit))
            .find(|&boundary| boundary != 0)
            .unwrap_or(0)
    }

    /// What one component alone accepts, and what the others would accept without it (rule M-4).
    fn vote(&self, path: &[NodeId], component: usize, boundary: u32, known: u32) -> Vote {
        let (own, without) = if boundary == known {
            (boundary, boundary) // nothing was lost: nobody need be asked
        } else {
            let own = self.deepest_on_path(path, Voters::Only(component), known);
            (own, self.deepest_on_path(path, Voters::Without(component), known))
        };
        let page = u64::from(self.page_tokens);
        Vote { boundary_tokens: u64::from(own) * page, without_tokens: u64::from(without) * page }
    }

    /// The component without which most would have been won; else the one that accepts least (rule M-4).
    fn limiting_component(&self, votes: &[Vote], boundary: u32, known: u32) -> Option<usize> {
        if boundary == known {
            return None;
        }
        let most = votes.iter().map(|vote| vote.without_tokens).max()?;
        if most > u64::from(boundary) * u64::from(self.page_tokens) {
            return votes.iter().position(|vote| vote.without_tokens == most);
        }
        let least = votes.iter().map(|vote| vote.boundary_tokens).min()?;
        votes.iter().position(|vote| vote.boundary_tokens == least)
    }

    /// Why a component refuses the boundary that it cost: a value was evicted, or never was there.
    fn refusal(&self, path: &[NodeId], component: usize, vote: Vote, known: u32) -> &'static str {
        let page = u64::from(self.page_tokens);
        let wanted = if vote.without_tokens > vote.boundary_tokens {
            (vote.without_tokens / page) as u32
        } else {
            known
        };
        let first = self.first_page(component, wanted);
        let lost = path.iter().any(|&id| {
            let node = &self.nodes[id];
            node.end() > first && node.start < wanted && self.holding(id, component).lost
        });
        if lost { "evicted" } else { self.rule(component).refusal() }
    }

    /// Deepest boundary that keeping a window or checkpoint anew would open; 0 for none (rule M-5).
    fn branch_point(&self, votes: &[Vote], boundary: u32, known: u32) -> u32 {
        let closed = votes.iter().enumerate().filter(|&(component, _)| self.closed(component));
        let deepest = closed.map(|(_, vote)| vote.boundary_tokens / u64::from(self.page_tokens)).min();
        let deepest = deepest.map_or(known, |pages| pages as u32);
        if deepest > boundary { deepest } else { 0 }
    }

    /// Node in which a boundary of the path lies; the root for 0.
    fn node_at(&self, root: NodeId, path: &[NodeId], boundary: u32) -> NodeId {
        if boundary == 0 {
            return root;
        }
        path.iter().rev().copied().find(|&node| self.nodes[node].start < boundary).unwrap_or(root)
    }
}
