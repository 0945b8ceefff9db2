"""What is special about the Rust core; that it does as the others do is shown in `tests/differential`."""

from __future__ import annotations

import threading
from array import array
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from graftline.components import Checkpoint, Chunk, ComponentSpec, Full, ReuseRule, Window
from graftline.errors import ConfigError, StaleHandleError
from graftline.key import Namespace
from graftline.plan import Freed, Held, Insertion, Lease, Match
from graftline.policies import POLICIES, Cost, EvictionPolicy, Lfu, Lru, Session, Slru, Usage
from graftline.tree import PythonCore, TreeCore
from graftline.tree.rust import RustCore

SPACE = Namespace("m")
SPECS = (ComponentSpec("full", Full(), 64), ComponentSpec("swa", Window(3), 64))
NO_SLOTS: dict[str, list[Held]] = {}


def slots(first: int, end: int) -> np.ndarray:
    return np.arange(first, end, dtype=np.int32)


def grown(core: TreeCore, tokens: list[int], first_slot: int = 0) -> Lease:
    """A path in the tree, leased at its end."""
    root = core.lease(core.match(SPACE, []))
    pages = len(tokens) // core.page_tokens
    values = {spec.name: [Held(0, slots(first_slot, first_slot + pages))] for spec in core.specs}
    return core.insert(root, tokens, values, move_lease=True).lease


class Halves(ReuseRule):
    def first_page(self, boundary_pages: int, page_tokens: int) -> int:
        return boundary_pages // 2


class WideWindow(Window):
    """Differs from `Window`, though it is one."""

    def first_page(self, boundary_pages: int, page_tokens: int) -> int:
        return 0


class MostUsed(EvictionPolicy):
    name = "most-used"

    def rank(self, usage: Usage) -> float:
        return float(usage.uses)


@pytest.mark.rule("R-8")
@pytest.mark.parametrize("rule", [Halves(), WideWindow(3)], ids=["own", "subclass"])
def test_a_rule_of_ones_own_is_refused_and_the_way_out_named(rule: ReuseRule) -> None:
    specs = [ComponentSpec("mine", rule, 8)]
    with pytest.raises(ConfigError, match=r"'mine'.*does not know the rule.*use the Python core"):
        RustCore(specs, page_tokens=1)
    PythonCore(specs, page_tokens=1)


class MyLru(Lru):
    """Differs from `Lru`, though it is one."""


@pytest.mark.parametrize("policy", [MyLru(), Session(MostUsed())], ids=["subclass", "base"])
def test_a_policy_that_only_looks_known_is_refused(policy: EvictionPolicy) -> None:
    with pytest.raises(ConfigError, match=r"does not know the policy.*use the Python core"):
        RustCore(SPECS, page_tokens=1, policy=policy)


@pytest.mark.rule("P-2")
@pytest.mark.parametrize(
    "policy", [*POLICIES, "lfu(7)", "slru(3)", "session(lfu(7))", Lfu(7), Session(Slru(3)), Cost()], ids=str
)
def test_every_policy_of_the_folder_is_taken_as_text_or_object(policy: EvictionPolicy | str) -> None:
    core = RustCore(SPECS, page_tokens=1, policy=policy)
    core.release(grown(core, [1, 2]))
    assert core.evict("full", 9).slots["full"].tolist() == [1, 0]


@pytest.mark.parametrize("policy", ["mru", "lfu(0)", "slru(x)", "session(session)"])
def test_a_policy_that_does_not_exist_is_refused_with_the_words_of_the_python_core(policy: str) -> None:
    told = []
    for core_type in (PythonCore, RustCore):
        with pytest.raises(ConfigError) as error:
            core_type(SPECS, page_tokens=1, policy=policy)
        told.append(str(error.value))
    assert told[0] == told[1]


def test_a_policy_of_ones_own_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"does not know the policy.*use the Python core"):
        RustCore(SPECS, page_tokens=1, policy=MostUsed())
    assert RustCore(SPECS, page_tokens=1, policy=Lru()).name == "rust"


