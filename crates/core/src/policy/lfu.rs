//! Least frequently used leaves first, where a use counts less the longer it is ago.
//!
//! After LRFU (Lee, Choi, Kim, Noh, Min, Cho, Kim: "LRFU: a spectrum of policies that subsumes the least
//! recently used and least frequently used policies", IEEE Transactions on Computers 50(12), 2001): each use
//! counts one and halves within a half-life. Compared at any later moment, such counts keep their order, so
//! `log2(count) + last tick / half-life` is a rank that stays valid. Halving is a shift, and within a half-life
//! both the decay and the logarithm are straight lines, which fit each other exactly.

use super::{Policy, Usage};
use crate::error::{Error, Result};

/// After so many half-lives nothing is left of a count.
const HALVINGS_MAX: u64 = 64;

/// Count of uses with decay.
#[derive(Clone, Copy, Debug)]
pub struct Lfu {
    half_life_ticks: u64,
}

impl Default for Lfu {
    fn default() -> Self {
        Self { half_life_ticks: Self::HALF_LIFE_TICKS }
    }
}

impl Lfu {
    const HALF_LIFE_TICKS: u64 = 1 << 14;

    /// A use counts half after so many uses of any run.
    ///
    /// # Errors
    /// A half-life of less than one tick.
    pub fn new(half_life_ticks: u64) -> Result<Self> {
        if half_life_ticks < 1 {
            let message = format!("half-life is {half_life_ticks} ticks, it must be at least 1");
            return Err(Error::config(message));
        }
        Ok(Self { half_life_ticks })
    }

    /// What is left of a count.
    fn decayed(self, count: f64, ticks: u64) -> f64 {
        let (halvings, rest) = (ticks / self.half_life_ticks, ticks % self.half_life_ticks);
        if halvings >= HALVINGS_MAX {
            return 0.0;
        }
        count / (1_u64 << halvings) as f64 * (1.0 - rest as f64 / (2.0 * self.half_life_ticks as f64))
    }
}

impl Policy for Lfu {
    fn text(&self) -> String {
        match self.half_life_ticks {
            Self::HALF_LIFE_TICKS => "lfu".to_owned(),
            ticks => format!("lfu({ticks})"),
        }
    }

    fn touch(&mut self, usage: &mut Usage, gap_ticks: u64, _gap_s: f64) {
        usage.weight = self.decayed(usage.weight, gap_ticks) + 1.0;
    }

    fn rank(&self, usage: &Usage) -> f64 {
        usage.last_tick as f64 / self.half_life_ticks as f64 + log2_by_lines(usage.weight)
    }
}

/// Logarithm to the base 2, by straight lines between powers of 2; less than 0 below 1.
fn log2_by_lines(mut count: f64) -> f64 {
    let mut whole = 0.0;
    while count >= 2.0 {
        count /= 2.0;
        whole += 1.0;
    }
    whole + (count - 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_halves_within_a_half_life_and_its_rank_stays_valid() {
        let lfu = Lfu::new(8).expect("a good half-life");
        assert_eq!([0, 4, 8, 16].map(|ticks| lfu.decayed(4.0, ticks)), [4.0, 3.0, 2.0, 1.0]);
        assert_eq!(lfu.decayed(4.0, u64::MAX), 0.0);
        assert_eq!([1.0, 1.5, 2.0, 3.0, 8.0].map(log2_by_lines), [0.0, 0.5, 1.0, 1.5, 3.0]);
        assert!(Lfu::new(0).is_err());
    }
}
