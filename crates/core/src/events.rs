//! Events: in order, they tell what came and what left (rule V-1).

use std::sync::Arc;

use crate::key::{PageKey, page_keys};
use crate::node::NodeId;
use crate::plan::{Event, EventKind, Reason};
use crate::tree::Tree;

impl Tree {
    /// A component got the pages `[first, end)` of a node.
    pub(crate) fn record_stored(&mut self, node: NodeId, component: usize, first: u32, end: u32) {
        if !self.record_events {
            return;
        }
        let (here, page) = (&self.nodes[node], self.page_tokens as usize);
        let (begin, stop) = ((first - here.start) as usize, (end - here.start) as usize);
        let tokens = here.tokens[begin * page..stop * page].to_vec();
        self.append(node, component, first, end, EventKind::Stored, None, tokens);
    }

    /// A component lost the pages `[first, end)` of a node.
    pub(crate) fn record_removed(
        &mut self,
        node: NodeId,
        component: usize,
        first: u32,
        end: u32,
        reason: Reason,
    ) {
        if self.record_events && first < end {
            self.append(node, component, first, end, EventKind::Removed, Some(reason), Vec::new());
        }
    }

    /// Writes one event down.
    fn append(
        &mut self,
        node: NodeId,
        component: usize,
        first: u32,
        end: u32,
        kind: EventKind,
        reason: Option<Reason>,
        tokens: Vec<u32>,
    ) {
        self.hash_path(node);
        let here = &self.nodes[node];
        let (begin, stop) = ((first - here.start) as usize, (end - here.start) as usize);
        let keys = &self.page_keys[&node];
        let page_keys = keys[begin..stop].to_vec();
        let parent_key = if begin > 0 { keys[begin - 1] } else { self.key_before(node) };
        let root = here.root.expect("a node has a root");
        let namespace = Arc::clone(&self.namespaces[&root].name);
        let tier = self.tier;
        self.events.push(Event {
            kind,
            component,
            tier,
            namespace,
            first_page: first,
            page_keys,
            parent_key,
            tokens,
            reason,
        });
    }

    /// Makes sure that the keys of a node and of its ancestors are there; hashed once, kept with the node.
    fn hash_path(&mut self, node: NodeId) {
        let unhashed = |&id: &NodeId| {
            let known = self.page_keys.get(&id).map_or(0, Vec::len);
            known < self.nodes[id].pages as usize
        };
        let path: Vec<NodeId> = self.path_up(node).take_while(unhashed).collect();
        for &id in path.iter().rev() {
            let keys = page_keys(self.key_before(id), &self.nodes[id].tokens, self.page_tokens as usize);
            self.page_keys.insert(id, keys);
        }
    }

    /// Key of the page before the node's first one.
    fn key_before(&self, node: NodeId) -> PageKey {
        let parent = self.nodes[node].parent.expect("a node with pages has a parent");
        match self.page_keys.get(&parent).and_then(|keys| keys.last()) {
            Some(&key) => key,
            None => self.namespaces[&parent].name.seed(),
        }
    }
}
