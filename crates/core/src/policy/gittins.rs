//! What promises the fewest returns for the room that it takes leaves first.
//!
//! The rank is Gittins' index: over all times to give up at, the best ratio of the chance to be used again
//! until then and the room-time spent until then. Of users who come back independently of each other, at one
//! price for room, keeping exactly what has an index above the price is optimal (Gittins: "Bandit processes and
//! dynamic allocation indices", JRSS B 41(2), 1979; Whittle: "Restless bandits", J. Applied Probability 25A,
//! 1988). In place of hits it counts what LHD calls hit density (Beckmann, Chen, Cidon: "LHD: improving cache
//! hit rate by maximizing hit density", NSDI 2018), over the best horizon, of sessions and not of objects.
//!
//! Two things are learned, from what sessions do, not from what the cache happens to hold:
//!
//! - **chance** that a session goes on, and share of its path that it uses again then: of those at the same
//!   turn that grew by as many pages (to a power of two) so many did; where little is known, of those at the
//!   same turn, of all. What a session passed often before it uses again more surely than what is new to it: a
//!   branch that was tried, a prompt of a side task.
//! - **gaps** in a unit of the session's own: its mean gap, drawn to that of others at the same turn while it
//!   is new, shifted by the length of its last answer as far as such lengths told gaps before.
//!
//! What several sessions passed is shared: its own gaps count. What no session refers to any more is
//! superseded, and has the chance of its kind, by component (`fates`): the path that a session left for a side
//! task comes back, that of the side task does not. Ranks change as time goes by, so they are found anew time
//! and again (rule P-7).

use std::collections::BTreeMap;

use hashbrown::HashMap;

use super::courses::{Chance, Course, KEPT, Mean};
use super::fates::{Fates, KEPT_SHARE, SHARED, kind_of};
use super::gaps::{Gaps, early_shape};
use super::{Passage, Policy, Usage};
use crate::rule::Rule;
use crate::tree::Component;

/// Last turn of each class of turns; one more class follows.
const TURN_ENDS: [u32; 7] = [1, 2, 3, 5, 9, 20, 60];
const TURNS: usize = TURN_ENDS.len() + 1;
const GROWTHS: usize = 32;
/// So many gaps make a mean; more forget the oldest.
const FOLLOWED: f64 = 10.0;
/// Of what nobody passed yet, of what several sessions did that go on.
const EARLY_CHANCE: f64 = 0.5;
const SHARED_CHANCE: f64 = 0.99;
/// What is believed beforehand counts as much as so many sessions of mean weight.
const CHANCE_STRENGTH: f64 = 5.0;
const GAPS_STRENGTH: f64 = 60.0;
const SLOPE_KEPT: f64 = 0.999;
const FAR_GAP: f64 = 4.0;
const GAP_MIN_S: f64 = 1e-3;
/// Registrations between two refits: least and most, but for very many sessions.
const REFITS: (f64, f64) = (8.0, 64.0);
const WEIGHTS_MAX: f64 = 2000.0;
const TOUCHES_MAX: f64 = 4096.0;

/// Touches of one component, and the sum of their nodes' pages.
#[derive(Clone, Copy, Debug, Default)]
struct Touched {
    holds_state: bool,
    count: f64,
    pages: f64,
}

/// The session whose path is being told, and its chance.
#[derive(Clone, Copy, Debug, Default)]
struct Passing {
    number: u64,
    /// Whether its path is shorter than the one before.
    is_shorter: bool,
    scale_s: f64,
    chance: f64,
    share: f64,
}

