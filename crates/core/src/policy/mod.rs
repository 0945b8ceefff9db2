//! Orders of eviction, one a file.
//!
//! A policy ranks a run of values when it is used and when what is known of it changes, not when something
//! must go; so ranks stay valid between and the tree can keep its candidates in order at all times (rule E-6).
//! The readable core comes to the same numbers bit for bit: policies use nothing but `+ - * /`, comparisons
//! and whole numbers, in the same order.

mod cost;
mod courses;
mod factory;
mod fates;
mod gaps;
mod gittins;
mod lfu;
mod lru;
mod priority;
mod session;
mod slru;

use std::fmt::Debug;

pub use cost::Cost;
pub use factory::make_policy;
pub use gittins::Gittins;
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
    /// From here on of policies that age, like `weight`: how often the run was on a path that was registered.
    pub passes: u32,
    /// How often by another session than the time before.
    pub parties: u32,
    /// The session that passed last, as the policy numbers them.
    pub session: u64,
    /// When it did.
    pub since_s: f64,
    /// Chance that it comes back.
    pub chance: f64,
    /// Share of its path that the session uses again when it does.
    pub share: f64,
    /// The gap that is expected.
    pub scale_s: f64,
    /// What kind of run it was when it was passed.
    pub kind: usize,
    /// Whether a lease needed it since.
    pub is_found: bool,
    /// Mean of the square roots of the run's own gaps.
    pub gap_root: f64,
    /// How many these are.
    pub gaps: f64,
}

/// A request of a session that was registered (rule P-8).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Passage {
    /// The session's handle.
    pub session: u64,
    /// Length of its path.
    pub pages: u32,
    /// How many pages of the session's path before are on it; `None` when that is not known, since nothing, or
    /// only pages on this path, is left of the path before.
    pub kept_pages: Option<u32>,
    /// Length of the answer, parts of a page too; where nobody tells it, the pages that the last insertion made,
    /// when the boundary is their end.
    pub answer_pages: f64,
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

    /// Whether ranks change as time goes by and sessions come back (rules P-7, P-8).
    fn ages(&self) -> bool {
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

    /// Tells the time to a policy that ages.
    fn set_time(&mut self, _now_s: f64) {}

    /// Tells a policy that ages that a session came back; `passed` follows for every run on its path.
    fn registered(&mut self, _passage: &Passage) {}

    /// Tells a policy that ages of a run on the path registered just now; it is asked its rank then.
    fn passed(&mut self, _usage: &mut Usage) {}

    /// Tells a policy that ages of a run that a lease needs, before it is touched.
    fn found(&mut self, _usage: &mut Usage) {}

    /// Tells a policy that ages of a run that no session refers to any more.
    fn left(&mut self, _usage: &mut Usage) {}

    /// Tells a policy that ages that it was told of all runs of the path.
    fn settled(&mut self) {}

    /// Tells a policy that ages that a session was closed.
    fn closed(&mut self, _session: u64) {}
}
