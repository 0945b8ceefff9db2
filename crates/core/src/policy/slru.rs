//! What was used only once leaves first.
//!
//! After segmented LRU (Karedla, Love, Wherry: "Caching strategies to improve disk system performance", IEEE
//! Computer 27(3), 1994). The protected segment has no size of its own here: a scan passes through the other
//! one, and when that is empty the protected runs leave by recency.

use super::{Policy, Usage};
use crate::error::{Error, Result};

/// Recency in two segments.
#[derive(Clone, Copy, Debug)]
pub struct Slru {
    uses_protected: u64,
}

impl Default for Slru {
    fn default() -> Self {
        Self { uses_protected: Self::USES_PROTECTED }
    }
}

impl Slru {
    const USES_PROTECTED: u64 = 2;

    /// Runs are protected from so many uses on.
    ///
    /// # Errors
    /// Fewer than one use.
    pub fn new(uses_protected: u64) -> Result<Self> {
        if uses_protected < 1 {
            let message = format!("runs are protected from {uses_protected} uses on, it must be at least 1");
            return Err(Error::config(message));
        }
        Ok(Self { uses_protected })
    }
}

impl Policy for Slru {
    fn text(&self) -> String {
        match self.uses_protected {
            Self::USES_PROTECTED => "slru".to_owned(),
            uses => format!("slru({uses})"),
        }
    }

    fn level(&self, usage: &Usage) -> u64 {
        u64::from(u64::from(usage.uses) >= self.uses_protected)
    }

    fn rank(&self, usage: &Usage) -> f64 {
        usage.last_tick as f64
    }
}