/// Returns that are to be expected for the room taken.
#[derive(Debug)]
pub struct Gittins {
    now_s: f64,
    /// By number, in the order in which they came first.
    courses: BTreeMap<u64, Course>,
    number_of: HashMap<u64, u64>,
    numbers: u64,
    everyone: Chance,
    by_turn: [Chance; TURNS],
    by_growth: Vec<Chance>,
    private_gaps: Gaps,
    superseded_gaps: Gaps,
    shared_gaps: Gaps,
    mean_by_turn: [Mean; TURNS],
    mean_of_all: Mean,
    mean_of_shared: Mean,
    covariance: f64,
    variance: f64,
    weights: f64,
    weight_sum: f64,
    until_refit: f64,
    registrations: f64,
    passing: Passing,
    fates: Vec<Fates>,
    touched: Vec<Touched>,
}

impl Default for Gittins {
    fn default() -> Self {
        let mut made = Self {
            now_s: 0.0,
            courses: BTreeMap::new(),
            number_of: HashMap::default(),
            numbers: 0,
            everyone: Chance::default(),
            by_turn: [Chance::default(); TURNS],
            by_growth: vec![Chance::default(); TURNS * GROWTHS],
            private_gaps: Gaps::new(),
            superseded_gaps: Gaps::new(),
            shared_gaps: Gaps::new(),
            mean_by_turn: [Mean::default(); TURNS],
            mean_of_all: Mean::default(),
            mean_of_shared: Mean::default(),
            covariance: 0.0,
            variance: 0.0,
            weights: 0.0,
            weight_sum: 0.0,
            until_refit: REFITS.0,
            registrations: 0.0,
            passing: Passing::default(),
            fates: Vec::new(),
            touched: Vec::new(),
        };
        made.fit();
        made
    }
}

impl Policy for Gittins {
    fn text(&self) -> String {
        "gittins".to_owned()
    }

    fn ages(&self) -> bool {
        true
    }

    fn bind(&mut self, components: &[Component]) {
        let untouched = |component: &Component| Touched {
            holds_state: matches!(component.rule, Rule::Checkpoint),
            ..Touched::default()
        };
        self.touched = components.iter().map(untouched).collect();
        self.fates = vec![Fates::new(); components.len()];
    }

    fn set_time(&mut self, now_s: f64) {
        self.now_s = now_s;
    }

    /// A session came back, or came first: its chance, its gaps, and what is expected now.
    fn registered(&mut self, passage: &Passage) {
        let number = *self.number_of.entry(passage.session).or_insert_with(|| {
            self.numbers += 1;
            self.numbers
        });
        let mut course = self.courses.get(&number).copied().unwrap_or_default();
        if course.turns > 0 {
            self.came_back(&mut course, passage);
        }
        let is_shorter = passage.pages < course.pages;
        let grown = passage.pages.saturating_sub(course.pages);
        course.turns += 1;
        course.turn = turn_class(course.turns);
        course.cell = course.turn * GROWTHS + octave(grown);
        (course.last_s, course.pages) = (self.now_s, passage.pages);
        course.answer = passage.answer_pages;
        course.scale_s = self.expected_s(&course);
        course.weight = f64::from(passage.pages.max(1)).sqrt();
        self.weigh(course.weight);
        let (chance, share) = (self.chance_of(&course), self.share_of(&course));
        self.passing = Passing { number, is_shorter, scale_s: course.scale_s, chance, share };
        self.courses.insert(number, course);
        self.registrations += 1.0;
        self.until_refit -= 1.0;
    }

    fn found(&mut self, usage: &mut Usage) {
        if usage.sessions == 0 && usage.uses > 0 {
            let (pages, kind) = (pages_of(usage), kind_in(usage));
            let fates = &mut self.fates[usage.component as usize];
            fates.count_return(kind, pages);
            fates.count_left(kind, pages); // until it is passed
            if usage.passes > 0 {
                self.learn_gap(usage);
            }
            usage.since_s = self.now_s;
        }
        usage.is_found = true;
    }

