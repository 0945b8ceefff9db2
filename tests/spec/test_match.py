"""M: the longest reusable prefix, and why it is not longer."""

from __future__ import annotations

import random

import pytest

from differential.compositions import COMPOSITIONS, Composition, core_types
from graftline.components import Checkpoint, Chunk, Full, Window
from graftline.errors import ConfigError
from graftline.key import Namespace, as_tokens, page_keys
from graftline.plan import Vote
from spec.sketch import HERE, Sketch, tokens_of


@pytest.mark.rule("M-1")
def test_a_hundred_look_ups_change_nothing_not_even_what_is_evicted(sketch) -> None:
    """No split, no recency, no counter: the tree that was asked and the one that was not stay the same."""
    asked: Sketch = sketch(full=Full(), swa=Window(3))
    alone: Sketch = sketch(full=Full(), swa=Window(3))
    text = "".join(chr(ord("A") + index % 50) for index in range(100))
    for tree in (asked, alone):
        tree.put(text, swa="." * 97 + "***")
        tree.put("Z" * 5, swa="..***")
    for length in range(100):
        asked.find(text[:length] + "?")
    assert asked.core.dump() == alone.core.dump()
    assert asked.core.stats() == alone.core.stats()
    assert asked.evict("full", 1) == alone.evict("full", 1)
    asked.core.check()


@pytest.mark.rule("M-2")
def test_the_boundary_is_the_deepest_on_which_all_agree(sketch) -> None:
    """
    page          0 1 2 3 4 5 6 7
    full          * * * * * * * *      any boundary
    swa (2)       . * * . * * * .      3, 6, 7
    state         . . * * . * . .      3, 4, 6
    """
    tree: Sketch = sketch(full=Full(), swa=Window(2), state=Checkpoint())
    tree.put("abcdefgh", swa=".**.***.", state="..**.*..")
    assert [tree.hit("abcdefgh", limit) for limit in range(9)] == [0, 0, 0, 3, 3, 3, 6, 6, 6]


@pytest.mark.rule("M-2")
def test_a_refusal_does_not_end_the_walk(sketch) -> None:
    """Nodes without a window or a state in between are walked over."""
    tree: Sketch = sketch(full=Full(), state=Checkpoint())
    lease = tree.hold()
    for text, state in (("ab", ".*"), ("cd", ".."), ("ef", "..*"[:2]), ("gh", ".*")):
        lease = tree.grow(lease, text, state=state).lease
    assert tree.hit("abcdefgh") == 8
    assert tree.hit("abcdefg") == 2


@pytest.mark.rule("M-2")
def test_the_boundary_may_lie_inside_a_node(sketch) -> None:
    tree: Sketch = sketch(full=Full(), swa=Window(1))
    tree.put("abcdef", swa=".**...")
    assert tree.picture() == "0..6 abcdef | full 0..6 [0 1 2 3 4 5] | swa 1..3 [100 101]"
    assert tree.hit("abcdef") == 3


@pytest.mark.rule("M-3")
@pytest.mark.parametrize("page", [1, 2, 4])
@pytest.mark.parametrize("tokens", range(13))
def test_the_boundary_keeps_to_the_limit(sketch, page: int, tokens: int) -> None:
    tree: Sketch = sketch(page_tokens=page, full=Full())
    tree.put("abcdefghijkl")
    found = tree.find("abcdefghijkl", tokens)
    assert found.boundary_tokens == found.path_tokens == tokens // page * page


@pytest.mark.rule("M-3")
def test_a_negative_limit_is_refused_and_a_generous_one_is_not(sketch) -> None:
    tree: Sketch = sketch(full=Full())
    tree.put("abc")
    with pytest.raises(ConfigError, match="-1"):
        tree.find("abc", -1)
    assert tree.hit("abc", 1000) == 3


