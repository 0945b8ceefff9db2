//! The shallowest agreed boundary below a node (rule E-1), kept up to date for every node.
//!
//! Where a node has few children they are asked. A node with many, whose children are in the index, keeps a
//! count of their shallowest boundaries instead: so that a change costs O(log children), and evicting a page
//! of one of many sessions over a shared prompt does not depend on how many there are.

use std::collections::BTreeMap;

use hashbrown::HashMap;

use crate::node::NodeId;
use crate::tree::Tree;

/// By node with many children: how many of them have which shallowest boundary; none with 0.
#[derive(Debug, Default)]
pub(crate) struct BoundaryCounts(HashMap<NodeId, BTreeMap<u32, u32>>);

impl BoundaryCounts {
    pub(crate) fn forget(&mut self, node: NodeId) {
        self.0.remove(&node);
    }

    /// One child's boundary was `before` and is `now`; returns the shallowest of all.
    fn change(&mut self, node: NodeId, before: u32, now: u32) -> u32 {
        let counts = self.0.get_mut(&node).expect("an indexed node has counts");
        if before != 0 {
            let count = counts.get_mut(&before).expect("a boundary is counted before it goes");
            *count -= 1;
            if *count == 0 {
                counts.remove(&before);
            }
        }
        if now != 0 {
            *counts.entry(now).or_default() += 1;
        }
        counts.first_key_value().map_or(0, |(&boundary, _)| boundary)
    }
}

impl Tree {
    /// Tells the ancestors that the shallowest boundary in or below `node` was `before`.
    pub(crate) fn carry_up(&mut self, node: NodeId, before: u32) {
        let (mut node, mut before) = (node, before);
        while let Some(above) = self.nodes[node].parent {
            let now = self.nodes[node].first_boundary();
            if now == before {
                return;
            }
            let above_before = self.nodes[above].first_boundary();
            let below = self.below_after(above, before, now);
            if below == self.nodes[above].below {
                return;
            }
            self.nodes[above].below = below;
            self.rank_node(above);
            (node, before) = (above, above_before);
        }
    }

    /// Shallowest boundary below `node`, now that one child's went from `before` to `now`.
    fn below_after(&mut self, node: NodeId, before: u32, now: u32) -> u32 {
        if self.nodes[node].indexed {
            return self.below_counts.change(node, before, now);
        }
        let below = self.nodes[node].below;
        if now != 0 && (below == 0 || now <= below) {
            now
        } else if below == before {
            self.shallowest_below(node)
        } else {
            below
        }
    }

    /// Shallowest agreed boundary of all children. Cost: O(children).
    pub(crate) fn shallowest_below(&self, node: NodeId) -> u32 {
        let boundaries = self.children_of(node).map(|child| self.nodes[child].first_boundary());
        boundaries.filter(|&boundary| boundary != 0).min().unwrap_or(0)
    }

    /// Starts counting the boundaries of a node's children.
    pub(crate) fn count_boundaries(&mut self, node: NodeId) {
        let counts = self.counted_boundaries(node);
        self.below_counts.0.insert(node, counts);
    }

    /// Whether the counts of a node are those that walking finds; for `check`.
    pub(crate) fn boundaries_are_counted(&self, node: NodeId) -> bool {
        match self.below_counts.0.get(&node) {
            Some(counts) => self.nodes[node].indexed && *counts == self.counted_boundaries(node),
            None => !self.nodes[node].indexed,
        }
    }

    fn counted_boundaries(&self, node: NodeId) -> BTreeMap<u32, u32> {
        let mut counts = BTreeMap::new();
        for child in self.children_of(node) {
            let boundary = self.nodes[child].first_boundary();
            if boundary != 0 {
                *counts.entry(boundary).or_default() += 1;
            }
        }
        counts
    }
}
