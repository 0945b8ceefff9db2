//! What becomes of runs of values, by kind, of one component.
//!
//! Pages that were counted since the last settling are whole numbers and kept apart, and no answer depends on
//! them before: so the order in which runs are told does not matter.

use super::courses::{CHANCE_MAX, KEPT};

/// Passes told apart, with none; more count as the most. Paths shorter than the one before have their own.
const PASSES: usize = 4;
/// What several sessions passed.
pub(super) const SHARED: usize = 2 * PASSES;
const KINDS: usize = SHARED + 1;
/// Chance to be used again while nothing is known: of what nobody passed, of what one session passed and left,
/// of what several did.
const NEW_CHANCE: f64 = 0.5;
const LEFT_CHANCE: f64 = 0.1;
const SHARED_CHANCE: f64 = 0.9;
pub(super) const KEPT_SHARE: f64 = 0.8;

/// Kind of what one session passed so often, 0 for what nobody did.
pub(super) fn kind_of(passes: u32, is_shorter: bool) -> usize {
    (passes as usize).min(PASSES - 1) + if is_shorter { PASSES } else { 0 }
}

/// Pages that were used again, of those seen.
#[derive(Clone, Copy, Debug)]
struct Odds {
    returned: f64,
    seen: f64,
    new_returned: f64,
    new_seen: f64,
    value: f64,
}

impl Odds {
    fn new(value: f64) -> Self {
        Self { returned: 0.0, seen: 0.0, new_returned: 0.0, new_seen: 0.0, value }
    }

    fn settle(&mut self) {
        self.returned += self.new_returned;
        self.seen = (self.seen + self.new_seen).max(self.returned);
        (self.new_returned, self.new_seen) = (0.0, 0.0);
    }

    fn believe(&mut self, prior: f64, strength: f64) {
        self.value = ((self.returned + strength * prior) / (self.seen + strength)).min(CHANCE_MAX);
    }

    fn forget(&mut self) {
        self.returned *= KEPT;
        self.seen *= KEPT;
    }
}

/// Counts of one component.
#[derive(Clone, Debug)]
pub(super) struct Fates {
    /// Of what no session refers to, what was used again.
    left: [Odds; KINDS],
    /// Of what a session referred to that came back, what it used again.
    kept: [Odds; PASSES],
    /// Share of all that was.
    kept_share: f64,
}

impl Fates {
    pub(super) fn new() -> Self {
        let mut left = [Odds::new(LEFT_CHANCE); KINDS];
        (left[0], left[SHARED]) = (Odds::new(NEW_CHANCE), Odds::new(SHARED_CHANCE));
        Self { left, kept: [Odds::new(KEPT_SHARE); PASSES], kept_share: KEPT_SHARE }
    }

    /// Pages are there that no session refers to; fewer when it was too early to say so.
    pub(super) fn count_left(&mut self, kind: usize, pages: f64) {
        self.left[kind].new_seen += pages;
    }

    /// Such pages were used again.
    pub(super) fn count_return(&mut self, kind: usize, pages: f64) {
        self.left[kind].new_returned += pages;
    }

    /// A session came back to pages, or passed them by.
    pub(super) fn count_kept(&mut self, kind: usize, pages: f64, is_kept: bool) {
        let odds = &mut self.kept[kind % PASSES];
        odds.new_seen += pages;
        odds.new_returned += if is_kept { pages } else { 0.0 };
    }

    /// Chance that pages which no session refers to are used again.
    pub(super) fn left_chance(&self, kind: usize) -> f64 {
        self.left[kind].value
    }

    /// How much likelier than others pages passed so often are used again by a session that comes back.
    pub(super) fn kept_factor(&self, kind: usize) -> f64 {
        self.kept[kind % PASSES].value / self.kept_share
    }

    /// What was counted counts from now on. What is believed beforehand counts as much as `strength` pages.
    pub(super) fn settle(&mut self, strength: f64) {
        let of_left = settle_all(&mut self.left, SHARED, LEFT_CHANCE, strength);
        for (kind, odds) in self.left.iter_mut().enumerate() {
            let prior = match kind {
                0 => NEW_CHANCE,
                SHARED => SHARED_CHANCE,
                _ => of_left,
            };
            odds.believe(prior, strength);
        }
        self.kept_share = settle_all(&mut self.kept, PASSES, KEPT_SHARE, strength);
        for odds in &mut self.kept {
            odds.believe(self.kept_share, strength);
        }
    }

    /// The past counts for less.
    pub(super) fn forget(&mut self) {
        self.left.iter_mut().chain(&mut self.kept).for_each(Odds::forget);
    }
}

/// Settles all kinds; returns what is believed together of those before `end` that were passed.
fn settle_all(kinds: &mut [Odds], end: usize, prior: f64, strength: f64) -> f64 {
    let mut all = Odds::new(prior);
    for odds in kinds.iter_mut() {
        odds.settle();
    }
    for odds in &kinds[1..end] {
        all.returned += odds.returned;
        all.seen += odds.seen;
    }
    all.believe(prior, strength);
    all.value
}
