"""P: orders of eviction; each drawn on a tree of states, of which any one may leave."""

from __future__ import annotations

import pytest

from differential.compositions import FewestUses
from graftline.components import Checkpoint, Full, Window
from graftline.errors import ConfigError
from graftline.policies import (
    Cost,
    EvictionPolicy,
    Lfu,
    Lru,
    Session,
    Slru,
    Usage,
    as_policy,
    is_built_in,
    make_policy,
)
from graftline.policies.lfu import log2_by_lines
from spec.sketch import Sketch


def states(sketch, policy: EvictionPolicy | str, texts: str = "abcd") -> Sketch:
    """One state under each letter, in slots 0, 1, 2, ..., put there in this order."""
    tree: Sketch = sketch(state=Checkpoint(), policy=policy)
    for text in texts:
        tree.put(text, state="*")
    return tree


def use(tree: Sketch, texts: str) -> None:
    for text in texts:
        tree.use(text)


@pytest.mark.rule("P-2")
def test_lru(sketch) -> None:
    tree = states(sketch, "lru")
    use(tree, "ba")
    assert tree.evict("state", 9) == [2, 3, 1, 0]


@pytest.mark.rule("P-2")
def test_lfu(sketch) -> None:
    """a was used three times more, b once more, d and c not again; equal counts leave by recency."""
    tree = states(sketch, "lfu")
    use(tree, "aaab")
    assert tree.evict("state", 9) == [2, 3, 1, 0]


@pytest.mark.rule("P-2", "P-5")
def test_lfu_forgets(sketch) -> None:
    """With a half-life of two uses, five early uses weigh less than one late one."""
    tree = states(sketch, "lfu(2)", "a")
    use(tree, "aaaa")
    for text in "bcdefgh":
        tree.put(text, state="*")
    assert tree.evict("state", 5) == [1, 2, 3, 0, 4]


def test_halving_and_the_logarithm_fit_each_other() -> None:
    """A count left alone keeps its rank, whatever the moment in which it is decayed."""
    policy = Lfu(half_life_ticks=8)
    for count in (1.0, 2.0, 4.0, 64.0):
        for ticks in (0, 3, 8, 11, 16):
            left = policy.decayed(count, ticks)
            if left >= 0.5:
                assert log2_by_lines(left) == pytest.approx(log2_by_lines(count) - ticks / 8, abs=0.6)
    assert [log2_by_lines(count) for count in (1.0, 2.0, 3.0, 4.0, 1024.0)] == [0.0, 1.0, 1.5, 2.0, 10.0]
    assert policy.decayed(5.0, 8) == 2.5
    assert policy.decayed(5.0, 8 * 64) == 0.0


@pytest.mark.rule("P-2")
def test_slru_lets_a_scan_through(sketch) -> None:
    tree = states(sketch, "slru", "ab")
    use(tree, "ab")
    for text in "cdef":
        tree.put(text, state="*")
    assert tree.evict("state", 9) == [2, 3, 4, 5, 0, 1]


@pytest.mark.rule("P-2")
def test_slru_protects_from_as_many_uses_on_as_told(sketch) -> None:
    tree = states(sketch, "slru(3)")
    use(tree, "aaab")
    assert tree.evict("state", 9) == [2, 3, 1, 0]


@pytest.mark.rule("P-2", "S-7")
def test_priority(sketch) -> None:
    tree = states(sketch, "priority")
    tree.register("high", "b", priority=9)
    tree.register("low", "a", priority=1)
    use(tree, "cd")
    assert tree.evict("state", 9) == [2, 3, 0, 1]


@pytest.mark.rule("P-2", "P-3")
def test_session_order_is_the_number_of_sessions_then_the_base(sketch) -> None:
    tree = states(sketch, "session", "abcde")
    tree.register("one", "a")
    tree.register("two", "c")
    tree.core.fork_session("two", "three")
    use(tree, "be")
    assert tree.evict("state", 1) == [3]
    assert tree.evict("state", 2) == [1, 4]
    tree.core.close_session("two")
    tree.core.close_session("three")
    assert tree.evict("state", 9) == [2, 0], "closing asks the policy again, without a use"


@pytest.mark.rule("P-2")
def test_session_over_lfu(sketch) -> None:
    tree = states(sketch, "session(lfu)")
    use(tree, "aab")
    tree.register("one", "c")
    assert tree.evict("state", 9) == [3, 1, 0, 2]


@pytest.mark.rule("P-3")
def test_only_what_is_referenced_of_a_node_is_spared(sketch) -> None:
    """The window of the session begins inside the node of another path: its half there stays longer."""
    tree: Sketch = sketch(full=Full(), swa=Window(3), policy="session")
    tree.put("abcdef", swa="******")
    tree.put("XYZ", swa="***")
    tree.register("one", "abcdef")
    tree.use("XYZ")
    assert tree.evict("swa", 4)[:3] == [106, 107, 108], "used later, but nobody comes back to it"
    tree.core.check()