@pytest.mark.rule("M-3")
@pytest.mark.parametrize("page", [1, 2, 4])
@pytest.mark.parametrize("pages", [1, 2, 5])
@pytest.mark.parametrize("off", [-1, 0, 1])
def test_an_exact_repeat_hits_at_the_replay_boundary(sketch, page: int, pages: int, off: int) -> None:
    """Prompts of k pages less one token, exactly, and one more: each repeat computes a page at most.

    A request offers n - 1 of its n tokens. Since something is kept at the last boundary before the
    end, not only at the end, the repeat finds it on every composition.
    """
    prompt = "abcdefghijklmnopqrstuvwxyz"[: pages * page + off]
    for components in (
        {"full": Full()},
        {"full": Full(), "swa": Window(3)},
        {"full": Full(), "state": Checkpoint()},
        {"full": Full(), "swa": Window(5), "state": Checkpoint()},
        {"chunk": Chunk(3), "state": Checkpoint()},
    ):
        tree: Sketch = sketch(page_tokens=page, **components)
        if prompt:
            tree.serve(prompt)
            assert tree.find(prompt, len(prompt) - 1).boundary_tokens == (len(prompt) - 1) // page * page


@pytest.mark.rule("M-4")
def test_each_component_tells_its_own_boundary_and_what_it_cost(sketch) -> None:
    """
    page          0 1 2 3 4 5
    full          * * * * * *      alone 6
    swa (1)       . * * * * .      alone 5
    state         . * . . . .      alone 2, and without it 5 would have been won
    """
    tree: Sketch = sketch(full=Full(), swa=Window(1), state=Checkpoint())
    tree.put("abcdef", swa=".****.", state=".*....")
    found = tree.find("abcdef")
    assert found.votes == (Vote("full", 6, 2), Vote("swa", 5, 2), Vote("state", 2, 5))
    assert (found.boundary_tokens, found.path_tokens, found.lost_tokens) == (2, 6, 4)
    assert (found.limited_by, found.reason) == ("state", "no checkpoint here")


@pytest.mark.rule("M-4")
def test_where_no_single_component_is_to_blame_it_is_the_shallowest(sketch) -> None:
    """Neither a window nor a state lies past 2: without either one nothing would have been won."""
    tree: Sketch = sketch(full=Full(), swa=Window(1), state=Checkpoint())
    tree.put("abcdef", swa=".*....", state=".*....")
    found = tree.find("abcdef")
    assert [vote.without_tokens for vote in found.votes] == [2, 2, 2]
    assert found.limited_by == "swa", "own boundaries 6, 2, 2: the first of the shallowest"


@pytest.mark.rule("M-4")
def test_the_component_that_costs_most_limits_the_match(sketch) -> None:
    """Each window alone is valid somewhere, but never where the other is."""
    tree: Sketch = sketch(near=Window(1), far=Window(1))
    tree.put("abcdef", near="*..*..", far=".*..*.")
    found = tree.find("abcdef")
    assert [vote.without_tokens for vote in found.votes] == [5, 4]
    assert found.limited_by == "near", "without it 5 would have been won, without the other 4"


@pytest.mark.rule("M-4")
def test_nothing_lost_blames_nobody(sketch) -> None:
    tree: Sketch = sketch(full=Full(), swa=Window(1))
    tree.put("abc", swa="..*")
    found = tree.find("abcx")
    assert (found.limited_by, found.reason, found.lost_tokens) == ("", "", 0)
    assert found.votes == (Vote("full", 3, 3), Vote("swa", 3, 3))


@pytest.mark.rule("M-4")
@pytest.mark.parametrize(
    ("name", "rule", "word"),
    [
        ("swa", Window(2), "window not held"),
        ("chunk", Chunk(4), "chunk not held"),
        ("state", Checkpoint(), "no checkpoint here"),
    ],
    ids=["window", "chunk", "checkpoint"],
)
def test_the_reason_is_the_rules_word_or_that_it_was_evicted(sketch, name: str, rule, word: str) -> None:
    tree: Sketch = sketch(full=Full(), **{name: rule})
    tree.put("abcdef", **{name: "......"})
    assert tree.find("abcdef").reason == word
    tree.put("abcdef", **{name: "******"})
    assert tree.find("abcdef").reason == ""
    tree.evict(name, 6)
    assert tree.find("abcdef").reason == "evicted"
    assert tree.find("abcdef").limited_by == name


