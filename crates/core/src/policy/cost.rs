//! What is least likely to save work leaves first: recency, plus a bonus for the work that is at stake.
//!
//! ```text
//! rank = last tick + 4 x mean gap between uses x chance of return x worth
//! ```
//!
//! The chance is learned: of the runs of one kind (how often used, how many children) so many came back. The
//! worth is what must be computed again when the run is gone. Of a state that is the pages of its node, since
//! the boundary falls back to where the node begins, compared with the mean of its component. Pages of other
//! components are worth the same, one as the other: those of a prefix-closed one leave one by one from the
//! tail, and a window needs all of its own, however its path is cut into nodes. Bytes need no term of their
//! own, as all slots of a component are of one size. All counts are the component's own, and are halved from
//! time to time, so that the old counts for less.
//!
//! In the line of GreedyDual-Size-Frequency (Cherkasova: "Improving WWW proxies performance with
//! greedy-dual-size-frequency caching policy", HP Labs HPL-98-69R1, 1998), with the chance in the place of the
//! frequency as in LHD (Beckmann, Chen, Cidon: "LHD: improving cache hit rate by maximizing hit density", NSDI
//! 2018).

use super::{Policy, Usage};
use crate::rule::Rule;
use crate::tree::Component;

const USES_MAX: u32 = 4;
const CHILDREN_MAX: u32 = 2;
const KINDS: usize = (USES_MAX * (CHILDREN_MAX + 1)) as usize;
/// A count that reaches this is halved, with what belongs to it.
const COUNT_MAX: u64 = 4096;
/// A run that comes back for sure is kept as long as one used this many mean gaps later.
const GAPS_KEPT: f64 = 4.0;

/// What was seen of one component.
#[derive(Clone, Debug, Default)]
struct Learned {
    holds_state: bool,
    /// By kind: uses of runs, and those of them that another use followed.
    seen: [u64; KINDS],
    returned: [u64; KINDS],
    /// How many gaps, and their sum.
    gaps: u64,
    gap_ticks: u64,
    /// Uses, and the sum of their nodes' pages.
    touches: u64,
    pages: u64,
}

/// Recency and a learned bonus.
#[derive(Clone, Debug, Default)]
pub struct Cost {
    learned: Vec<Learned>,
}

impl Policy for Cost {
    fn text(&self) -> String {
        "cost".to_owned()
    }

    fn bind(&mut self, components: &[Component]) {
        let nothing = |component: &Component| Learned {
            holds_state: matches!(component.rule, Rule::Checkpoint),
            ..Learned::default()
        };
        self.learned = components.iter().map(nothing).collect();
    }

    /// Counts the return, and the run as one of its new kind, which the weight keeps.
    fn touch(&mut self, usage: &mut Usage, gap_ticks: u64, _gap_s: f64) {
        let learned = &mut self.learned[usage.component as usize];
        if usage.uses > 1 {
            learned.returned[kind_of(usage)] += 1;
            learned.gaps += 1;
            learned.gap_ticks += gap_ticks;
            if learned.gaps == COUNT_MAX {
                learned.gaps /= 2;
                learned.gap_ticks /= 2;
            }
        }
        let kind = usage.uses.min(USES_MAX) - 1 + USES_MAX * usage.children.min(CHILDREN_MAX);
        usage.weight = f64::from(kind);
        let kind = kind as usize;
        learned.seen[kind] += 1;
        if learned.seen[kind] == COUNT_MAX {
            learned.seen[kind] /= 2;
            learned.returned[kind] /= 2;
        }
        learned.touches += 1;
        learned.pages += u64::from(usage.end_page - usage.start_page);
        if learned.touches == COUNT_MAX {
            learned.touches /= 2;
            learned.pages /= 2;
        }
    }

    fn rank(&self, usage: &Usage) -> f64 {
        usage.last_tick as f64 + self.learned[usage.component as usize].bonus(usage)
    }

    /// A run whose session said that it will be back is spared once, as if used just now.
    fn rerank(&self, usage: &Usage, now_s: f64, clock: u64) -> f64 {
        if usage.sessions != 0 && usage.return_s > now_s {
            return clock as f64 + self.learned[usage.component as usize].bonus(usage);
        }
        usage.rank
    }
}

/// Kind of a run at its last use.
fn kind_of(usage: &Usage) -> usize {
    usage.weight as usize
}

impl Learned {
    /// Ticks for which a run is kept longer than one that nobody will use; 0 while nothing is known.
    fn bonus(&self, usage: &Usage) -> f64 {
        if self.gaps == 0 {
            return 0.0;
        }
        let span = GAPS_KEPT * (self.gap_ticks as f64 / self.gaps as f64);
        span * self.chance(usage) * self.worth(usage)
    }

    /// Chance that the run is used again: that of its kind, and half of what is missing for a session's.
    fn chance(&self, usage: &Usage) -> f64 {
        let kind = kind_of(usage);
        let found = ((self.returned[kind] + 1) as f64 / (self.seen[kind] + 2) as f64).min(1.0);
        if usage.sessions != 0 { found + (1.0 - found) / 2.0 } else { found }
    }

    /// Work at stake, from 0 to 2, 1 for the mean.
    fn worth(&self, usage: &Usage) -> f64 {
        if !self.holds_state || self.pages == 0 {
            return 1.0;
        }
        let pages = f64::from(usage.end_page - usage.start_page);
        2.0 * pages / (pages + self.pages as f64 / self.touches as f64)
    }
}
