//! Orders of eviction, one a file.
//!
//! A policy ranks a run of values when it is used, not when something must go; so ranks stay valid between
//! uses and the tree can keep its candidates in order at all times (rule E-6).

mod lru;

use std::fmt::Debug;

pub use lru::Lru;

/// How one run of values was used.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    /// Logical time of the last use; unique in its tree, but for halves of a split node.
    pub last_tick: u64,
    /// How often it was used.
    pub uses: u64,
    /// What the policy answered at the last use.
    pub rank: f64,
}

/// Ranks runs of values; the lowest rank leaves first, ties fall to the older tick.
pub trait Policy: Debug + Send + Sync {
    /// Its name in settings and reports.
    fn name(&self) -> &'static str;

    /// Rank of a run that was used just now; `usage` already counts this use.
    fn rank(&self, usage: &Usage) -> f64;
}
