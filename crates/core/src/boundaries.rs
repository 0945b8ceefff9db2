//! Where reuse is valid inside one node: the components' votes.
//!
//! For one component and one node, the valid boundaries are an interval (those of its run, since
//! `first_page` never goes down) and the boundaries that need nothing. So the deepest boundary on which all
//! agree is found by letting the components push each other down until nobody objects.

use crate::node::NodeId;
use crate::tree::Tree;

/// Whose vote counts.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Voters {
    All,
    Only(usize),
    Without(usize),
}

impl Voters {
    #[inline]
    fn include(self, component: usize) -> bool {
        match self {
            Self::All => true,
            Self::Only(one) => component == one,
            Self::Without(one) => component != one,
        }
    }
}

impl Tree {
    /// Start of the gapless run of pages that ends with the node's own run, which is not empty.
    ///
    /// Looks no further back than the shallowest boundary of the node needs. Cost: O(nodes in the window).
    /// What a prefix-closed component holds goes back to the start (rule T-7).
    pub(crate) fn run_start(&self, node: NodeId, component: usize) -> u32 {
        if self.closed(component) {
            return 0;
        }
        let mut here = &self.nodes[node];
        let mut start = self.holding(node, component).first;
        if start != here.start {
            return start;
        }
        let enough = self.first_page(component, here.start + 1);
        while start == here.start && start > enough {
            let Some(above) = here.parent else { break };
            here = &self.nodes[above];
            let holding = self.holding(above, component);
            if holding.is_empty() || holding.end() != here.end() {
                break;
            }
            start = holding.first;
        }
        start
    }

    /// Deepest boundary at or below `limit` that one component accepts; the node's start or less for none.
    #[inline]
    fn deepest_for(&self, node: NodeId, component: usize, limit: u32) -> u32 {
        let rule = self.rule(component);
        let holding = self.holding(node, component);
        let best = rule.free_at_or_below(limit, self.page_tokens);
        if holding.is_empty() {
            return best;
        }
        let top = limit.min(holding.end());
        let reaches = top > best.max(holding.first)
            && rule.first_page(top, self.page_tokens) >= self.run_start(node, component);
        if reaches { top } else { best }
    }

    /// Deepest boundary in the node, at or below `limit`, that all voters accept; 0 for none.
    pub(crate) fn deepest_agreed(&self, node: NodeId, voters: Voters, limit: u32) -> u32 {
        let start = self.nodes[node].start;
        let mut boundary = limit.min(self.nodes[node].end());
        loop {
            let before = boundary;
            for component in (0..self.components.len()).filter(|&c| voters.include(c)) {
                boundary = self.deepest_for(node, component, boundary);
                if boundary <= start {
                    return 0;
                }
            }
            if boundary == before {
                return boundary;
            }
        }
    }

    /// Shallowest boundary at or above `least`, inside the node, that one component accepts.
    fn shallowest_for(&self, node: NodeId, component: usize, least: u32) -> Option<u32> {
        let rule = self.rule(component);
        let holding = self.holding(node, component);
        let free = rule.free_at_or_above(least, self.nodes[node].end(), self.page_tokens);
        if holding.is_empty() {
            return free;
        }
        let (mut low, mut high) = (least.max(holding.first + 1), holding.end());
        if low > high {
            return free;
        }
        let start = self.run_start(node, component);
        if rule.first_page(high, self.page_tokens) < start {
            return free;
        }
        while low < high && start > 0 {
            // first_page never goes down: the valid boundaries are the upper part
            let middle = low.midpoint(high);
            if rule.first_page(middle, self.page_tokens) >= start {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        Some(free.map_or(low, |free| free.min(low)))
    }

    /// Shallowest boundary in the node that all components accept; 0 for none.
    pub(crate) fn shallowest_agreed(&self, node: NodeId) -> u32 {
        let end = self.nodes[node].end();
        let mut boundary = self.nodes[node].start + 1;
        loop {
            let before = boundary;
            for component in 0..self.components.len() {
                match self.shallowest_for(node, component, boundary) {
                    Some(accepted) if accepted <= end => boundary = boundary.max(accepted),
                    _ => return 0,
                }
            }
            if boundary == before {
                return boundary;
            }
        }
    }
}