    fn passed(&mut self, usage: &mut Usage) {
        let (pages, kind) = (pages_of(usage), kind_in(usage));
        let fates = &mut self.fates[usage.component as usize];
        let is_left = usage.sessions == 0;
        if is_left && (usage.is_found || usage.passes == 0) {
            fates.count_left(kind, -pages);
        } else if is_left {
            fates.count_return(kind, pages);
        } else if usage.passes > 0 && usage.parties <= 1 {
            fates.count_kept(kind, pages, true);
        }
        if usage.passes > 0 && !(is_left && usage.is_found) {
            self.learn_gap(usage);
        }
        if usage.session != self.passing.number {
            usage.parties = usage.parties.saturating_add(1);
            usage.session = self.passing.number;
        }
        usage.passes = usage.passes.saturating_add(1);
        usage.since_s = self.now_s;
        (usage.kind, usage.is_found) = (kind_of(usage.passes, self.passing.is_shorter), false);
        (usage.chance, usage.share) = (self.passing.chance, self.passing.share);
        usage.scale_s = self.passing.scale_s;
    }

    fn left(&mut self, usage: &mut Usage) {
        if usage.passes > 0 {
            let (pages, kind) = (pages_of(usage), kind_in(usage));
            let fates = &mut self.fates[usage.component as usize];
            if usage.parties <= 1 {
                fates.count_kept(kind, pages, usage.is_found);
            }
            fates.count_left(kind, pages);
            usage.is_found = false;
        }
    }

    fn settled(&mut self) {
        if self.until_refit <= 0.0 {
            self.refit();
        }
        for (fates, touched) in self.fates.iter_mut().zip(&self.touched) {
            let pages = if touched.count > 0.0 { touched.pages / touched.count } else { 1.0 };
            fates.settle(CHANCE_STRENGTH * pages);
        }
    }

    fn closed(&mut self, session: u64) {
        let number = self.number_of.remove(&session);
        let Some(course) = number.and_then(|number| self.courses.remove(&number)) else { return };
        let gone = course.weight * self.private_gaps.back_by(self.waited(&course) / course.scale_s);
        for chance in self.chances_of(&course) {
            chance.seen += gone;
        }
    }

    fn touch(&mut self, usage: &mut Usage, _gap_ticks: u64, _gap_s: f64) {
        let touched = &mut self.touched[usage.component as usize];
        touched.count += 1.0;
        touched.pages += f64::from(usage.end_page - usage.start_page);
        if touched.count == TOUCHES_MAX {
            touched.count /= 2.0;
            touched.pages /= 2.0;
        }
        if usage.uses == 1 && usage.passes == 0 && usage.sessions == 0 {
            let (pages, kind) = (pages_of(usage), kind_in(usage));
            self.fates[usage.component as usize].count_left(kind, pages); // until it is passed
        }
    }

    fn rank(&self, usage: &Usage) -> f64 {
        self.promise(usage) * self.worth(usage)
    }
}

impl Gittins {
    /// Chance of being used again, over the time that the room is taken.
    fn promise(&self, usage: &Usage) -> f64 {
        let (fates, kind) = (&self.fates[usage.component as usize], kind_in(usage));
        let chance = if usage.sessions == 0 {
            fates.left_chance(kind)
        } else if usage.passes == 0 {
            EARLY_CHANCE
        } else if usage.parties > 1 {
            SHARED_CHANCE
        } else {
            usage.chance * (usage.share * fates.kept_factor(kind)).min(1.0)
        };
        let (gaps, scale_s, since_s) = if usage.passes == 0 {
            (&self.private_gaps, self.scale_of_all(), usage.last_s) // nobody told whose it is
        } else if usage.parties > 1 {
            (&self.shared_gaps, self.shared_scale_s(usage), usage.since_s)
        } else if usage.sessions > 0 {
            (&self.private_gaps, usage.scale_s, usage.since_s)
        } else {
            (&self.superseded_gaps, usage.scale_s, usage.since_s)
        };
        gaps.index(chance, (self.now_s - since_s).max(0.0) / scale_s) / scale_s
    }

