//! How long it takes until something is used again, learned as one histogram of gaps.
//!
//! Gaps are counted in a unit of the user's own: the gap that was expected. So gaps of seconds and of hours
//! fill one histogram, and few of them tell its shape.

const EDGES: usize = 49;
const LAST: usize = EDGES - 1;
/// Edges of the buckets: 0, then three an octave from 1/16 on.
const AT: [f64; EDGES] = edges();

const fn edges() -> [f64; EDGES] {
    let mut found = [0.0; EDGES];
    let (steps, mut octave, mut place) = ([1.0, 1.26, 1.5874], 0.0625, 1);
    while place < EDGES {
        let mut step = 0;
        while step < 3 && place < EDGES {
            found[place] = octave * steps[step];
            place += 1;
            step += 1;
        }
        octave *= 2.0;
    }
    found
}

/// Chance to be back by each edge while nothing is known: early gaps are frequent, late ones happen.
pub(super) fn early_shape() -> [f64; EDGES] {
    AT.map(|edge| {
        let far = 1.0 + edge / 3.0;
        1.0 - 1.0 / (far * far * far)
    })
}

/// One histogram.
#[derive(Clone, Debug)]
pub(super) struct Gaps {
    /// Weight of the gaps in each bucket.
    counts: [f64; LAST],
    /// Of all that is used again, the share that is by each edge.
    pub(super) back: [f64; EDGES],
    /// That share, summed up over time until each edge.
    area: [f64; EDGES],
}

impl Gaps {
    pub(super) fn new() -> Self {
        Self { counts: [0.0; LAST], back: early_shape(), area: [0.0; EDGES] }
    }

    /// One gap.
    pub(super) fn add(&mut self, gap: f64, weight: f64) {
        self.counts[bucket(gap).min(LAST - 1)] += weight;
    }

    /// The past counts for less.
    pub(super) fn forget(&mut self, kept: f64) {
        for count in &mut self.counts {
            *count *= kept;
        }
    }

    /// Finds the shares anew, as if gaps of the prior's shape and a weight of `strength` had been seen.
    pub(super) fn refit(&mut self, prior: &[f64; EDGES], strength: f64) {
        let (mut total, mut sum) = (strength, 0.0);
        for count in &self.counts {
            total += count;
        }
        (self.back[0], self.area[0]) = (0.0, 0.0);
        for place in 0..LAST {
            sum += self.counts[place] + strength * (prior[place + 1] - prior[place]);
            self.back[place + 1] = sum / total;
            let mean = (self.back[place] + self.back[place + 1]) / 2.0;
            self.area[place + 1] = self.area[place] + mean * (AT[place + 1] - AT[place]);
        }
    }

    /// The share that is used again by an age, straight between the edges.
    pub(super) fn back_by(&self, age: f64) -> f64 {
        let place = bucket(age);
        if place == LAST {
            return 1.0;
        }
        let share = (age - AT[place]) / (AT[place + 1] - AT[place]);
        self.back[place] + share * (self.back[place + 1] - self.back[place])
    }

    /// Most returns a unit of time that waiting from `age` on promises, over all times to give up at.
    ///
    /// That is Gittins' index: chance to be back until then, over the time that the room is taken for. Behind
    /// the last edge the rate falls with the age. `chance`, below 1, is that of being used again at all, when
    /// nothing of the waiting was done yet.
    pub(super) fn index(&self, chance: f64, age: f64) -> f64 {
        let place = bucket(age);
        if place == LAST {
            let waiting = 1.0 - chance * self.back[LAST - 1];
            let found = chance * (self.back[LAST] - self.back[LAST - 1]);
            let rate = found / (waiting * (AT[LAST] - AT[LAST - 1]));
            return rate * AT[LAST] / age;
        }
        let share = (age - AT[place]) / (AT[place + 1] - AT[place]);
        let back = self.back[place] + share * (self.back[place + 1] - self.back[place]);
        let area = self.area[place] + (self.back[place] + back) / 2.0 * (age - AT[place]);
        let mut best = 0.0_f64;
        for (end, &edge) in AT.iter().enumerate().skip(place + 1) {
            let room = (edge - age) - chance * (self.area[end] - area);
            best = best.max(chance * (self.back[end] - back) / room);
        }
        best
    }
}

/// Place of the last edge that is not above a gap of 0 or more.
fn bucket(gap: f64) -> usize {
    AT.partition_point(|&edge| edge <= gap) - 1
}

#[cfg(test)]
mod tests {
    use super::{AT, EDGES, Gaps, LAST, bucket, early_shape};

    #[test]
    fn edges_rise_and_buckets_lie_between_them() {
        assert!(AT.is_sorted_by(|low, high| low < high));
        assert_eq!((bucket(0.0), bucket(AT[7]), bucket(1e9)), (0, 7, LAST));
    }

    #[test]
    fn what_comes_back_after_one_gap_exactly_promises_most_just_before() {
        let mut gaps = Gaps::new();
        gaps.add(1.0, 1e6);
        gaps.refit(&early_shape(), 1.0);
        let promises = [0.0, 0.5, 0.9, 1.5, 10.0].map(|age| gaps.index(0.9, age));
        assert!(promises[..3].is_sorted() && promises[2] > promises[3] && promises[3] > promises[4]);
        assert!((gaps.back_by(AT[LAST - 1]) - gaps.back[EDGES - 2]).abs() < 1e-12);
    }
}
