//! Children of a node: found by the tokens of their first page (rule T-2).
//!
//! Few children are looked through one by one: most nodes have one. Those of a node with many are in one
//! index of the whole tree, by a hash of the parent and the page. It owns no key: the tokens are read from
//! the child. The hash is seeded at random, since users choose the tokens.

use std::hash::{BuildHasher, Hash, Hasher};

use foldhash::fast::RandomState;
use hashbrown::HashTable;

use crate::arena::Arena;
use crate::node::{Node, NodeId};
use crate::tree::Tree;

/// A node with more children is put into the index.
const UNINDEXED_MAX: u32 = 4;
/// One with as few is taken out of it.
const INDEXED_MIN: u32 = 2;

#[derive(Debug, Default)]
pub(crate) struct ChildIndex {
    table: HashTable<NodeId>,
    state: RandomState,
}

impl ChildIndex {
    fn hash(&self, parent: NodeId, page: &[u32]) -> u64 {
        let mut hasher = self.state.build_hasher();
        parent.hash(&mut hasher);
        page.hash(&mut hasher);
        hasher.finish()
    }

    fn hash_of(&self, nodes: &Arena<Node>, child: NodeId, page_tokens: usize) -> u64 {
        let node = &nodes[child];
        self.hash(node.parent.expect("a child has a parent"), &node.tokens[..page_tokens])
    }

    fn insert(&mut self, nodes: &Arena<Node>, child: NodeId, page_tokens: usize) {
        let hash = self.hash_of(nodes, child, page_tokens);
        let mut table = std::mem::take(&mut self.table);
        table.insert_unique(hash, child, |&other| self.hash_of(nodes, other, page_tokens));
        self.table = table;
    }

    /// Puts `new` in the place of `child`, whose first page and parent it has; or takes `child` out.
    fn replace(&mut self, nodes: &Arena<Node>, child: NodeId, page_tokens: usize, new: Option<NodeId>) {
        let hash = self.hash_of(nodes, child, page_tokens);
        let entry = self.table.find_entry(hash, |&other| other == child);
        let mut entry = entry.expect("a child of an indexed node is in the index");
        match new {
            Some(new) => *entry.get_mut() = new,
            None => drop(entry.remove()),
        }
    }
}

impl Tree {
    /// Child of a node that begins with the first page of `tokens`, and how many whole pages it shares.
    #[inline(always)]
    pub(crate) fn child_along(&self, parent: NodeId, tokens: &[u32]) -> Option<(NodeId, u32)> {
        let above = &self.nodes[parent];
        if above.indexed {
            return self.indexed_child_along(parent, tokens);
        }
        let mut next = above.first_child;
        while let Some(child) = next {
            let here = &self.nodes[child];
            let pages = self.common_pages(here, tokens);
            if pages > 0 {
                return Some((child, pages));
            }
            next = here.next_sibling;
        }
        None
    }

    fn indexed_child_along(&self, parent: NodeId, tokens: &[u32]) -> Option<(NodeId, u32)> {
        let page = &tokens[..self.page_tokens as usize];
        let begins = |&child: &NodeId| {
            let node = &self.nodes[child];
            node.parent == Some(parent) && node.tokens[..page.len()] == *page
        };
        let child = *self.children.table.find(self.children.hash(parent, page), begins)?;
        Some((child, self.common_pages(&self.nodes[child], tokens)))
    }

    /// Children of a node, in no order that means anything.
    pub(crate) fn children_of(&self, parent: NodeId) -> impl Iterator<Item = NodeId> {
        let mut next = self.nodes[parent].first_child;
        std::iter::from_fn(move || {
            let here = next?;
            next = self.nodes[here].next_sibling;
            Some(here)
        })
    }

    /// Puts a node, which knows its parent and its tokens, among the parent's children.
    pub(crate) fn link_child(&mut self, parent: NodeId, child: NodeId) {
        let next = self.nodes[parent].first_child.replace(child);
        self.nodes[child].next_sibling = next;
        self.nodes[child].previous_sibling = None;
        if let Some(next) = next {
            self.nodes[next].previous_sibling = Some(child);
        }
        self.nodes[parent].children += 1;
        if self.nodes[parent].indexed {
            self.children.insert(&self.nodes, child, self.page_tokens as usize);
        } else if self.nodes[parent].children > UNINDEXED_MAX {
            self.index_children(parent);
        }
    }

    /// Takes a node out of its parent's children.
    pub(crate) fn unlink_child(&mut self, child: NodeId) {
        let parent = self.nodes[child].parent.expect("a child has a parent");
        let next = self.nodes[child].next_sibling.take();
        let previous = self.nodes[child].previous_sibling.take();
        self.set_siblings(parent, previous, next, next, previous);
        self.nodes[parent].children -= 1;
        if self.nodes[parent].indexed {
            self.children.replace(&self.nodes, child, self.page_tokens as usize, None);
            if self.nodes[parent].children <= INDEXED_MIN {
                self.forget_children(parent);
            }
        }
    }

    /// Puts `upper` in the place of `child`, as its new parent. The tokens are cut afterwards.
    pub(crate) fn replace_child(&mut self, child: NodeId, upper: NodeId) {
        let parent = self.nodes[child].parent.expect("a child has a parent");
        if self.nodes[parent].indexed {
            self.children.replace(&self.nodes, child, self.page_tokens as usize, Some(upper));
        }
        let next = self.nodes[child].next_sibling.take();
        let previous = self.nodes[child].previous_sibling.take();
        self.nodes[upper].next_sibling = next;
        self.nodes[upper].previous_sibling = previous;
        self.set_siblings(parent, previous, Some(upper), next, Some(upper));
        self.nodes[child].parent = Some(upper);
        self.nodes[upper].first_child = Some(child);
        self.nodes[upper].children = 1;
    }

    /// Makes `previous` (or the parent) lead to `forward`, and `next` lead back to `back`.
    fn set_siblings(
        &mut self,
        parent: NodeId,
        previous: Option<NodeId>,
        forward: Option<NodeId>,
        next: Option<NodeId>,
        back: Option<NodeId>,
    ) {
        match previous {
            Some(previous) => self.nodes[previous].next_sibling = forward,
            None => self.nodes[parent].first_child = forward,
        }
        if let Some(next) = next {
            self.nodes[next].previous_sibling = back;
        }
    }

    fn index_children(&mut self, parent: NodeId) {
        self.nodes[parent].indexed = true;
        self.count_boundaries(parent);
        let children: Vec<NodeId> = self.children_of(parent).collect();
        for child in children {
            self.children.insert(&self.nodes, child, self.page_tokens as usize);
        }
    }

    fn forget_children(&mut self, parent: NodeId) {
        self.nodes[parent].indexed = false;
        self.below_counts.forget(parent);
        let children: Vec<NodeId> = self.children_of(parent).collect();
        for child in children {
            self.children.replace(&self.nodes, child, self.page_tokens as usize, None);
        }
    }
}
