//! Orders of eviction, one a file.
//!
//! A policy ranks a run of values when it is used and when what is known of it changes, not when something
//! must go; so ranks stay valid between and the tree can keep its candidates in order at all times (rule E-6).
//! The readable core comes to the same numbers bit for bit: policies use nothing but `+ - * /`, comparisons
//! and whole numbers, in the same order.

mod cost;
mod factory;
mod lfu;
mod lru;
mod priority;
mod session;
mod slru;

use std::fmt::Debug;

pub use cost::Cost;
pub use factory::make_policy;
pub use lfu::Lfu;
pub use lru::Lru;
pub use priority::Priority;
pub use session::Session;
pub use slru::Slru;

use crate::tree::Component;

/// What is known of one run of values: what one component holds of one node.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    /// Index of the component.
    pub component: u32,
    /// Logical time of the last use; unique in its tree, but for halves of a split node.
    pub last_tick: u64,
    /// How often it was used.
    pub uses: u32,
    /// What the policy answered when it was asked last.
    pub level: u64,
    /// The same, of the rank.
    pub rank: f64,
    /// A number of the policy's own, 0 at first; halves of a split node share it.
    pub weight: f64,
    /// Time of the last use, as the owner of the tree tells it (rule S-2).
    pub last_s: f64,
    /// Largest hint of the sessions that ever referred to the node (rule S-7).
    pub priority: u32,
    /// When a session that gave a hint is expected next; in the past where none is.
    pub return_s: f64,
    /// How many sessions refer to a page of the run (rule S-3).
    pub sessions: u32,
    /// Place of the node at the last use, half-open.
    pub start_page: u32,
    /// End of the node at the last use.
    pub end_page: u32,
    /// Nodes right below the node at the last use.
    pub children: u32,
}

/// Ranks runs of values: the lowest level leaves first, then the lowest rank, then the older tick.
///
/// Levels and ranks are compared within one component of one tree only. A policy belongs to one tree.
pub trait Policy: Debug + Send + Sync {
    /// What `make_policy` makes the same policy from.
    fn text(&self) -> String;

    /// Whether the rank is the tick of the last use, and the level 0: nothing else is kept for such a policy,
    /// and it is not asked.
    fn is_recency(&self) -> bool {
        false
    }

    /// Tells the components of the tree, once, before anything else.
    fn bind(&mut self, _components: &[Component]) {}

    /// A run was used; `usage` counts this use already. What a policy learns, it learns here.
    ///
    /// The gaps are those since the use before; since the beginning for the first one.
    fn touch(&mut self, _usage: &mut Usage, _gap_ticks: u64, _gap_s: f64) {}

    /// What is compared before the rank.
    fn level(&self, _usage: &Usage) -> u64 {
        0
    }

    /// Rank of a run that was used just now, or of which something else changed.
    fn rank(&self, usage: &Usage) -> f64;

    /// Asked once after each rank, when the run is the next to leave; more than its rank spares it.
    fn rerank(&self, usage: &Usage, _now_s: f64, _clock: u64) -> f64 {
        usage.rank
    }
}