    /// Learns how long it took until a run was used again.
    fn learn_gap(&mut self, usage: &mut Usage) {
        let gap_s = (self.now_s - usage.since_s).max(GAP_MIN_S);
        let weight = pages_of(usage).sqrt();
        if usage.parties > 1 {
            self.shared_gaps.add(gap_s / self.shared_scale_s(usage), weight);
            self.mean_of_shared.add(gap_s.sqrt(), FOLLOWED * FOLLOWED);
        } else if usage.sessions == 0 {
            self.superseded_gaps.add(gap_s / usage.scale_s, weight);
        }
        usage.gaps = (usage.gaps + 1.0).min(FOLLOWED);
        usage.gap_root += (gap_s.sqrt() - usage.gap_root) / usage.gaps;
    }

    /// Work at stake, from 0 to 2, 1 for the mean: what is computed again when a state is gone.
    fn worth(&self, usage: &Usage) -> f64 {
        let Touched { holds_state, count, pages } = self.touched[usage.component as usize];
        if !holds_state || pages == 0.0 {
            return 1.0;
        }
        let mine = f64::from(usage.end_page - usage.start_page);
        2.0 * mine / (mine + pages / count)
    }

    /// Counts the return, for the share of the former path that is used again.
    fn came_back(&mut self, course: &mut Course, passage: &Passage) {
        let gap_s = (self.now_s - course.last_s).max(GAP_MIN_S);
        let used = passage.kept_pages.unwrap_or_else(|| course.pages.min(passage.pages));
        let share = if course.pages > 0 { f64::from(used) / f64::from(course.pages) } else { 0.0 };
        let kept = course.weight * share;
        for chance in self.chances_of(course) {
            chance.returned += course.weight;
            chance.kept += kept;
            chance.seen += course.weight;
        }
        self.private_gaps.add(gap_s / course.scale_s, kept);
        if !course.gaps.is_empty() {
            let mean_s = (course.gaps.root * course.gaps.root).max(GAP_MIN_S);
            let off_s = (gap_s - mean_s).max(-FAR_GAP * mean_s).min(FAR_GAP * mean_s);
            let longer = course.answer - course.answers;
            self.covariance = SLOPE_KEPT * self.covariance + off_s * longer / mean_s;
            self.variance = SLOPE_KEPT * self.variance + longer * longer / mean_s;
        }
        let root = gap_s.sqrt();
        course.gaps.add(root, FOLLOWED);
        course.answers += (course.answer - course.answers) / course.gaps.count;
        self.mean_by_turn[course.turn].add(root, FOLLOWED * FOLLOWED);
        self.mean_of_all.add(root, FOLLOWED * FOLLOWED);
    }

    /// Where a session is counted.
    fn chances_of(&mut self, course: &Course) -> [&mut Chance; 3] {
        [&mut self.everyone, &mut self.by_turn[course.turn], &mut self.by_growth[course.cell]]
    }

    /// That a session goes on: of its like, of those at its turn, of all.
    fn chance_of(&self, course: &Course) -> f64 {
        let strength = self.strength();
        let of_all = self.everyone.value(0.5, strength);
        let of_turn = self.by_turn[course.turn].value(of_all, strength);
        self.by_growth[course.cell].value(of_turn, strength)
    }

    /// How much of its path a session uses again that goes on.
    fn share_of(&self, course: &Course) -> f64 {
        let strength = self.strength();
        let of_all = self.everyone.share(KEPT_SHARE, strength);
        let of_turn = self.by_turn[course.turn].share(of_all, strength);
        self.by_growth[course.cell].share(of_turn, strength)
    }

