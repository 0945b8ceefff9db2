//! What only unimportant sessions used leaves first, by recency among equals.
//!
//! The order `priority` of SGLang's radix cache. The hint is the session's (rule S-1).

use super::{Policy, Usage};

/// The largest hint, then recency.
#[derive(Clone, Copy, Debug, Default)]
pub struct Priority;

impl Policy for Priority {
    fn text(&self) -> String {
        "priority".to_owned()
    }

    fn level(&self, usage: &Usage) -> u64 {
        u64::from(usage.priority)
    }

    fn rank(&self, usage: &Usage) -> f64 {
        usage.last_tick as f64
    }
}
