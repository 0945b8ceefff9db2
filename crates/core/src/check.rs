//! `check`: every invariant of the tree, found again by walking. Cost: O(everything).

use hashbrown::HashMap;

use crate::boundaries::Voters;
use crate::error::{Error, Result};
use crate::node::NodeId;
use crate::tree::{Counters, Tree};

fn broken(rule: &'static str, message: String) -> Error {
    Error::Integrity { rule, message }
}

impl Tree {
    /// Checks every invariant by walking the whole tree.
    ///
    /// # Errors
    /// The first contradiction, with the number of the rule that it breaks.
    pub fn check(&self) -> Result<()> {
        for (node, _) in self.nodes.iter() {
            self.check_topology(node)?;
            self.check_siblings(node)?;
            self.check_form(node)?;
            self.check_boundaries(node)?;
            self.check_candidates(node)?;
        }
        self.check_locks()?;
        self.check_slots()?;
        self.check_sessions()?;
        self.check_namespaces()?;
        self.check_counters()
    }

    /// An error that names the rule and the node.
    pub(crate) fn broken_node(&self, rule: &'static str, node: NodeId, message: &str) -> Error {
        let (here, handle) = (&self.nodes[node], self.nodes.handle(node).to_bits());
        broken(rule, format!("node {handle} at pages {}..{}: {message}", here.start, here.end()))
    }

    /// T-1, T-2, T-4: places follow on each other, children are found, nothing empty stays.
    fn check_topology(&self, node: NodeId) -> Result<()> {
        let here = &self.nodes[node];
        let Some(above) = here.parent else {
            let namespace = self.namespaces.get(&node);
            let registered = namespace.and_then(|space| self.roots.get(&space.name)) == Some(&node);
            if here.pages != 0 || !registered || here.root != Some(node) {
                return Err(self.broken_node("T-1", node, "a root has pages or is not registered"));
            }
            if here.children == 0 && here.leases == 0 {
                return Err(self.broken_node("T-4", node, "a root without children or leases stayed"));
            }
            return Ok(());
        };
        let parent = &self.nodes[above];
        if here.start != parent.end() || here.pages < 1 || here.root != parent.root {
            let message = format!("does not follow on its parent, which ends at {}", parent.end());
            return Err(self.broken_node("T-1", node, &message));
        }
        if here.tokens.len() != here.pages as usize * self.page_tokens as usize {
            return Err(self.broken_node("T-1", node, &format!("has {} tokens", here.tokens.len())));
        }
        if self.child_along(above, &here.tokens).map(|(child, _)| child) != Some(node) {
            return Err(self.broken_node("T-2", node, "is not found by its first page"));
        }
        if here.children == 0 && here.leases == 0 && self.held_end(node) < here.end() {
            return Err(self.broken_node("T-4", node, "ends in pages of which nothing is held"));
        }
        Ok(())
    }

    /// T-2: the links between siblings and the count of children agree.
    fn check_siblings(&self, node: NodeId) -> Result<()> {
        let mut count = 0;
        let mut before = None;
        for child in self.children_of(node) {
            if self.nodes[child].previous_sibling != before || self.nodes[child].parent != Some(node) {
                return Err(self.broken_node("T-2", child, "is not linked to its siblings and parent"));
            }
            before = Some(child);
            count += 1;
        }
        if count != self.nodes[node].children {
            let message = format!("counts {} children, has {count}", self.nodes[node].children);
            return Err(self.broken_node("T-2", node, &message));
        }
        Ok(())
    }

    /// T-3, T-7: runs lie inside their node, prefix-closed components hold all of it.
    fn check_form(&self, node: NodeId) -> Result<()> {
        let (start, end, pages) = (self.nodes[node].start, self.nodes[node].end(), self.nodes[node].pages);
        for (component, spec) in self.components.iter().enumerate() {
            let holding = self.holding(node, component);
            if !holding.is_empty() && (holding.first < start || holding.end() > end) {
                let message = format!("'{}' holds pages {}..{}", spec.name, holding.first, holding.end());
                return Err(self.broken_node("T-3", node, &message));
            }
            if self.closed(component) && holding.count() != pages {
                let message = format!("'{}' holds {} of {pages} pages", spec.name, holding.count());
                return Err(self.broken_node("T-7", node, &message));
            }
        }
        Ok(())
    }

