//! What no open session refers to leaves first.
//!
//! The published session-aware order: referenced or not, then the number of sessions, then another policy's
//! order. The number alone says both.

use super::{Passage, Policy, Usage};
use crate::tree::Component;

/// Levels of the base policy; higher ones count as the highest.
const BASE_LEVELS: u64 = 1 << 20;

/// Number of sessions, then the order of a base policy.
#[derive(Debug)]
pub struct Session {
    base: Box<dyn Policy>,
}

impl Session {
    /// Over any other order.
    #[must_use]
    pub fn new(base: Box<dyn Policy>) -> Self {
        Self { base }
    }
}

impl Policy for Session {
    fn text(&self) -> String {
        format!("session({})", self.base.text())
    }

    fn ages(&self) -> bool {
        self.base.ages()
    }

    fn bind(&mut self, components: &[Component]) {
        self.base.bind(components);
    }

    fn touch(&mut self, usage: &mut Usage, gap_ticks: u64, gap_s: f64) {
        self.base.touch(usage, gap_ticks, gap_s);
    }

    fn level(&self, usage: &Usage) -> u64 {
        u64::from(usage.sessions) * BASE_LEVELS + self.base.level(usage).min(BASE_LEVELS - 1)
    }

    fn rank(&self, usage: &Usage) -> f64 {
        self.base.rank(usage)
    }

    fn rerank(&self, usage: &Usage, now_s: f64, clock: u64) -> f64 {
        self.base.rerank(usage, now_s, clock)
    }

    fn set_time(&mut self, now_s: f64) {
        self.base.set_time(now_s);
    }

    fn registered(&mut self, passage: &Passage) {
        self.base.registered(passage);
    }

    fn passed(&mut self, usage: &mut Usage) {
        self.base.passed(usage);
    }

    fn found(&mut self, usage: &mut Usage) {
        self.base.found(usage);
    }

    fn left(&mut self, usage: &mut Usage) {
        self.base.left(usage);
    }

    fn settled(&mut self) {
        self.base.settled();
    }

    fn closed(&mut self, session: u64) {
        self.base.closed(session);
    }
}
