//! What a policy remembers of sessions: how many came back, after how long, and where each one stands.

pub(super) const CHANCE_MAX: f64 = 0.999;
/// Share of what was learned that each refit keeps.
pub(super) const KEPT: f64 = 0.98;

/// How many came back of those seen, and `kept` what they used again; `pending` are those who should be back by now, and are not.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Chance {
    pub(super) returned: f64,
    pub(super) kept: f64,
    pub(super) seen: f64,
    pub(super) pending: f64,
}

impl Chance {
    /// The chance, with a prior that counts as much as a weight of `strength`.
    pub(super) fn value(&self, prior: f64, strength: f64) -> f64 {
        let seen = self.seen + self.pending + strength;
        ((self.returned + strength * prior) / seen).min(CHANCE_MAX)
    }

    /// What is used again by those who come back, of what they had.
    pub(super) fn share(&self, prior: f64, strength: f64) -> f64 {
        (self.kept + strength * prior) / (self.returned + strength)
    }

    /// The past counts for less.
    pub(super) fn forget(&mut self) {
        self.returned *= KEPT;
        self.kept *= KEPT;
        self.seen *= KEPT;
        self.pending = 0.0;
    }
}

/// A mean of square roots of gaps, so that single long ones do not rule it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Mean {
    pub(super) count: f64,
    pub(super) root: f64,
}

impl Mean {
    /// One more; the weight of those before is at most `most`.
    pub(super) fn add(&mut self, root: f64, most: f64) {
        self.count = (self.count + 1.0).min(most);
        self.root += (root - self.root) / self.count;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count == 0.0
    }
}

/// What is known of one session.
#[derive(Clone, Copy, Debug)]
pub(super) struct Course {
    /// Requests so far.
    pub(super) turns: u32,
    /// When the last one was registered.
    pub(super) last_s: f64,
    /// Mean of its gaps.
    pub(super) gaps: Mean,
    /// Pages of the last answer, and the mean of those before.
    pub(super) answer: f64,
    pub(super) answers: f64,
    /// Place of its chance.
    pub(super) turn: usize,
    pub(super) cell: usize,
    /// The gap that is expected.
    pub(super) scale_s: f64,
    /// What it counts for.
    pub(super) weight: f64,
    /// Length of its path.
    pub(super) pages: u32,
}

impl Default for Course {
    fn default() -> Self {
        Self {
            turns: 0,
            last_s: 0.0,
            gaps: Mean::default(),
            answer: 0.0,
            answers: 0.0,
            turn: 0,
            cell: 0,
            scale_s: 1.0,
            weight: 0.0,
            pages: 0,
        }
    }
}
