//! What is held of one namespace, and evicting from one alone (rules L-5, E-8).

use std::collections::BTreeSet;
use std::sync::Arc;

use smallvec::{SmallVec, smallvec};

use crate::candidates::{Entry, Key};
use crate::error::{Error, Result};
use crate::key::Namespace;
use crate::node::NodeId;
use crate::plan::Freed;
use crate::tree::Tree;

/// A namespace of which the tree knows something.
#[derive(Debug)]
pub(crate) struct Space {
    pub(crate) name: Arc<Namespace>,
    /// Pages held, by component.
    pub(crate) held: SmallVec<[u64; 4]>,
    /// The candidates by component, each from the first time on that something was evicted from here alone.
    queues: Vec<Option<BTreeSet<Entry>>>,
}

impl Space {
    pub(crate) fn new(name: Arc<Namespace>, components: usize) -> Self {
        Self { name, held: smallvec![0; components], queues: Vec::new() }
    }

    pub(crate) fn queue(&self, component: usize) -> Option<&BTreeSet<Entry>> {
        self.queues.get(component)?.as_ref()
    }
}

impl Tree {
    /// Pages that a component holds of one namespace; 0 for one that the tree does not know.
    ///
    /// # Panics
    /// `component` is not an index of a component.
    #[must_use]
    pub fn held_pages(&self, component: usize, namespace: &Namespace) -> u64 {
        self.roots.get(namespace).map_or(0, |root| self.namespaces[root].held[component])
    }

    /// Frees up to `wanted` slots of a component, as `evict` does, but only of one namespace.
    ///
    /// Cost: that of `evict`; for the first time in a namespace O(candidates).
    ///
    /// # Panics
    /// `component` is not an index of a component.
    pub fn evict_within(&mut self, component: usize, wanted: u64, namespace: &Namespace) -> Freed {
        self.evict_from_first(component, wanted, |tree| {
            let root = *tree.roots.get(namespace)?;
            if tree.namespaces[&root].queue(component).is_none() {
                tree.start_queue(root, component);
            }
            let first = tree.namespaces[&root].queue(component)?.first()?;
            Some((first.node(), first.key()))
        })
    }

    fn start_queue(&mut self, root: NodeId, component: usize) {
        let queue = self.entries_of(root, component);
        let space = self.namespaces.get_mut(&root).expect("a root has a namespace");
        space.queues.resize_with(self.components.len(), || None);
        space.queues[component] = Some(queue);
        self.has_queues = true;
    }

    /// Adds a candidate, moves it to where its key belongs, or takes it out.
    #[inline]
    pub(crate) fn set_candidate(&mut self, node: NodeId, component: usize, key: Option<Key>) {
        if self.has_queues {
            self.set_in_queue(node, component, key);
        }
        let candidates = &mut self.pools[component].candidates;
        match key {
            Some(key) => candidates.set(node, key),
            None => candidates.remove(node),
        }
    }

    /// Does in the namespace's own queue, if it has one, what is about to be done among all candidates.
    fn set_in_queue(&mut self, node: NodeId, component: usize, key: Option<Key>) {
        let space = self.nodes[node].root.and_then(|root| self.namespaces.get_mut(&root));
        let Some(Some(queue)) = space.and_then(|space| space.queues.get_mut(component)) else { return };
        if let Some(before) = self.pools[component].candidates.key(node) {
            queue.remove(&Entry::new(before, node));
        }
        if let Some(key) = key {
            queue.insert(Entry::new(key, node));
        }
    }

    /// Counts pages that came to a node (rule L-5).
    pub(crate) fn count_came(&mut self, node: NodeId, component: usize, pages: u32) {
        self.pools[component].counters.held += u64::from(pages);
        *self.held_of(node, component) += u64::from(pages);
    }

    /// Counts pages that left a node (rule L-5).
    pub(crate) fn count_left(&mut self, node: NodeId, component: usize, pages: u32) {
        self.pools[component].counters.held -= u64::from(pages);
        *self.held_of(node, component) -= u64::from(pages);
    }

    /// L-5, E-8: what is counted of a namespace is what walking finds, and its own queues are complete.
    pub(crate) fn check_namespaces(&self) -> Result<()> {
        for (&root, space) in &self.namespaces {
            for (component, spec) in self.components.iter().enumerate() {
                let nodes = self.nodes.iter().filter(|(_, node)| node.root == Some(root));
                let found = nodes.map(|(node, _)| u64::from(self.holding(node, component).count())).sum();
                if space.held[component] != found {
                    let kept = space.held[component];
                    let message = format!("'{}': counts {kept} in {}, found {found}", spec.name, space.name);
                    return Err(Error::Integrity { rule: "L-5", message });
                }
                let Some(queue) = space.queue(component) else { continue };
                if *queue != self.entries_of(root, component) {
                    let message = format!("'{}': the queue of {} is not complete", spec.name, space.name);
                    return Err(Error::Integrity { rule: "E-8", message });
                }
            }
        }
        Ok(())
    }

    /// The candidates of a component in one namespace.
    fn entries_of(&self, root: NodeId, component: usize) -> BTreeSet<Entry> {
        let entries = self.pools[component].candidates.entries().copied();
        entries.filter(|entry| self.nodes[entry.node()].root == Some(root)).collect()
    }

    fn held_of(&mut self, node: NodeId, component: usize) -> &mut u64 {
        let root = self.nodes[node].root.expect("a node has a root");
        &mut self.namespaces.get_mut(&root).expect("a root has a namespace").held[component]
    }
}
