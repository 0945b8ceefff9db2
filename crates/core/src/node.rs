//! Nodes of the tree and what they hold.
//!
//! A node is a run of pages with one parent. What one component holds of it, in one tier, is one run of
//! pages anywhere inside the node (rule T-3). All places are absolute pages, counted from the start of the
//! prefix, so that splitting a node moves nothing.

use crate::arena::Id;
use crate::places::Places;
use crate::run::Run;

pub(crate) type NodeId = Id;

/// A run of pages on a path. Siblings are linked, so that a node needs no memory for its children.
#[derive(Debug)]
pub(crate) struct Node {
    /// Token ids of its pages.
    pub(crate) tokens: Run<u32>,
    /// Order of creation; of halves of a split, the deeper one is the older (rule T-5).
    pub(crate) born: u64,
    /// Root of its path; itself for a root.
    pub(crate) root: Option<NodeId>,
    pub(crate) parent: Option<NodeId>,
    pub(crate) first_child: Option<NodeId>,
    pub(crate) next_sibling: Option<NodeId>,
    pub(crate) previous_sibling: Option<NodeId>,
    pub(crate) children: u32,
    /// Whether the tree's index of children knows those of this node.
    pub(crate) indexed: bool,
    /// Pages before this node.
    pub(crate) start: u32,
    pub(crate) pages: u32,
    /// Leases whose boundary is the end of this node.
    pub(crate) leases: u32,
    /// Hull of the agreed boundaries inside the node, in pages; 0 for none.
    pub(crate) shallowest: u32,
    pub(crate) deepest: u32,
    /// Shallowest agreed boundary below the node, in pages; 0 for none.
    pub(crate) below: u32,
}

impl Node {
    pub(crate) fn new(born: u64, root: Option<NodeId>, parent: Option<NodeId>, start: u32) -> Self {
        Self {
            tokens: Run::empty(),
            born,
            root,
            parent,
            first_child: None,
            next_sibling: None,
            previous_sibling: None,
            children: 0,
            indexed: false,
            start,
            pages: 0,
            leases: 0,
            shallowest: 0,
            deepest: 0,
            below: 0,
        }
    }

    /// Pages up to the end of this node.
    #[inline]
    pub(crate) fn end(&self) -> u32 {
        self.start + self.pages
    }

    /// Shallowest agreed boundary in or below the node; 0 for none.
    #[inline]
    pub(crate) fn first_boundary(&self) -> u32 {
        if self.shallowest != 0 { self.shallowest } else { self.below }
    }
}

/// What one component holds of one node in one tier.
#[derive(Debug)]
pub(crate) struct Holding {
    /// One slot a page.
    pub(crate) slots: Run<i32>,
    /// Tick of the last use; the rest of it is kept for policies that ask for it.
    pub(crate) last_tick: u64,
    /// Pages that leases protect (rule L-2).
    pub(crate) locks: Places,
    /// First page held; meaningless while there are no slots.
    pub(crate) first: u32,
    /// What the counters of the tree hold for it.
    pub(crate) leased_pages: u32,
    pub(crate) dead_pages: u32,
    /// Whether a value of it was evicted from this node.
    pub(crate) lost: bool,
}

impl Holding {
    pub(crate) fn new() -> Self {
        Self {
            slots: Run::empty(),
            last_tick: 0,
            locks: Places::default(),
            first: 0,
            leased_pages: 0,
            dead_pages: 0,
            lost: false,
        }
    }

    /// Pages held.
    #[inline]
    pub(crate) fn count(&self) -> u32 {
        self.slots.len() as u32
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// One past the last page held.
    #[inline]
    pub(crate) fn end(&self) -> u32 {
        self.first + self.count()
    }

    /// Pages held that a lease protects.
    #[inline]
    pub(crate) fn locked_pages(&self) -> u32 {
        match self.locks.first() {
            Some(page) if !self.is_empty() => self.end().saturating_sub(page.max(self.first)),
            _ => 0,
        }
    }
}