    /// E-1: the agreed boundaries kept with the node are those that the rules give.
    fn check_boundaries(&self, node: NodeId) -> Result<()> {
        let here = &self.nodes[node];
        let deepest = if here.pages == 0 { 0 } else { self.deepest_agreed(node, Voters::All, here.end()) };
        let shallowest = if deepest == 0 { 0 } else { self.shallowest_agreed(node) };
        if (shallowest, deepest) != (here.shallowest, here.deepest) {
            let message =
                format!("keeps {}..{}, finds {shallowest}..{deepest}", here.shallowest, here.deepest);
            return Err(self.broken_node("E-1", node, &message));
        }
        let below = self.shallowest_below(node);
        if below != here.below || !self.boundaries_are_counted(node) {
            let message = format!("keeps {} as shallowest below, finds {below}", here.below);
            return Err(self.broken_node("E-1", node, &message));
        }
        Ok(())
    }

    /// E-6: what may leave is a candidate, where it belongs, and nothing else is.
    fn check_candidates(&self, node: NodeId) -> Result<()> {
        for (component, spec) in self.components.iter().enumerate() {
            let pages = self.evictable(node, component);
            let wanted = (pages.all() != 0).then(|| self.key(node, component, pages));
            let kept = self.pools[component].candidates.key(node);
            if wanted != kept {
                let message = format!("'{}' {pages:?} with candidate {kept:?}, not {wanted:?}", spec.name);
                return Err(self.broken_node("E-6", node, &message));
            }
        }
        Ok(())
    }

    /// L-2, L-4: locks are those of the leases that are out.
    fn check_locks(&self) -> Result<()> {
        let mut locks: HashMap<(NodeId, usize, u32), u32> = HashMap::default();
        let mut ends: HashMap<NodeId, u32> = HashMap::default();
        for (_, record) in self.leases.iter() {
            *ends.entry(record.node).or_default() += 1;
            for component in (0..record.protects.len()).filter(|&component| record.protects[component]) {
                let first = self.first_page(component, record.boundary);
                for node in self.path_up(record.node).take_while(|&node| self.nodes[node].end() > first) {
                    *locks.entry((node, component, first.max(self.nodes[node].start))).or_default() += 1;
                }
            }
        }
        let mut kept: HashMap<(NodeId, usize, u32), u32> = HashMap::default();
        for (node, here) in self.nodes.iter() {
            let ending = ends.get(&node).copied().unwrap_or(0);
            if here.leases != ending {
                let message = format!("counts {} leases, {ending} end here", here.leases);
                return Err(self.broken_node("L-2", node, &message));
            }
            for component in 0..self.components.len() {
                let here = self.holding(node, component).locks.iter();
                kept.extend(here.map(|(page, count)| ((node, component, page), count)));
            }
        }
        if kept != locks {
            return Err(broken("L-2", format!("locks {kept:?} are kept, {locks:?} are leased")));
        }
        Ok(())
    }

    /// T-8: a slot is held once.
    fn check_slots(&self) -> Result<()> {
        for (component, spec) in self.components.iter().enumerate() {
            let mut holders: HashMap<i32, NodeId> = HashMap::default();
            for (node, _) in self.nodes.iter() {
                for &slot in &*self.holding(node, component).slots {
                    if holders.insert(slot, node).is_some() {
                        let message = format!("component '{}' holds slots [{slot}] twice", spec.name);
                        return Err(broken("T-8", message));
                    }
                }
            }
        }
        Ok(())
    }