@pytest.mark.rule("M-4")
def test_a_match_of_nothing_known_has_nothing_to_explain(sketch) -> None:
    tree: Sketch = sketch(full=Full(), swa=Window(2))
    tree.put("abc", swa=".**")
    for found in (tree.find("xyz"), tree.find("abc", namespace=Namespace("other"))):
        assert (found.path_tokens, found.lost_tokens, found.limited_by, found.branch_tokens) == (0, 0, "", 0)


@pytest.mark.rule("M-5")
def test_the_branch_point_is_where_full_attention_leaves_the_path(sketch) -> None:
    """Three prompts share six tokens: the second keeps a window at the fork, the third starts there."""
    tree: Sketch = sketch(full=Full(), swa=Window(2), state=Checkpoint())
    first, second, third = tree.serve("abcdefgh"), tree.serve("abcdefXY"), tree.serve("abcdefPQ")
    assert (first.boundary_tokens, first.branch_tokens) == (0, 0)
    assert (second.boundary_tokens, second.branch_tokens) == (0, 6)
    assert (third.boundary_tokens, third.branch_tokens) == (6, 0)


@pytest.mark.rule("M-5")
def test_without_prefix_closed_components_the_tokens_tell_the_branch_point(sketch) -> None:
    tree: Sketch = sketch(state=Checkpoint())
    tree.put("abcdef", state=".*...*")
    assert tree.find("abcdXY").branch_tokens == 4
    assert tree.find("abXY").branch_tokens == 0, "the boundary is there already"


# -- reports about other systems ----------------------------------------------------------------------


