//! Nodes of the tree and what they hold.
//!
//! A node is a run of pages with one parent. What one component holds of it, in one tier, is one run of
//! pages anywhere inside the node (rule T-3). All places are absolute pages, counted from the start of the
//! prefix, so that splitting a node moves nothing.

use smallvec::SmallVec;

use crate::arena::Id;
use crate::policy::Usage;
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
    pub(crate) usage: Usage,
    pub(crate) locks: Locks,
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
            usage: Usage::default(),
            locks: Locks::default(),
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
}

/// How many leases protect a node from a page on, by that page, in order (rule L-2).
#[derive(Clone, Debug, Default)]
pub(crate) struct Locks(SmallVec<[(u32, u32); 2]>);

impl Locks {
    /// First protected page, or `None` when no lease protects anything here.
    #[inline]
    pub(crate) fn first(&self) -> Option<u32> {
        self.0.first().map(|&(page, _)| page)
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, u32)> {
        self.0.iter().copied()
    }

    pub(crate) fn add(&mut self, page: u32, count: u32) {
        match self.0.binary_search_by_key(&page, |&(first, _)| first) {
            Ok(index) => self.0[index].1 += count,
            Err(index) => self.0.insert(index, (page, count)),
        }
    }

    /// Takes one lock back.
    pub(crate) fn remove(&mut self, page: u32) {
        let found = self.0.binary_search_by_key(&page, |&(first, _)| first);
        let index = found.unwrap_or_else(|_| panic!("L-2: lock count of page {page} would be -1"));
        self.0[index].1 -= 1;
        if self.0[index].1 == 0 {
            self.0.remove(index);
        }
    }

    /// Cuts the locks of a node that is split at a page; returns those of the upper half.
    pub(crate) fn split(&mut self, at_page: u32) -> Self {
        let cut = self.0.partition_point(|&(first, _)| first < at_page);
        let upper: SmallVec<_> = self.0.drain(..cut).collect();
        let through: u32 = upper.iter().map(|&(_, count)| count).sum();
        if through != 0 {
            self.add(at_page, through);
        }
        Self(upper)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn locks(of: &[(u32, u32)]) -> Locks {
        Locks(SmallVec::from_slice(of))
    }

    #[test]
    fn a_split_cuts_locks_at_the_page() {
        let mut lower = locks(&[(2, 1), (4, 2), (7, 1)]);
        let upper = lower.split(5);
        assert_eq!(upper.0.as_slice(), [(2, 1), (4, 2)]);
        assert_eq!(lower.0.as_slice(), [(5, 3), (7, 1)]);
    }

    #[test]
    fn release_undoes_acquire_after_a_split() {
        let mut lower = locks(&[]);
        lower.add(3, 1);
        let mut upper = lower.split(6);
        upper.remove(3);
        lower.remove(6);
        assert!(upper.is_empty() && lower.is_empty());
    }

    #[test]
    #[should_panic(expected = "L-2")]
    fn a_count_below_zero_cannot_happen() {
        locks(&[(2, 1)]).remove(3);
    }
}
