//! `check`, the part about sessions: references and frontiers, found again by walking.

use hashbrown::HashMap;

use crate::arena::Id;
use crate::error::{Error, Result};
use crate::node::NodeId;
use crate::tree::Tree;

impl Tree {
    /// S-3, S-5, P-3: references are those of the open sessions, and the policy knows of them.
    pub(crate) fn check_sessions(&self) -> Result<()> {
        self.sessions.check()?;
        let mut wanted: HashMap<(NodeId, usize, u32), u32> = HashMap::default();
        let mut ends: HashMap<NodeId, Vec<Id>> = HashMap::default();
        for (id, session) in self.sessions.table.iter() {
            let Some(frontier) = session.frontier else { continue };
            ends.entry(frontier.node).or_default().push(id);
            for component in 0..self.components.len() {
                for (step, place) in self.referenced(frontier, component, None) {
                    *wanted.entry((step, component, place)).or_default() += 1;
                }
            }
        }
        let mut kept: HashMap<(NodeId, usize, u32), u32> = HashMap::default();
        for (node, _) in self.nodes.iter() {
            let mut here: Vec<Id> = self.sessions.at(node).collect();
            here.sort_unstable();
            if here != ends.remove(&node).unwrap_or_default() {
                return Err(self.broken_node("S-5", node, "has sessions at its end that are elsewhere"));
            }
            for component in 0..self.components.len() {
                let places = self.references(node, component).into_iter().flat_map(|places| places.iter());
                kept.extend(places.map(|(page, count)| ((node, component, page), count)));
                if !self.policy_is_recency && self.is_to_be_asked(node, component) {
                    return Err(self.broken_node("P-3", node, "changed since the policy was asked"));
                }
            }
        }
        if !ends.is_empty() {
            let message = format!("sessions end at nodes that are gone: {ends:?}");
            return Err(Error::Integrity { rule: "S-5", message });
        }
        if kept != wanted {
            let message = format!("references {kept:?} are kept, {wanted:?} are of open sessions");
            return Err(Error::Integrity { rule: "S-3", message });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::node::NodeId;
    use crate::policy::make_policy;
    use crate::sessions::Hints;
    use crate::{Component, Error, GivenRun, Handle, Namespace, Rule, Settings, Tree};

    /// A path of two nodes, each the end of a session.
    fn tree() -> Tree {
        let components = vec![Component { name: "full".to_owned(), rule: Rule::Full }];
        let policy = make_policy("session").expect("a known name");
        let mut tree =
            Tree::new(components, Settings { policy, ..Settings::default() }).expect("good settings");
        let space = Namespace::default();
        let mut lease = tree.lease(&space, 0, Handle::NONE).expect("the empty prefix").handle;
        for (name, place) in [("a", 0), ("b", 2)] {
            let run = GivenRun { first_page: place, slots: vec![place as i32, place as i32 + 1].into() };
            let values = vec![("full".to_owned(), vec![run])];
            let done = tree.insert(lease, &[1, 2], values, true).expect("good values");
            lease = done.lease.expect("it moved").handle;
            let session = tree.open_session(name, Hints::default()).expect("good hints");
            assert!(tree.register(session, lease, None).expect("a lease that is out"));
        }
        tree.release(lease).expect("a lease that is out");
        tree.check().expect("no contradiction");
        tree
    }

    /// Rule that `check` finds broken after a damage; the node given is the leaf.
    fn broken_rule(damage: impl FnOnce(&mut Tree, NodeId)) -> &'static str {
        let mut tree = tree();
        let leaf = tree.nodes.iter().find(|(_, node)| node.start == 2).expect("it is there").0;
        damage(&mut tree, leaf);
        match tree.check() {
            Err(Error::Integrity { rule, .. }) => rule,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn broken_references_and_frontiers_are_found() {
        assert_eq!(broken_rule(|tree, leaf| tree.cut_references(leaf, 0)), "P-3");
        let silent = |tree: &mut Tree, leaf| {
            tree.cut_references(leaf, 0);
            tree.known_mut(leaf, 0).usage.sessions = 0;
        };
        assert_eq!(broken_rule(silent), "S-3");
        assert_eq!(broken_rule(|tree, leaf| tree.known_mut(leaf, 0).stale = true), "P-3");
        let lift = |tree: &mut Tree, leaf| {
            let frontier = tree.sessions.at(leaf).next().and_then(|id| tree.sessions.table[id].frontier);
            let root = tree.nodes[leaf].root.expect("a node has one");
            tree.sessions.lift(frontier.expect("it has one").node, Some(root));
        };
        assert_eq!(broken_rule(lift), "S-3");
    }
}
