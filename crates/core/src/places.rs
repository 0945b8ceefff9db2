//! How many leases, or sessions, cover a node from a page on (rules L-2, S-3).

/// By the first page that is covered, in order: how many cover the node from there to its end.
///
/// Most nodes are covered from one page, so that needs no memory of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Places {
    /// The first page and its count, which is 0 for no page at all.
    first: (u32, u32),
    #[expect(clippy::box_collection, reason = "rare, and a third as large in every holding")]
    others: Option<Box<Vec<(u32, u32)>>>,
}

impl Places {
    /// First covered page, or `None` when nothing is covered.
    #[inline]
    pub(crate) fn first(&self) -> Option<u32> {
        (self.first.1 != 0).then_some(self.first.0)
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.first.1 == 0
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, u32)> {
        let first = (!self.is_empty()).then_some(self.first);
        first.into_iter().chain(self.others.iter().flat_map(|others| others.iter().copied()))
    }

    /// How many cover a page before `end`.
    pub(crate) fn count_before(&self, end: u32) -> u32 {
        self.iter().take_while(|&(page, _)| page < end).map(|(_, count)| count).sum()
    }

    /// The last covered page before `end` from which on one more covers.
    pub(crate) fn last_before(&self, end: u32) -> Option<u32> {
        self.iter().map(|(page, _)| page).take_while(|&page| page < end).last()
    }

    #[inline]
    pub(crate) fn add(&mut self, page: u32, count: u32) {
        if self.is_empty() {
            self.first = (page, count);
        } else if page == self.first.0 {
            self.first.1 += count;
        } else {
            self.add_other(page, count);
        }
    }

    fn add_other(&mut self, page: u32, count: u32) {
        let others = self.others.get_or_insert_default();
        let added = if page < self.first.0 {
            std::mem::replace(&mut self.first, (page, count)) // before all others
        } else {
            (page, count)
        };
        match others.binary_search_by_key(&added.0, |&(other, _)| other) {
            Ok(index) => others[index].1 += added.1,
            Err(index) => others.insert(index, added),
        }
    }

    /// Takes one back.
    #[inline]
    pub(crate) fn remove(&mut self, page: u32) {
        if self.first.0 == page && self.first.1 > u32::from(self.others.is_some()) {
            self.first.1 -= 1;
        } else {
            self.remove_other(page);
        }
    }

    /// Takes one back that is not the first, or after which another one is.
    fn remove_other(&mut self, page: u32) {
        if self.first() == Some(page) {
            self.first.1 -= 1;
            if self.first.1 == 0
                && let Some(others) = &mut self.others
            {
                self.first = others.remove(0);
            }
        } else {
            let found = self.others.as_deref_mut().and_then(|others| {
                let index = others.binary_search_by_key(&page, |&(other, _)| other).ok()?;
                Some((others, index))
            });
            let (others, index) =
                found.unwrap_or_else(|| panic!("L-2: the count of page {page} would be -1"));
            others[index].1 -= 1;
            if others[index].1 == 0 {
                others.remove(index);
            }
        }
        self.shrink();
    }

    /// Forgets the places from a page on.
    pub(crate) fn truncate(&mut self, end: u32) {
        if let Some(others) = &mut self.others {
            others.retain(|&(page, _)| page < end);
        }
        if self.first.0 >= end {
            self.first.1 = 0;
        }
        self.shrink();
    }

    /// Cuts the places of a node that is split at a page; returns those of the upper half.
    pub(crate) fn split(&mut self, at_page: u32) -> Self {
        let mut upper = self.clone();
        upper.truncate(at_page);
        let through = upper.count_before(at_page);
        let lower = self.iter().filter(|&(page, _)| page >= at_page).fold(Self::default(), Self::with);
        *self = if through == 0 { lower } else { lower.with((at_page, through)) };
        upper
    }

    fn with(mut self, (page, count): (u32, u32)) -> Self {
        self.add(page, count);
        self
    }

    fn shrink(&mut self) {
        if self.others.as_ref().is_some_and(|others| others.is_empty()) {
            self.others = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Places;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn places(of: &[(u32, u32)]) -> Places {
        of.iter().copied().fold(Places::default(), Places::with)
    }

    fn listed(places: &Places) -> Vec<(u32, u32)> {
        places.iter().collect()
    }

    #[test]
    fn a_split_cuts_at_the_page() {
        let mut lower = places(&[(2, 1), (4, 2), (7, 1)]);
        let upper = lower.split(5);
        assert_eq!(listed(&upper), [(2, 1), (4, 2)]);
        assert_eq!(listed(&lower), [(5, 3), (7, 1)]);
    }

    #[test]
    fn taking_back_undoes_after_a_split() {
        let mut lower = places(&[(3, 1)]);
        let mut upper = lower.split(6);
        upper.remove(3);
        lower.remove(6);
        assert!(upper.is_empty() && lower.is_empty());
    }

    #[test]
    fn a_cut_forgets_what_is_behind_it() {
        let mut short = places(&[(2, 1), (4, 2), (7, 1)]);
        short.truncate(4);
        assert_eq!(short, places(&[(2, 1)]));
        short.truncate(2);
        assert!(short.is_empty());
    }

    #[test]
    #[should_panic(expected = "L-2")]
    fn a_count_below_zero_cannot_happen() {
        places(&[(2, 1)]).remove(3);
    }

    #[test]
    fn one_place_needs_sixteen_bytes() {
        assert_eq!(size_of::<Places>(), 16);
    }

    proptest! {
        #[test]
        fn places_are_counts_by_page(steps in prop::collection::vec((0..9_u32, any::<bool>()), 0..60)) {
            let mut model: BTreeMap<u32, u32> = BTreeMap::new();
            let mut all = Places::default();
            for (page, adds) in steps {
                if adds {
                    all.add(page, 1);
                    *model.entry(page).or_default() += 1;
                } else if let Some(count) = model.get_mut(&page) {
                    all.remove(page);
                    *count -= 1;
                    model.retain(|_, count| *count > 0);
                }
                prop_assert_eq!(listed(&all), model.iter().map(|(&page, &count)| (page, count)).collect::<Vec<_>>());
                prop_assert_eq!(all.first(), model.keys().next().copied());
                prop_assert_eq!(all.last_before(5), model.range(..5).map(|(&page, _)| page).next_back());
                prop_assert_eq!(all.count_before(5), model.range(..5).map(|(_, count)| count).sum::<u32>());
                prop_assert!(all.others.as_ref().is_none_or(|others| !others.is_empty()));
            }
        }
    }
}