    /// L-5: the counters are what walking finds.
    fn check_counters(&self) -> Result<()> {
        for (component, spec) in self.components.iter().enumerate() {
            let pool = &self.pools[component];
            let mut found = Counters::default();
            let mut candidates = 0;
            for (node, _) in self.nodes.iter() {
                let dead = self.dead_pages(node, component);
                found.held += u64::from(self.holding(node, component).count());
                found.leased += u64::from(self.holding(node, component).locked_pages());
                found.dead += u64::from(dead.0 + dead.1);
                candidates += usize::from(self.evictable(node, component).all() != 0);
            }
            if found != pool.counters {
                return Err(broken("L-5", format!("'{}': {:?}, found {found:?}", spec.name, pool.counters)));
            }
            if candidates != pool.candidates.len() {
                let kept = pool.candidates.len();
                return Err(broken(
                    "E-6",
                    format!("'{}': {candidates} candidates, {kept} queued", spec.name),
                ));
            }
        }
        let pages: u64 = self.nodes.iter().map(|(_, node)| u64::from(node.pages)).sum();
        if pages != self.path_pages {
            return Err(broken("T-1", format!("counts {} pages of path, has {pages}", self.path_pages)));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::node::{Node, NodeId};
    use crate::{Component, Error, GivenRun, Handle, Namespace, Rule, Run, Settings, Tree};

    /// Two leased paths that share a node, and one that is not leased.
    fn tree() -> Tree {
        let window = Rule::Window { lookback_tokens: 1 };
        let components = [("full", Rule::Full), ("swa", window)];
        let components = components.map(|(name, rule)| Component { name: name.to_owned(), rule }).to_vec();
        let mut tree = Tree::new(components, Settings::default()).expect("good settings");
        let space = Namespace::default();
        for (tokens, slot) in [([1, 2, 3], 0), ([1, 2, 4], 3), ([5, 6, 7], 6)] {
            let root = tree.lease(&space, 0, Handle::NONE).expect("the empty prefix").handle;
            let run = |first_page: i64, count| GivenRun { first_page, slots: (slot..slot + count).collect() };
            let values = vec![("full".to_owned(), vec![run(0, 3)]), ("swa".to_owned(), vec![run(1, 2)])];
            let lease = tree.insert(root, &tokens, values, true).expect("good values").lease;
            if tokens[0] == 5 {
                tree.release(lease.expect("it moved").handle).expect("a lease that is out");
            }
        }
        tree.check().expect("no contradiction");
        tree
    }

    /// Rule that `check` finds broken after a damage; the node given is the leaf that is not leased.
    fn broken_rule(damage: impl FnOnce(&mut Tree, NodeId)) -> &'static str {
        let mut tree = tree();
        let free = tree.nodes.iter().find(|(_, node)| node.pages > 0 && node.children + node.leases == 0);
        let free = free.expect("a leaf is free").0;
        damage(&mut tree, free);
        match tree.check() {
            Err(Error::Integrity { rule, .. }) => rule,
            other => panic!("damage was not found: {other:?}"),
        }
    }

    fn leased(tree: &mut Tree) -> &mut Node {
        let leased = tree.nodes.iter().find(|(_, node)| node.leases > 0).expect("a node is leased").0;
        &mut tree.nodes[leased]
    }

    #[test]
    fn broken_topology_is_found() {
        assert_eq!(broken_rule(|tree, _| tree.path_pages += 1), "T-1");
        assert_eq!(broken_rule(|tree, leaf| tree.nodes[leaf].start += 1), "T-1");
        assert_eq!(broken_rule(|tree, leaf| tree.nodes[leaf].tokens = Run::empty()), "T-1");
        assert_eq!(broken_rule(|tree, leaf| tree.unlink_child(leaf)), "T-2");
        assert_eq!(broken_rule(|tree, leaf| tree.holding_mut(leaf, 1).first = 9), "T-3");
        assert_eq!(broken_rule(|tree, leaf| tree.holding_mut(leaf, 0).slots = Run::empty()), "T-7");
        assert_eq!(broken_rule(|tree, leaf| tree.holding_mut(leaf, 0).slots = [0, 1, 2][..].into()), "T-8");
    }

    #[test]
    fn broken_liveness_is_found() {
        assert_eq!(broken_rule(|tree, leaf| tree.nodes[leaf].deepest -= 1), "E-1");
        assert_eq!(broken_rule(|tree, leaf| tree.pools[0].candidates.remove(leaf)), "E-6");
        assert_eq!(broken_rule(|tree, leaf| tree.holding_mut(leaf, 0).last_tick += 1), "E-6");
    }

    #[test]
    fn broken_locks_and_counters_are_found() {
        assert_eq!(broken_rule(|tree, leaf| tree.nodes[leaf].leases += 1), "E-6");
        assert_eq!(broken_rule(|tree, leaf| tree.holding_mut(leaf, 1).locks.add(2, 1)), "L-2");
        assert_eq!(broken_rule(|tree, _| leased(tree).leases += 1), "L-2");
        assert_eq!(broken_rule(|tree, _| tree.pools[1].counters.held += 1), "L-5");
        assert_eq!(broken_rule(|tree, _| tree.pools[0].counters.leased -= 1), "L-5");
    }
}
