"""The deepest agreed boundary from bitmaps alone, against the rule's own words."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graftline.components import Checkpoint, Chunk, Full, ReuseRule, Window
from graftline.components.agree import deepest_boundary, first_pages, valid_boundaries
from graftline.errors import ConfigError


class EveryThird(ReuseRule):
    """A rule of one's own: the pages since the last multiple of three pages."""

    def first_page(self, boundary_pages: int, page_tokens: int) -> int:
        return boundary_pages // 3 * 3


class ShortWindow(Window):
    """Says something else than the rule that it comes from."""

    def first_page(self, boundary_pages: int, page_tokens: int) -> int:
        return max(0, boundary_pages - 1)


one_rule = st.one_of(
    st.just(Full()),
    st.just(Checkpoint()),
    st.builds(Window, st.integers(0, 40)),
    st.builds(Chunk, st.integers(1, 40)),
    st.just(EveryThird()),
    st.just(ShortWindow(9)),
)
page_sizes = st.sampled_from([1, 2, 3, 16])


@st.composite
def rules_and_bitmaps(draw: st.DrawFn) -> tuple[list[ReuseRule], list[np.ndarray]]:
    rules = draw(st.lists(one_rule, min_size=1, max_size=4))
    pages = draw(st.integers(0, 24))
    # Mostly held: else nearly every answer is 0.
    page = st.sampled_from([True, True, True, True, False])
    return rules, [np.array(draw(st.lists(page, min_size=pages, max_size=pages)), dtype=bool) for _ in rules]


def slow_answer(rules, bitmaps, page_tokens, limit):
    """Tries every boundary, page by page."""
    for boundary in range(min(limit, len(bitmaps[0])), 0, -1):
        if all(
            all(bitmap[page] for page in range(rule.first_page(boundary, page_tokens), boundary))
            for rule, bitmap in zip(rules, bitmaps, strict=True)
        ):
            return boundary
    return 0


@pytest.mark.rule("R-1", "M-2")
@given(rules_and_bitmaps(), page_sizes, st.integers(0, 30))
def test_it_is_the_deepest_boundary_that_has_all_its_pages(given_, page_tokens, limit):
    rules, bitmaps = given_
    assert deepest_boundary(rules, bitmaps, page_tokens, limit) == slow_answer(
        rules, bitmaps, page_tokens, limit
    )


@pytest.mark.rule("R-1")
@given(rules_and_bitmaps(), page_sizes)
def test_every_boundary_of_one_rule_is_judged(given_, page_tokens):
    rules, bitmaps = given_
    valid = valid_boundaries(rules[0], bitmaps[0], page_tokens)
    for boundary in range(len(bitmaps[0]) + 1):
        first = rules[0].first_page(boundary, page_tokens)
        assert valid[boundary] == all(bitmaps[0][first:boundary]), boundary


@given(one_rule, st.integers(0, 60), page_sizes)
def test_the_vector_form_says_what_the_rule_says(rule, pages, page_tokens):
    expected = [rule.first_page(boundary, page_tokens) for boundary in range(pages + 1)]
    assert first_pages(rule, pages, page_tokens).tolist() == expected


def test_without_a_limit_the_bitmaps_end_it():
    assert deepest_boundary([Full()], [np.ones(7, dtype=bool)], 16) == 7


def test_an_empty_path_has_the_empty_boundary():
    assert deepest_boundary([Full(), Checkpoint()], [np.zeros(0, dtype=bool)] * 2, 16) == 0


@pytest.mark.parametrize("lengths", [[3], [3, 4], []])
def test_wrong_shapes_are_refused_by_name(lengths):
    rules = [Full(), Checkpoint()] if lengths else []
    with pytest.raises(ConfigError, match=r"bitmaps|no rules"):
        deepest_boundary(rules, [np.ones(n, dtype=bool) for n in lengths], 16)
