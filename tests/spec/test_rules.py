"""R: where reuse is valid. Each rule is told again here by what a token can see."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from differential.compositions import Half, OpenStart, Stairs, core_types, is_own
from graftline.components import Checkpoint, Chunk, ComponentSpec, Full, ReuseRule, Window
from graftline.errors import ConfigError
from spec.sketch import Sketch

boundaries = st.integers(0, 60)
pages_of_tokens = st.integers(1, 9)
rules = st.one_of(
    st.just(Full()),
    st.builds(Window, st.integers(0, 30)),
    st.builds(Chunk, st.integers(1, 30)),
    st.just(Checkpoint()),
    st.sampled_from([Half(), Stairs(), OpenStart()]),
)


def pages_seen(visible: range, page_tokens: int) -> list[int]:
    """Pages in which some visible token lies."""
    return sorted({token // page_tokens for token in visible})


def needed(rule: ReuseRule, boundary: int, page_tokens: int) -> list[int]:
    return list(range(rule.first_page(boundary, page_tokens), boundary))


@pytest.mark.rule("R-1")
@given(st.lists(st.booleans(), max_size=8), rules)
def test_a_boundary_is_valid_exactly_when_all_pages_it_needs_are_held(
    held: list[bool], rule: ReuseRule
) -> None:
    """The tree against the sentence of the rule, for one component on one path, at each boundary."""
    if rule.prefix_closed:
        held = [True] * len(held)
    for core_type in core_types(own=is_own(rule)):
        tree = Sketch(core_type, {"c": rule})
        text = "abcdefgh"[: len(held)]
        tree.grow(tree.hold(), text, move=True, c="".join("*" if here else "." for here in held))
        for limit in range(len(held) + 1):
            valid = [b for b in range(limit + 1) if all(held[page] for page in needed(rule, b, 1))]
            assert tree.hit(text, limit) == max(valid)


@pytest.mark.rule("R-1")
def test_the_empty_prefix_is_always_valid(sketch) -> None:
    tree: Sketch = sketch(full=Full(), swa=Window(4), state=Checkpoint())
    assert tree.hit("anything") == 0
    assert tree.hold("anything").boundary_tokens == 0


@pytest.mark.rule("R-2")
@given(rules, boundaries, pages_of_tokens)
def test_first_page_lies_before_the_boundary_and_never_goes_down(
    rule: ReuseRule, boundary: int, page_tokens: int
) -> None:
    first = rule.first_page(boundary, page_tokens)
    assert 0 <= first <= boundary
    assert rule.first_page(boundary + 1, page_tokens) >= first


@pytest.mark.rule("R-2")
@given(rules, boundaries, boundaries, pages_of_tokens)
def test_the_shortcuts_to_boundaries_that_need_nothing_are_right(
    rule: ReuseRule, boundary: int, more: int, page_tokens: int
) -> None:
    """`free_at_or_below` and `free_at_or_above` are `first_page` asked many times."""
    last = boundary + more
    free = [b for b in range(last + 1) if not needed(rule, b, page_tokens)]
    assert rule.free_at_or_below(boundary, page_tokens) == max(b for b in free if b <= boundary)
    assert rule.free_at_or_above(boundary, last, page_tokens) == min(
        (b for b in free if b >= boundary), default=None
    )


@pytest.mark.rule("R-3")
@given(boundaries, pages_of_tokens)
def test_full_attention_sees_every_token_before(boundary: int, page_tokens: int) -> None:
    assert needed(Full(), boundary, page_tokens) == pages_seen(range(boundary * page_tokens), page_tokens)


@pytest.mark.rule("R-4")
@given(st.integers(1, 40), boundaries, pages_of_tokens)
def test_a_window_of_w_tokens_looks_back_w_minus_one(window: int, boundary: int, page_tokens: int) -> None:
    """The token at the boundary sees itself and the w - 1 before it; what lies in their pages is needed."""
    next_token = boundary * page_tokens
    visible = range(max(0, next_token - (window - 1)), next_token)
    assert needed(Window(window - 1), boundary, page_tokens) == pages_seen(visible, page_tokens)


@pytest.mark.rule("R-4")
def test_a_window_smaller_than_a_page_still_needs_that_page() -> None:
    assert needed(Window(128), 3, 256) == [2]
    assert needed(Window(0), 3, 256) == [], "a window of one token looks back nowhere"


@pytest.mark.rule("R-5")
@given(st.integers(1, 40), boundaries, pages_of_tokens)
def test_chunked_attention_sees_the_tokens_of_its_own_chunk(
    chunk: int, boundary: int, page_tokens: int
) -> None:
    next_token = boundary * page_tokens
    visible = [token for token in range(next_token) if token // chunk == next_token // chunk]
    assert needed(Chunk(chunk), boundary, page_tokens) == sorted({token // page_tokens for token in visible})


@pytest.mark.rule("R-5")
def test_at_a_seam_nothing_is_needed() -> None:
    assert [b for b in range(13) if not needed(Chunk(8), b, 4)] == [0, 2, 4, 6, 8, 10, 12]
    assert [b for b in range(13) if not needed(Chunk(10), b, 4)] == [0, 5, 10], "seams that end a page"
    assert needed(Chunk(10), 3, 4) == [2], "the chunk of token 12 starts at 10, inside page 2"


@pytest.mark.rule("R-6")
@given(boundaries, pages_of_tokens)
def test_a_checkpoint_needs_the_one_state_at_the_boundary(boundary: int, page_tokens: int) -> None:
    assert needed(Checkpoint(), boundary, page_tokens) == ([boundary - 1] if boundary else [])


@pytest.mark.rule("R-6")
def test_a_state_counts_at_its_own_boundary_only(sketch) -> None:
    """A state kept at 4 serves no boundary before it and none after it."""
    tree: Sketch = sketch(state=Checkpoint())
    tree.put("abcdef", state="...*..")
    assert [tree.hit("abcdef", limit) for limit in range(7)] == [0, 0, 0, 0, 4, 4, 4]


@pytest.mark.rule("R-7")
def test_a_sidecar_has_no_vote_and_no_slots_of_its_own(core_type) -> None:
    """With sidecars or without, the tree does the same: they live where their component's slots lie."""
    dumps = []
    for sidecars in ((), ("compressed", "indexer")):
        specs = [ComponentSpec("full", Full(), 8, sidecars=sidecars), ComponentSpec("swa", Window(1), 8)]
        core = core_type(specs, page_tokens=1)
        tree = Sketch(lambda *_, core=core, **__: core, {"full": Full(), "swa": Window(1)})
        tree.put("abcd", swa="..**")
        assert [vote.component for vote in tree.find("abcd").votes] == ["full", "swa"]
        assert [pool.component for pool in core.stats().pools] == ["full", "swa"]
        assert set(core.evict("full", 1).slots) == {"full", "swa"}
        dumps.append(core.dump())
        with pytest.raises(ConfigError, match="compressed"):
            core.evict("compressed", 1)
    assert dumps[0] == dumps[1]


@pytest.mark.rule("R-8")
def test_a_rule_of_ones_own_is_one_method(own_sketch) -> None:
    """`Half` needs the later half of the prefix; the tree takes it without knowing it."""
    tree: Sketch = own_sketch(full=Full(), half=Half())
    tree.put("abcdefgh", half="..***...")
    valid = [b for b in range(9) if tree.hit("abcdefgh", b) == b]
    assert valid == [0, 4, 5], "4 needs pages 2, 3; 5 needs 2, 3, 4; 6 needs page 5 too"
    assert tree.find("abcdefgh").reason == "half not held"


@pytest.mark.rule("R-8")
@pytest.mark.parametrize("wrong", [3, "full", Full], ids=repr)
def test_a_component_needs_a_rule(wrong: object) -> None:
    with pytest.raises(ConfigError, match="is not a ReuseRule"):
        ComponentSpec("full", wrong, 1)