@pytest.mark.rule("M-2", "M-5")
@pytest.mark.parametrize("page", [1, 2, 4])
def test_hits_never_fall_when_more_is_shared(sketch, page: int) -> None:
    """Geometry: for every shared length and every suffix the third of a kind hits all whole shared pages."""
    shared = "abcdefghijklmnop"
    for suffix in ("", "Q", "QRSTU"):
        hits = []
        for length in range(len(shared) + 1):
            tree: Sketch = sketch(
                page_tokens=page, full=Full(), near=Window(2), far=Window(7), state=Checkpoint()
            )
            for tail in ("1234567", "890" + suffix):
                tree.serve(shared[:length] + tail)
            prompt = shared[:length] + "!" + suffix
            hits.append(tree.find(prompt, len(prompt) - 1).boundary_tokens)
        assert hits == [length // page * page for length in range(len(shared) + 1)]


@pytest.mark.rule("M-5", "P-1")
def test_one_prefix_with_more_branches_than_state_slots_keeps_hitting(sketch) -> None:
    """The state that all branches share is used by each of them, so it outlives the branches' own."""
    tree: Sketch = sketch(full=Full(), state=Checkpoint())
    capacity, hits = 4, []
    for branch in range(30):
        hits.append(tree.serve("shared prefix" + chr(ord("A") + branch) * 5).boundary_tokens)
        surplus = tree.core.stats().pools[1].held_pages - capacity
        tree.core.evict("state", max(0, surplus))
    assert hits == [0, 0] + [len("shared prefix")] * 28


@pytest.mark.rule("M-2")
def test_a_conversation_hits_all_of_its_last_turn(sketch) -> None:
    """Forty turns that only append: each hits up to the replay boundary of the one before, none misses."""
    tree: Sketch = sketch(page_tokens=4, full=Full(), swa=Window(9), state=Checkpoint())
    said, before = "system prompt", 0
    for turn in range(40):
        hit = tree.serve(said).boundary_tokens
        assert hit >= before
        before = (len(said) - 1) // 4 * 4
        said += f" turn {turn} and an answer"
    tree.core.check()


# -- properties ---------------------------------------------------------------------------------------


@pytest.mark.rule("M-2")
@pytest.mark.parametrize("seed", range(5))
def test_the_order_of_insertion_does_not_matter_for_what_matches(sketch, seed: int) -> None:
    chance = random.Random(seed)
    texts = ["".join(chance.choices("ab", k=chance.randint(1, 9))) for _ in range(8)]
    puts = [
        (t, "".join(chance.choices("*.", k=len(t))), "".join(chance.choices("*.", k=len(t)))) for t in texts
    ]
    answers = set()
    for _ in range(6):
        chance.shuffle(puts)
        tree: Sketch = sketch(full=Full(), swa=Window(2), state=Checkpoint())
        for text, swa, state in puts:
            tree.put(text, swa=swa, state=state)
        found = [tree.find(text) for text in sorted(texts)]
        answers.add(
            str([(m.boundary_tokens, m.path_tokens, m.votes, m.limited_by, m.branch_tokens) for m in found])
        )
        tree.core.check()
    assert len(answers) == 1


@pytest.mark.rule("M-2", "K-2")
@pytest.mark.parametrize("seed", range(3))
def test_a_larger_page_finds_what_single_tokens_find_rounded_down(sketch, seed: int) -> None:
    """Full attention finds the longest common prefix; with pages of one token, of tokens."""
    chance = random.Random(seed)
    texts = ["".join(chance.choices("ab", k=chance.randint(0, 14))) for _ in range(12)]
    for page in (1, 2, 4):
        tree: Sketch = sketch(page_tokens=page, full=Full())
        for text in texts:
            tree.put(text)
        for asked in ("".join(chance.choices("ab", k=14)) for _ in range(30)):
            whole = [text[: len(text) // page * page] for text in texts]
            shared = max(
                next((i for i, (x, y) in enumerate(zip(t, asked, strict=False)) if x != y), len(t))
                for t in whole
            )
            assert tree.hit(asked) == shared // page * page


@pytest.mark.rule("M-2", "R-1")
@pytest.mark.parametrize("composition", COMPOSITIONS, ids=lambda composition: composition.name)
def test_every_boundary_is_valid_and_none_deeper_is(composition: Composition) -> None:
    """Without the oracle: what is held is read off the events, what is needed off the rules (R-1)."""
    for core_type in core_types(own=composition.own):
        tree = Sketch(core_type, composition.rules, composition.page_tokens)
        grow_and_check(tree, composition)


def grow_and_check(tree: Sketch, composition: Composition) -> None:
    """Puts and evicts at random, and asks after each of it."""
    chance = random.Random(composition.name)
    page = composition.page_tokens
    letters = ["".join(chance.choices("ab", k=page)) for _ in range(2)]
    held: dict[str, set[str]] = {name: set() for name in composition.rules}
    for step in range(150):
        text = "".join(chance.choices(letters, k=chance.randint(1, 8)))
        if step % 4:
            tree.put(
                text,
                **{
                    n: "".join(chance.choices("*.", k=len(text) // page))
                    for n, r in composition.rules.items()
                    if not r.prefix_closed
                },
            )
        else:
            tree.core.evict(chance.choice(list(composition.rules)), chance.randint(1, 4))
        follow(tree, held)
        found = tree.find(text)
        deepest = max(b for b in range(len(text) // page + 1) if agreed(composition, held, text, b))
        assert found.boundary_tokens == deepest * page


def follow(tree: Sketch, held: dict[str, set[str]]) -> None:
    """Keeps, by component, the hex keys of the pages held."""
    for event in tree.core.take_events():
        keys = {key.hex() for key in event.page_keys}
        held[event.component] = (
            held[event.component] | keys if event.kind == "stored" else held[event.component] - keys
        )


def agreed(composition: Composition, held: dict[str, set[str]], text: str, boundary: int) -> bool:
    """R-1 for all components, with the pages named as events name them."""
    keys = [key.hex() for key in page_keys(HERE.seed(), as_tokens(tokens_of(text)), composition.page_tokens)]
    return all(
        keys[page] in held[name]
        for name, rule in composition.rules.items()
        for page in range(rule.first_page(boundary, composition.page_tokens), boundary)
    )
