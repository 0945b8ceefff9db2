//! Least recently used leaves first.

use super::{Policy, Usage};

/// Plain recency: the rank is the tick of the last use.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lru;

impl Policy for Lru {
    fn text(&self) -> String {
        "lru".to_owned()
    }

    fn is_recency(&self) -> bool {
        true
    }

    fn rank(&self, usage: &Usage) -> f64 {
        usage.last_tick as f64
    }
}