    /// The gap that is expected of a session from now on.
    fn expected_s(&self, course: &Course) -> f64 {
        let of_turn = self.mean_by_turn[course.turn];
        let of_others = if of_turn.is_empty() { self.root_of_all() } else { of_turn.root };
        let root = (course.gaps.root * course.gaps.count + of_others) / (course.gaps.count + 1.0);
        let mut mean_s = root * root;
        if self.variance > 0.0 && !course.gaps.is_empty() {
            let slope = (self.covariance / self.variance).max(0.0);
            mean_s = (mean_s + slope * (course.answer - course.answers)).max(0.25 * mean_s);
        }
        mean_s.max(GAP_MIN_S)
    }

    /// The gap that is expected of what several sessions pass.
    fn shared_scale_s(&self, usage: &Usage) -> f64 {
        let of_shared = self.mean_of_shared;
        let of_others = if of_shared.is_empty() { self.root_of_all() } else { of_shared.root };
        let root = (usage.gap_root * usage.gaps + of_others) / (usage.gaps + 1.0);
        (root * root).max(GAP_MIN_S)
    }

    /// Of any session's gap.
    fn root_of_all(&self) -> f64 {
        if self.mean_of_all.is_empty() { 1.0 } else { self.mean_of_all.root }
    }

    /// The gap that is expected of anybody.
    fn scale_of_all(&self) -> f64 {
        (self.root_of_all() * self.root_of_all()).max(GAP_MIN_S)
    }

    /// Time since a session's last request, in seconds.
    fn waited(&self, course: &Course) -> f64 {
        (self.now_s - course.last_s).max(0.0)
    }

    /// The mean weight of a session.
    fn weigh(&mut self, weight: f64) {
        self.weights += 1.0;
        self.weight_sum += weight;
        if self.weights > WEIGHTS_MAX {
            self.weights /= 2.0;
            self.weight_sum /= 2.0;
        }
    }

    /// Weight of what is believed of a chance beforehand.
    fn strength(&self) -> f64 {
        CHANCE_STRENGTH * self.mean_weight()
    }

    /// Of the sessions of late; 1 before the first.
    fn mean_weight(&self) -> f64 {
        if self.weights == 0.0 { 1.0 } else { self.weight_sum / self.weights }
    }

    /// Old counts shrink, those who should be back are counted. Cost: O(sessions), every so often.
    fn refit(&mut self) {
        for chance in self.by_turn.iter_mut().chain(&mut self.by_growth).chain([&mut self.everyone]) {
            chance.forget();
        }
        self.fates.iter_mut().for_each(Fates::forget);
        let courses = std::mem::take(&mut self.courses);
        for course in courses.values() {
            let due = course.weight * self.private_gaps.back_by(self.waited(course) / course.scale_s);
            for chance in self.chances_of(course) {
                chance.pending += due;
            }
        }
        self.courses = courses;
        for gaps in [&mut self.private_gaps, &mut self.superseded_gaps, &mut self.shared_gaps] {
            gaps.forget(KEPT);
        }
        self.fit();
        let usual = (self.registrations / 4.0).max(REFITS.0).min(REFITS.1);
        self.until_refit = usual.max((self.courses.len() / 4) as f64);
    }

    /// The shapes of the gaps.
    fn fit(&mut self) {
        let strength = GAPS_STRENGTH * self.mean_weight();
        self.private_gaps.refit(&early_shape(), strength);
        self.superseded_gaps.refit(&self.private_gaps.back, strength);
        self.shared_gaps.refit(&self.private_gaps.back, strength);
    }
}

/// Pages of a run's node.
fn pages_of(usage: &Usage) -> f64 {
    f64::from(usage.end_page - usage.start_page)
}

/// Place of a run's counts.
fn kind_in(usage: &Usage) -> usize {
    if usage.parties > 1 { SHARED } else { usage.kind }
}

/// Class of a number of requests, at least 1.
fn turn_class(turns: u32) -> usize {
    TURN_ENDS.iter().filter(|&&end| turns > end).count()
}

/// 0 for none, then one more for each power of two reached.
fn octave(pages: u32) -> usize {
    ((u32::BITS - pages.leading_zeros()) as usize).min(GROWTHS - 1)
}
