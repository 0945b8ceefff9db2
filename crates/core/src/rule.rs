//! The one question that the tree asks of a component: which pages does a boundary need?
//!
//! A boundary `b`, in pages, is valid for a component exactly when every page in `[first_page(b), b)` is
//! held (rule R-1). `first_page` never goes down as `b` grows (rule R-2). Tokens are counted in `u64`, so
//! that no product overflows.

/// Where values of one component may be reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Full attention, MLA: every page before the boundary is needed (rule R-3).
    Full,
    /// Sliding-window attention: the pages that cover the last tokens (rule R-4).
    Window {
        /// Tokens before the next one that it can see; a window of W tokens looks back W - 1.
        lookback_tokens: u64,
    },
    /// Chunked attention: the pages from the start of the next token's chunk (rule R-5).
    Chunk {
        /// Tokens a chunk, at least 1.
        chunk_tokens: u64,
    },
    /// Recurrent layers: one state at the boundary, the value of the page before it (rule R-6).
    Checkpoint,
}

impl Rule {
    /// First page that a boundary needs; the needed pages are `[result, boundary)`.
    #[inline]
    #[must_use]
    pub fn first_page(self, boundary: u32, page_tokens: u32) -> u32 {
        let page = u64::from(page_tokens);
        match self {
            Self::Full => 0,
            Self::Window { lookback_tokens } => {
                // in pages, so that a loop over boundaries divides once
                u64::from(boundary).saturating_sub(lookback_tokens.div_ceil(page)) as u32
            }
            Self::Chunk { chunk_tokens } => {
                let tokens = u64::from(boundary) * page;
                match tokens % chunk_tokens {
                    0 => boundary,
                    rest => ((tokens - rest) / page) as u32,
                }
            }
            Self::Checkpoint => boundary.saturating_sub(1),
        }
    }

    /// Whether every boundary needs all pages from the start, so that values leave from the tail only.
    #[inline]
    #[must_use]
    pub fn prefix_closed(self) -> bool {
        self == Self::Full
    }

    /// Why a boundary is refused when a needed page was never stored.
    #[must_use]
    pub fn refusal(self) -> &'static str {
        match self {
            Self::Full => "not held",
            Self::Window { .. } => "window not held",
            Self::Chunk { .. } => "chunk not held",
            Self::Checkpoint => "no checkpoint here",
        }
    }

    /// Deepest boundary at or below the given one that needs no page at all; 0 always is one.
    #[inline]
    #[must_use]
    pub fn free_at_or_below(self, boundary: u32, page_tokens: u32) -> u32 {
        match self {
            Self::Window { lookback_tokens: 0 } => boundary,
            Self::Chunk { chunk_tokens } => {
                let step = seam_pages(chunk_tokens, page_tokens);
                (u64::from(boundary) / step * step) as u32
            }
            Self::Full | Self::Window { .. } | Self::Checkpoint => 0,
        }
    }

    /// Shallowest boundary in `boundary ..= last` that needs no page.
    #[inline]
    #[must_use]
    pub fn free_at_or_above(self, boundary: u32, last: u32, page_tokens: u32) -> Option<u32> {
        match self {
            Self::Window { lookback_tokens: 0 } => Some(boundary),
            Self::Chunk { chunk_tokens } => {
                let step = seam_pages(chunk_tokens, page_tokens);
                let seam = u64::from(boundary).div_ceil(step).saturating_mul(step);
                u32::try_from(seam).ok().filter(|&seam| seam <= last)
            }
            Self::Full | Self::Window { .. } | Self::Checkpoint => (boundary == 0).then_some(0),
        }
    }
}

/// Pages between two seams of chunks that are a whole number of pages.
fn seam_pages(chunk_tokens: u64, page_tokens: u32) -> u64 {
    let (mut a, mut b) = (chunk_tokens, u64::from(page_tokens));
    while b != 0 {
        (a, b) = (b, a % b);
    }
    chunk_tokens / a
}

#[cfg(test)]
mod tests {
    use super::Rule;
    use proptest::prelude::*;

    fn any_rule() -> impl Strategy<Value = Rule> {
        prop_oneof![
            Just(Rule::Full),
            (0..70_u64).prop_map(|lookback_tokens| Rule::Window { lookback_tokens }),
            (1..70_u64).prop_map(|chunk_tokens| Rule::Chunk { chunk_tokens }),
            Just(Rule::Checkpoint),
        ]
    }

    #[test]
    fn worked_examples() {
        let window = Rule::Window { lookback_tokens: 5 };
        assert_eq!([0, 1, 2, 3].map(|b| window.first_page(b, 4)), [0, 0, 0, 1]);
        let chunk = Rule::Chunk { chunk_tokens: 6 };
        assert_eq!([0, 1, 2, 3, 4].map(|b| chunk.first_page(b, 4)), [0, 0, 1, 3, 3]);
        assert_eq!(Rule::Checkpoint.first_page(7, 4), 6);
        assert_eq!(Rule::Window { lookback_tokens: u64::MAX }.first_page(u32::MAX, u32::MAX), 0);
    }

    proptest! {
        #[test]
        fn first_page_stays_in_range_and_never_goes_down(rule in any_rule(), page in 1..20_u32, b in 0..200_u32) {
            let first = rule.first_page(b, page);
            prop_assert!(first <= b);
            prop_assert!(rule.first_page(b + 1, page) >= first);
            prop_assert!(!rule.prefix_closed() || first == 0);
        }

        #[test]
        fn free_boundaries_are_those_that_need_nothing(rule in any_rule(), page in 1..20_u32, b in 0..99_u32) {
            let free = |boundary: u32| rule.first_page(boundary, page) >= boundary;
            let below = (0..=b).rev().find(|&x| free(x)).unwrap_or(0);
            prop_assert_eq!(rule.free_at_or_below(b, page), below);
            prop_assert_eq!(rule.free_at_or_above(b, b + 40, page), (b..=b + 40).find(|&x| free(x)));
        }
    }
}