@pytest.mark.rule("P-2", "P-5")
def test_cost_learns_which_runs_come_back(sketch) -> None:
    """Of two kinds, one came back again and again, the other never: a scan passes through."""
    tree = states(sketch, "cost", "ab")
    for number in range(60):
        use(tree, "ab")
        tree.put(chr(1000 + number), state="*")
    for number in range(6):
        tree.put(chr(2000 + number), state="*")
    assert set(tree.evict("state", 66)) == set(range(2, 68)), "though the last six were used later"


@pytest.mark.rule("P-2")
def test_cost_keeps_the_state_whose_loss_costs_more(sketch) -> None:
    """Both states were used alike; falling back from the long one computes ten pages again, not one."""
    tree: Sketch = sketch(full=Full(), state=Checkpoint(), policy="cost")
    tree.put("abcdefghij", state=".........*")
    tree.put("k", state="*")
    for text in ("abcdefghij", "k") * 20:
        tree.use(text)
    assert tree.evict("state", 1) == [101], "used last, but cheap to compute again"


@pytest.mark.rule("P-4")
def test_a_policy_is_asked_once_more_before_something_leaves(own_sketch) -> None:
    class SecondChance(Lru):
        asked: list[int]

        def rerank(self, usage: Usage, now_s: float, clock: int) -> float:
            self.asked.append(usage.last_tick)
            return clock + 1.0 if usage.uses > 1 else usage.rank

    policy = SecondChance()
    policy.asked = []
    tree = states(own_sketch, policy)
    use(tree, "bacd")
    for text in "ef":
        tree.put(text, state="*")
    assert tree.evict("state", 2) == [4, 5], "all that was used twice goes back into the order"
    assert policy.asked == [5, 6, 7, 8, 9, 10]
    assert tree.evict("state", 1) == [1], "and is not asked again"
    assert len(policy.asked) == 6
    tree.use("a")
    tree.core.register(tree.core.open_session("one"), tree.core.claim(tree.find("c"), 1))
    assert tree.evict("state", 3) == [3, 0], "the claim keeps c"
    assert policy.asked[6:] == [11], "but after a use it is"
    tree.core.clear()
    assert len(policy.asked) == 7


@pytest.mark.rule("P-4", "E-2")
def test_values_of_no_use_are_not_asked_for(own_sketch) -> None:
    class Never(Lru):
        def rerank(self, usage: Usage, now_s: float, clock: int) -> float:
            raise AssertionError

    tree: Sketch = own_sketch(full=Full(), state=Checkpoint(), policy=Never())
    tree.put("abcd", state=".*..")
    assert tree.evict("full", 2) == [3, 2]


@pytest.mark.rule("P-6")
@pytest.mark.parametrize(
    "text",
    [
        "lru",
        "lfu",
        "lfu(7)",
        "slru",
        "slru(5)",
        "priority",
        "cost",
        "session(lru)",
        "session(lfu(9))",
        "session(cost)",
    ],
)
def test_a_policy_is_made_again_from_its_text(core_type, text: str) -> None:
    policy = make_policy(text)
    assert (policy.text, type(make_policy(policy.text)), is_built_in(policy)) == (text, type(policy), True)
    tree = Sketch(core_type, {"full": Full()}, policy=policy)
    tree.put("ab")
    assert tree.evict("full", 1) == [1]


@pytest.mark.rule("P-6")
@pytest.mark.parametrize(
    "text",
    [
        "",
        "mru",
        "LRU",
        "lru()",
        "lru(3)",
        "lfu()",
        "lfu(0)",
        "lfu(-1)",
        "slru(x)",
        "session(mru)",
        "session(session)",
        "cost(1)",
    ],
)
def test_another_text_is_refused_and_the_way_out_named(core_type, text: str) -> None:
    with pytest.raises(ConfigError):
        make_policy(text)
    if text:
        with pytest.raises(ConfigError):
            Sketch(core_type, {"full": Full()}, policy=text)


@pytest.mark.rule("P-6")
def test_settings_give_a_policy_a_text_or_nothing() -> None:
    mine = Lru()
    assert as_policy(mine) is mine
    assert type(as_policy(None)) is Lru
    assert as_policy("session").text == "session(lru)"
    assert [is_built_in(policy) for policy in (None, "cost", mine, Session(Slru()), Cost())] == [True] * 5
    assert [is_built_in(policy) for policy in (FewestUses(), Session(FewestUses()))] == [False] * 2


@pytest.mark.rule("P-3", "E-2")
def test_the_policy_is_asked_anew_where_a_reference_ends_inside_of_what_leaves(own_sketch) -> None:
    """All but two pages of each path are of no use; the session refers to the last two of the second path."""

    class LonelyLast(Lru):
        def rank(self, usage: Usage) -> float:
            return float(-usage.sessions)

    tree: Sketch = own_sketch(swa=Window(2), state=Checkpoint(), policy=LonelyLast())
    tree.put("uvwxyz", swa="******", state=".*....")
    lease = tree.grow(tree.hold(), "abcdef", swa="******", state=".*....").lease
    tree.core.register(tree.core.open_session("one"), lease)
    tree.core.release(lease)
    assert tree.evict("swa", 4) == [11, 10, 5, 4], "then the second path is like the first, but used later"
    tree.core.check()
