//! Results of the tree's operations: what was found, and what the owner of the slots must do now.
//!
//! Boundaries are counted in tokens, places inside a path in pages; components are named by their index.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::arena::Handle;
use crate::key::{Namespace, PageKey};
use crate::run::Run;

/// Where a value lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tier {
    /// Memory of the accelerator.
    Device = 0,
    /// Memory of the host.
    Host = 1,
    /// Outside of the process.
    Store = 2,
}

/// What one component said of a match (rule M-4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vote {
    /// Deepest boundary that is valid for this component alone.
    pub boundary_tokens: u64,
    /// The boundary that the match would have had if this component had no vote.
    pub without_tokens: u64,
}

/// Longest reusable prefix of a key, and why it is not longer (rules M-1 to M-5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Match {
    /// The agreed boundary, a multiple of the page; 0 for none.
    pub boundary_tokens: u64,
    /// How much of the key the tree knows, in whole pages, at most the limit offered.
    pub path_tokens: u64,
    /// One a component, in the order of the components.
    pub votes: Vec<Vote>,
    /// The component that kept the boundary above `path_tokens` away.
    pub limited_by: Option<usize>,
    /// `path_tokens - boundary_tokens`.
    pub lost_tokens: u64,
    /// Why that component refused; empty when nothing was lost.
    pub reason: &'static str,
    /// Where a kept window or checkpoint would let the next request start; 0 when already there.
    pub branch_tokens: u64,
    /// Node in which the boundary lies; for `lease`.
    pub node: Handle,
    /// Deepest node of the known path; for `claim` and `holdings`.
    pub path_node: Handle,
}

/// Consecutive pages of one component on a path: the runs of its nodes, shallow ones first.
///
/// The runs are shared with the tree and never change, whatever happens to the tree afterwards.
#[derive(Clone, Debug)]
pub struct HeldParts {
    /// Index of the first page, counted from the start of the prefix.
    pub first_page: u32,
    /// How many pages.
    pub pages: u32,
    /// The slots, one a page.
    pub parts: SmallVec<[Run<i32>; 1]>,
}

impl HeldParts {
    /// Index one past the last page.
    #[must_use]
    pub fn end_page(&self) -> u32 {
        self.first_page + self.pages
    }

    /// Pages with their slots, in order.
    pub fn slots(&self) -> impl Iterator<Item = (u32, i32)> {
        (self.first_page..).zip(self.parts.iter().flat_map(|part| part.iter().copied()))
    }
}

/// Protection of what one boundary needs, until released (rules L-1 to L-5).
#[derive(Clone, Debug)]
pub struct Lease {
    /// Stale once released.
    pub handle: Handle,
    /// The boundary that it protects.
    pub boundary_tokens: u64,
    /// Per component, the pages that its rule needs at the boundary.
    pub held: Vec<HeldParts>,
}

/// Pages that a caller offers to `insert`; places come from outside and are checked there.
#[derive(Clone, Debug)]
pub struct GivenRun {
    /// Index of the first page, counted from the start of the prefix.
    pub first_page: i64,
    /// One slot a page.
    pub slots: Run<i32>,
}

impl GivenRun {
    /// Index one past the last page.
    pub(crate) fn last(&self) -> i64 {
        self.first_page.saturating_add(self.slots.len() as i64)
    }
}

/// Consecutive pages and their slots, which may be shared with the tree and never change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Index of the first page, counted from the start of the prefix.
    pub first_page: u32,
    /// One slot a page.
    pub slots: Run<i32>,
}

/// Runs of one component in order; mostly one.
pub type Pieces = SmallVec<[Piece; 1]>;

impl Piece {
    /// Index one past the last page.
    #[must_use]
    pub fn end_page(&self) -> u32 {
        self.first_page + self.slots.len() as u32
    }
}

/// What became of the slots given to `insert` (rules N-1 to N-6).
#[derive(Clone, Debug)]
pub struct Insertion {
    /// End of the inserted path.
    pub boundary_tokens: u64,
    /// Pages of the path that the tree did not know.
    pub new_pages: u32,
    /// Per component, the pages now owned by the tree.
    pub adopted: Vec<Pieces>,
    /// Per component, the pages already held; their slots stay the caller's.
    pub duplicates: Vec<Pieces>,
    /// The lease at the end of the path when it was to move.
    pub lease: Option<Lease>,
}

/// Slots that left the tree; they belong to the caller now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Freed {
    /// Per component, in the order in which they left.
    pub slots: Vec<Vec<i32>>,
    /// Per component, how many of them no boundary could have used any more.
    pub dead_pages: Vec<u64>,
}

/// Whether a value came or left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// It came.
    Stored,
    /// It left.
    Removed,
}

/// Why a value left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Its turn had come.
    Evicted,
    /// No boundary could use it any more.
    Dead,
    /// The page that it lies on was evicted.
    PathEvicted,
    /// The tree was cleared.
    Cleared,
}

impl Reason {
    /// The word in events.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Evicted => "evicted",
            Self::Dead => "dead",
            Self::PathEvicted => "path evicted",
            Self::Cleared => "cleared",
        }
    }
}

/// A value came to or left a tier (rule V-1). In order, they rebuild what the tree holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// What happened.
    pub kind: EventKind,
    /// Index of the component.
    pub component: usize,
    /// Where.
    pub tier: Tier,
    /// Of the path.
    pub namespace: Arc<Namespace>,
    /// Index of the first page concerned.
    pub first_page: u32,
    /// Chained key of each page (rule K-4).
    pub page_keys: Vec<PageKey>,
    /// Key of the page before the first one, or the namespace's seed.
    pub parent_key: PageKey,
    /// Token ids of the pages when stored; empty when removed.
    pub tokens: Vec<u32>,
    /// Why it was removed; `None` when stored.
    pub reason: Option<Reason>,
}

/// Pages of one component in one tier: `held_pages` includes `leased_pages`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolStats {
    /// Where.
    pub tier: Tier,
    /// Pages held.
    pub held_pages: u64,
    /// Pages that a lease protects.
    pub leased_pages: u64,
    /// Pages that no boundary can use.
    pub dead_pages: u64,
}

/// Sizes of a tree, kept by counters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeStats {
    /// Nodes, roots included.
    pub nodes: usize,
    /// Leases that are out.
    pub leases: usize,
    /// Pages of all paths, each counted once.
    pub path_pages: u64,
    /// One a component.
    pub pools: Vec<PoolStats>,
    /// Sessions that are open.
    pub sessions: usize,
}