@pytest.mark.parametrize(
    "settings",
    [
        {"specs": [], "page_tokens": 1},
        {"specs": [SPECS[0], SPECS[0]], "page_tokens": 1},
        {"specs": SPECS, "page_tokens": 0},
        {"specs": SPECS, "page_tokens": -1},
        {"specs": SPECS, "page_tokens": 1, "session_ttl_s": 0.0},
        {"specs": SPECS, "page_tokens": 1, "session_ttl_s": float("nan")},
        {"specs": SPECS, "page_tokens": 1, "max_sessions": 0},
    ],
)
def test_settings_are_refused_with_the_words_of_the_python_core(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as python:
        PythonCore(**settings)
    with pytest.raises(ConfigError) as rust:
        RustCore(**settings)
    assert str(rust.value) == str(python.value)


@pytest.mark.rule("K-1", "K-2")
def test_tokens_may_come_in_every_form() -> None:
    torch = pytest.importorskip("torch")
    core = RustCore(SPECS, page_tokens=2)
    ids = [3, 2**32 - 1, 0, 7, 5]
    core.release(grown(core, ids))
    wide = np.array([[n, 9] for n in ids], dtype=np.uint32)
    forms = [
        ids,
        tuple(ids),
        np.array(ids, dtype=np.uint32),
        np.array(ids, dtype=np.int64),
        array("I", ids),
        array("q", ids),
        wide[:, 0],
        torch.tensor(ids, dtype=torch.int64),
        memoryview(np.array(ids, dtype=np.uint32)),
        np.array(ids, dtype=">u4"),
        unaligned(np.array(ids, dtype=np.uint32)),
    ]
    assert [core.match(SPACE, form).boundary_tokens for form in forms] == [4] * len(forms)


def unaligned(values: np.ndarray) -> np.ndarray:
    return np.frombuffer(b"x" + values.tobytes(), dtype=values.dtype, offset=1)


@pytest.mark.rule("N-4")
def test_slots_may_come_in_every_form() -> None:
    given = [7, 8, 2**31 - 1]
    plain = np.array(given, dtype=np.int32)
    plain.setflags(write=False)
    forms = [
        plain,
        plain[::-1].copy()[::-1],
        np.repeat(plain, 2)[::2],
        plain.astype(">i4"),
        plain.astype(np.int64),
        plain.astype(np.uint32),
        unaligned(plain),
    ]
    for form in forms:
        core = RustCore(SPECS[:1], page_tokens=1)
        done = core.insert(core.lease(core.match(SPACE, [])), [1, 2, 3], {"full": [Held(0, form)]})
        (run,) = done.adopted["full"]
        assert (run.slots.tolist(), run.slots.dtype) == (given, np.dtype(np.int32))
        assert sorted(core.evict("full", 3).slots["full"].tolist()) == given


def test_slots_of_two_dimensions_are_refused() -> None:
    core = RustCore(SPECS[:1], page_tokens=1)
    lease = core.lease(core.match(SPACE, []))
    with pytest.raises(ConfigError, match=r"one-dimensional, got shape \(1, 2\)"):
        core.insert(lease, [1, 2], {"full": [Held(0, slots(0, 2).reshape(1, 2))]})


@pytest.mark.rule("K-1")
@pytest.mark.parametrize("tokens", [[-1], [2**32], [0.5], [[1, 2]], np.ones((2, 2), dtype=np.uint32), ["a"]])
def test_bad_tokens_are_refused_with_the_words_of_the_python_core(tokens: Any) -> None:
    told = []
    for core in (PythonCore(SPECS, page_tokens=1), RustCore(SPECS, page_tokens=1)):
        with pytest.raises(ConfigError) as error:
            core.match(SPACE, tokens)
        told.append(str(error.value))
    assert told[0] == told[1]


@pytest.mark.parametrize("core", [PythonCore(SPECS, page_tokens=1), RustCore(SPECS, page_tokens=1)])
def test_numbers_below_zero_are_refused(core: TreeCore) -> None:
    with pytest.raises(ConfigError, match="limit_tokens is -1, it must not be negative"):
        core.match(SPACE, [1], -1)
    with pytest.raises(ConfigError, match="cannot evict -2 slots"):
        core.evict("full", -2)
    with pytest.raises(
        ConfigError, match=r"no component is named 'x' \(hint: the components are full, swa\)"
    ):
        core.evict("x", 1)


@pytest.mark.rule("D-2")
def test_results_are_the_classes_of_the_plan() -> None:
    core = RustCore(SPECS, page_tokens=1)
    found = core.match(SPACE, [1, 2])
    lease = core.lease(found)
    done = core.insert(lease, [1, 2], {"full": [Held(0, np.array([4, 5]))]})
    assert isinstance(found, Match)
    assert isinstance(lease, Lease)
    assert isinstance(done, Insertion)
    assert done.lease is lease
    assert done.adopted["full"][0].slots.dtype == np.int32
    assert isinstance(core.clear(), Freed)


@pytest.mark.rule("D-1", "K-3")
@pytest.mark.parametrize(
    "text", ["", "it's", "'\"", "\\", "\n\x00\x7f", "é\xa0\u200b\u2028", "\U0001f600 e\u0301"]
)
def test_namespaces_are_dumped_and_seeded_as_python_does(text: str) -> None:
    space = Namespace(text, -7, text, text)
    dumps, keys = [], []
    for core in (
        PythonCore(SPECS[:1], page_tokens=1, record_events=True),
        RustCore(SPECS[:1], page_tokens=1, record_events=True),
    ):
        core.insert(core.lease(core.match(space, [])), [5], {"full": [Held(0, slots(0, 1))]})
        dumps.append(core.dump())
        (event,) = core.take_events()
        assert event.namespace == space
        keys.append((event.parent_key, event.page_keys))
    assert dumps[0] == dumps[1]
    assert keys[0] == keys[1]


@pytest.mark.rule("L-1")
def test_slots_of_a_lease_stay_those_of_the_moment_of_the_lease() -> None:
    core = RustCore(SPECS, page_tokens=1)
    lease = grown(core, [1, 2, 3, 4])
    core.release(lease)
    assert core.evict("full", 4).count("full") == 4
    grown(core, [1, 2, 3, 4], first_slot=50)
    assert lease.held["full"].slots.tolist() == [0, 1, 2, 3]
    assert lease.held["swa"].first_page == 1
    assert lease.held["swa"].slots.tolist() == [1, 2, 3]
    assert lease.held["full"] is lease.held["full"]


@pytest.mark.rule("N-4", "N-5")
def test_what_an_insertion_tells_stays_that_of_its_moment() -> None:
    core = RustCore(SPECS, page_tokens=1)
    given, tokens = slots(10, 16), [1, 2, 3, 4, 5, 6]
    root = core.lease(core.match(SPACE, []))
    done = core.insert(root, tokens, {"full": [Held(0, given)], "swa": [Held(2, given[2:5])]})
    given[:] = -1  # the caller's own
    again = core.insert(root, tokens, {"full": [Held(0, slots(20, 32)[::2])]})
    assert core.evict("full", 6).slots["full"].tolist() == [15, 14, 13, 12, 11, 10]
    assert core.stats().nodes == 1
    assert [(name, [run.first_page for run in runs]) for name, runs in done.adopted.items()] == [
        ("full", [0]),
        ("swa", [2]),
    ]
    assert done.adopted["full"][0].slots.tolist() == [10, 11, 12, 13, 14, 15]
    assert done.adopted["swa"][0].slots.tolist() == [12, 13, 14]
    assert done.duplicates == again.adopted == {}
    assert list(again.duplicates) == ["full"]
    assert again.duplicates["full"][0].slots.tolist() == [20, 22, 24, 26, 28, 30]


@pytest.mark.rule("K-3")
def test_namespaces_given_in_turn_are_kept_apart() -> None:
    core = RustCore(SPECS[:1], page_tokens=1)
    for number in range(3):
        space = Namespace("m", number)
        core.insert(core.lease(core.match(space, [])), range(number), {"full": [Held(0, slots(0, number))]})
    for _ in range(2):
        for number in range(3):
            found = core.match(Namespace("m", number), [0, 1, 2])  # each time another object
            assert (found.boundary_tokens, found.namespace.weight_epoch) == (number, number)
            assert core.held_pages("full", found.namespace) == number


def test_what_a_lease_holds_is_a_mapping() -> None:
    held = grown(RustCore(SPECS, page_tokens=1), [1, 2]).held
    assert isinstance(held, Mapping)
    assert (len(held), list(held), list(held.keys())) == (2, ["full", "swa"], ["full", "swa"])
    assert "swa" in held
    assert "x" not in held
    assert 5 not in held
    assert held.get("x") is None
    assert [(name, run.end_page) for name, run in held.items()] == [("full", 2), ("swa", 2)]
    assert [run.end_page for run in held.values()] == [2, 2]
    with pytest.raises(KeyError, match="x"):
        held["x"]


@pytest.mark.rule("T-6")
def test_a_handle_is_stale_after_its_end() -> None:
    core = RustCore(SPECS, page_tokens=1)
    lease = grown(core, [1, 2])
    core.release(lease)
    with pytest.raises(StaleHandleError, match="was released before"):
        core.release(lease)
    with pytest.raises(StaleHandleError, match="was released before"):
        core.insert(lease, [3], NO_SLOTS)


@pytest.mark.rule("S-1", "S-2")
def test_many_sessions_come_and_go() -> None:
    core = RustCore(SPECS, page_tokens=1, policy="session", session_ttl_s=50.0, max_sessions=1000)
    lease = grown(core, [1, 2, 3])
    quiet = core.dump()
    for number in range(100_000):
        assert core.register(core.open_session(f"session {number}", expected_return_s=1.0), lease)
        if number % 100 == 0:
            core.set_time(number / 100.0)
    assert core.stats().sessions == 1000
    assert " sessions 1000" in core.dump()
    closed = core.set_time(2000.0)
    assert (len(closed), closed[0], closed[-1]) == (1000, "session 99000", "session 99999")
    core.check()
    assert core.dump() == quiet


def test_numbers_of_sessions_are_refused() -> None:
    core = RustCore(SPECS, page_tokens=1)
    for priority in (-1, 1 << 20, 1 << 40):
        with pytest.raises(ConfigError, match=f"priority is {priority}, it must be from 0 to 1048575"):
            core.open_session("a", priority=priority)
    with pytest.raises(ConfigError, match=r"expected_return_s is -1\.0, it must be 0 or more"):
        core.open_session("a", expected_return_s=-1.0)
    with pytest.raises(ConfigError, match="the time is inf"):
        core.set_time(float("inf"))
    with pytest.raises(ConfigError, match="no session is named 'a'"):
        core.fork_session("a", "b")
    assert not core.close_session("a")


@pytest.mark.rule("D-3")
def test_other_threads_match_beside_the_owner() -> None:
    specs = (*SPECS, ComponentSpec("chunk", Chunk(4), 64), ComponentSpec("state", Checkpoint(), 64))
    core = RustCore(specs, page_tokens=1)
    keys = [list(range(start, start + 24)) for start in range(0, 64, 8)]
    started, stop = threading.Barrier(4), threading.Event()
    wrong: list[str] = []

    def look() -> None:
        started.wait()
        while not stop.is_set():
            for key in keys:
                found = core.match(SPACE, key)
                if not found.boundary_tokens <= found.path_tokens <= len(key) or len(found.votes) != len(
                    specs
                ):
                    wrong.append(repr(found))

    readers = [threading.Thread(target=look) for _ in range(3)]
    for reader in readers:
        reader.start()
    started.wait()
    for turn in range(300):
        core.release(grown(core, keys[turn % len(keys)], first_slot=24 * turn))
        core.evict("full", turn % 20)
        if turn % 50 == 0:
            core.clear()
        core.check()
    stop.set()
    for reader in readers:
        reader.join()
    assert wrong == []
    core.clear()
    assert core.dump() == ""
