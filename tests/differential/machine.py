"""The state machine: drawn operations on small pages of few tokens, so that paths share and split."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from differential.compositions import Composition
from differential.harness import NAMESPACES, Everyone, Harness
from graftline.key import Namespace
from graftline.plan import Held

PAGES_MAX = 7

picks = st.integers(0, 31)
masks = st.integers(0, 2**PAGES_MAX - 1)
page_kinds = st.lists(st.integers(0, 2), max_size=PAGES_MAX)


@dataclass
class Open:
    """A lease that is out, with the tokens before its boundary."""

    lease: Everyone
    namespace: Namespace
    tokens: tuple[int, ...]


def page_of(kind: int, page_tokens: int) -> tuple[int, ...]:
    """One of three pages: two of them differ in the last token only, the third in the first too."""
    if page_tokens == 1:
        return (kind,)
    return (kind // 2, *[7] * (page_tokens - 2), kind % 2)


def name_of(pick: int) -> str:
    """One of five names of sessions."""
    return f"s{pick % 5}"


class Machine(RuleBasedStateMachine):
    """Drives the harness; a subclass names the composition."""

    composition: Composition
    harness_type: type[Harness] = Harness

    def __init__(self) -> None:
        super().__init__()
        self.page = self.composition.page_tokens
        self.open: list[Open] = []
        self.ended: list[Open] = []
        self.matches: list[tuple[Everyone, Namespace, tuple[int, ...]]] = []
        self.paths: list[tuple[Namespace, tuple[int, ...]]] = [(NAMESPACES[0], ())]
        self.sessions: list[Everyone] = []
        self.now_s = 0.0
        self.next_slot = 0

    @initialize(policy=picks)
    def start(self, policy: int) -> None:
        policies = self.composition.policies
        self.harness = self.harness_type(self.composition, policies[policy % len(policies)])

    # -- what is drawn ---------------------------------------------------------------------------------

    def tokens_of(self, kinds: Sequence[int]) -> tuple[int, ...]:
        return tuple(token for kind in kinds for token in page_of(kind, self.page))

    def rest(self, wanted: bool) -> tuple[int, ...]:
        """Less than a page of tokens (K-2)."""
        return (0,) * (self.page - 1) if wanted else ()

    def new_slots(self, count: int) -> np.ndarray:
        self.next_slot += count
        return np.arange(self.next_slot - count, self.next_slot, dtype=np.int32)

    def runs(self, pages: Sequence[int], cuts: int) -> list[Held]:
        """Pages as runs of new slots; a bit of `cuts` starts a new run though the pages are neighbours."""
        runs: list[list[int]] = []
        for page in pages:
            if runs and runs[-1][-1] == page - 1 and not cuts >> (page % PAGES_MAX) & 1:
                runs[-1].append(page)
            else:
                runs.append([page])
        return [Held(run[0], self.new_slots(len(run))) for run in runs]

    def values(
        self, namespace: Namespace, path: tuple[int, ...], start: int, given: Sequence[int], cuts: int
    ) -> dict[str, list[Held]]:
        """For each component the pages of its mask; of a prefix-closed one also those that are new."""
        end = len(path) // self.page
        known = self.harness.first.match(namespace, path).path_tokens // self.page
        values = {}
        for index, (name, rule_) in enumerate(self.composition.rules.items()):
            mask = given[index]
            pages = [
                page
                for page in range(start, end)
                if mask >> (page - start) & 1 or (rule_.prefix_closed and page >= known)
            ]
            values[name] = self.runs(pages, cuts)
        return values

    # -- operations ------------------------------------------------------------------------------------

    @rule(
        path=picks,
        keep=picks,
        kinds=page_kinds,
        rest=st.booleans(),
        less=st.integers(0, 5),
        other=st.booleans(),
    )
    def match(self, path: int, keep: int, kinds: list[int], rest: bool, less: int, other: bool) -> None:
        """Looks up a known path, cut somewhere and continued, perhaps with a rest of a page or a limit."""
        namespace, known = self.paths[path % len(self.paths)]
        namespace = NAMESPACES[1 - NAMESPACES.index(namespace)] if other else namespace
        kept = len(known) // self.page if keep >= PAGES_MAX else keep
        tokens = known[: kept * self.page] + self.tokens_of(kinds) + self.rest(rest)
        limit = max(0, len(tokens) - less + 1) if less else None
        found = self.harness.match(namespace, tokens, limit)
        self.matches = [*self.matches[-7:], (found, namespace, tokens)]

    @precondition(lambda self: self.matches)
    @rule(pick=picks)
    def lease(self, pick: int) -> None:
        """Leases one of the last matches, the newest for 0; older ones may be out of date."""
        found, namespace, tokens = self.matches[-1 - pick % len(self.matches)]
        lease = self.harness.lease(found)
        if lease is not None:
            boundary = lease.first.boundary_tokens
            self.open.append(Open(lease, namespace, tokens[:boundary]))

    @rule(path=picks, keep=picks, other=st.booleans())
    def match_and_lease(self, path: int, keep: int, other: bool) -> None:
        """A request arrives."""
        self.match(path, keep, [], False, 0, other)
        self.lease(0)

    @precondition(lambda self: self.matches)
    @rule(pick=picks, boundary=picks, off=st.integers(0, 7))
    def claim(self, pick: int, boundary: int, off: int) -> None:
        """Claims a place on the path of one of the last matches; what is held there is asked first (L-7)."""
        found, namespace, tokens = self.matches[-1 - pick % len(self.matches)]
        pages = found.first.path_tokens // self.page
        wanted = boundary % (pages + 1) * self.page
        if off == 7:
            wanted = pages * self.page + 1  # no place of the path
        self.harness.holdings(found, wanted)
        lease = self.harness.claim(found, wanted)
        if lease is not None:
            self.open.append(Open(lease, namespace, tokens[:wanted]))

    @precondition(lambda self: self.open)
    @rule(pick=picks)
    def release(self, pick: int) -> None:
        ended = self.open.pop(pick % len(self.open))
        self.harness.release(ended.lease)
        self.ended = [*self.ended[-3:], ended]

    @precondition(lambda self: self.open)
    @rule(pick=picks, which=masks)
    def release_components(self, pick: int, which: int) -> None:
        names = [name for index, name in enumerate(self.harness.names) if which >> index & 1]
        self.harness.release_components(self.open[pick % len(self.open)].lease, names)

    @precondition(lambda self: self.ended)
    @rule(pick=picks, how=st.integers(0, 3))
    def use_ended_lease(self, pick: int, how: int) -> None:
        """A lease that was released is refused, whatever it is used for (T-6)."""
        lease = self.ended[pick % len(self.ended)].lease
        if how == 0:
            assert self.harness.release(lease) is None
        elif how == 1:
            assert self.harness.release_components(lease, self.harness.names) is None
        elif how == 2:
            assert self.harness.drop(lease, self.harness.names[0], self.page) is None
        else:
            assert self.harness.insert(lease, [], {}, False) is None

    @precondition(lambda self: self.open)
    @rule(
        pick=picks,
        follow=picks,
        keep=picks,
        kinds=page_kinds,
        rest=st.booleans(),
        given=st.lists(masks, min_size=3, max_size=3),
        cuts=masks,
        move=st.booleans(),
    )
    def insert(
        self,
        pick: int,
        follow: int,
        keep: int,
        kinds: list[int],
        rest: bool,
        given: list[int],
        cuts: int,
        move: bool,
    ) -> None:
        """Grows from a lease: along a known path if one goes on from it, then along new pages."""
        grown = self.open[pick % len(self.open)]
        base = len(grown.tokens)
        ahead = [
            tokens[base:]
            for namespace, tokens in self.paths
            if namespace == grown.namespace and tokens[:base] == grown.tokens and len(tokens) > base
        ]
        along = ahead[follow % len(ahead)][: keep % PAGES_MAX * self.page] if ahead else ()
        added = along + self.tokens_of(kinds)
        added = added[: (2 * PAGES_MAX * self.page - base)]
        path = grown.tokens + added
        values = self.values(grown.namespace, path, base // self.page, given, cuts)
        lease = self.harness.insert(grown.lease, added + self.rest(rest), values, move)
        assert lease is not None
        if move:
            grown.lease, grown.tokens = lease, path
        self.paths = [*self.paths[-15:], (grown.namespace, path)]

    @precondition(lambda self: self.open)
    @rule(pick=picks, kinds=page_kinds, name=picks, fault=st.integers(0, 4), move=st.booleans())
    def insert_wrongly(self, pick: int, kinds: list[int], name: int, fault: int, move: bool) -> None:
        """A faulty insertion is refused and changes nothing (N-2, N-3)."""
        grown = self.open[pick % len(self.open)]
        start, new = len(grown.tokens) // self.page, len(kinds)
        path = grown.tokens + self.tokens_of(kinds)
        values = self.values(grown.namespace, path, start, [0, 0, 0], 0)
        name_ = self.harness.names[name % len(self.harness.names)]
        if fault == 0:
            values[name_] = [Held(start - 1, self.new_slots(1))]
        elif fault == 1:
            values[name_] = [*values[name_], Held(start + new, self.new_slots(1))]
        elif fault == 2:
            values[name_] = [Held(start, self.new_slots(new)), Held(start + new - 1, self.new_slots(1))]
        elif fault == 3:
            values["nobody"] = [Held(start, self.new_slots(new))]
        else:
            missing = [n for n, runs in values.items() if self.composition.rules[n].prefix_closed and runs]
            if not missing:
                return
            runs = values[missing[0]]
            values[missing[0]] = [*runs[:-1], Held(runs[-1].first_page, runs[-1].slots[:-1])]
        assert self.harness.insert(grown.lease, path[len(grown.tokens) :], values, move) is None

    @rule(name=picks, slots=st.integers(0, 5), many=st.booleans(), space=st.integers(0, 5))
    def evict(self, name: int, slots: int, many: bool, space: int) -> None:
        """From everywhere or, now and then, from one namespace."""
        component = self.harness.names[name % len(self.harness.names)]
        namespace = NAMESPACES[space] if space < len(NAMESPACES) else None
        self.harness.evict(component, slots + 20 * many, namespace)

    @precondition(lambda self: self.open)
    @rule(pick=picks, name=picks, boundary=picks, off=st.integers(0, 7))
    def drop(self, pick: int, name: int, boundary: int, off: int) -> None:
        """A state of a leased path leaves, unless others need it; no other component gives one (E-9)."""
        chosen = self.open[pick % len(self.open)]
        names = [n for n, rule_ in self.composition.rules.items() if rule_.holds_state or off == 6]
        if names:
            pages = len(chosen.tokens) // self.page
            wanted = boundary % (pages + 1) * self.page + (off == 7)  # 0 and no page boundary are refused
            self.harness.drop(chosen.lease, names[name % len(names)], wanted)

    @rule(sure=st.integers(0, 3))
    def clear(self, sure: int) -> None:
        """Rare, so that trees grow between."""
        if sure == 3:
            self.harness.clear()

    # -- sessions --------------------------------------------------------------------------------------

    @rule(name=picks, priority=st.integers(-1, 3), back_s=st.sampled_from((None, None, 0.0, 5.0, 60.0, -1.0)))
    def open_session(self, name: int, priority: int, back_s: float | None) -> None:
        """A session of one of a few names; a hint below 0 is refused."""
        opened = self.harness.open_session(name_of(name), priority, back_s)
        assert (opened is None) == (priority < 0 or back_s == -1.0)
        self.keep_handle(opened)

    def keep_handle(self, handle: Everyone | None) -> None:
        """Handles are kept beyond the end of their session (S-4)."""
        if handle is not None and handle not in self.sessions:
            self.sessions = [*self.sessions[-7:], handle]

    @precondition(lambda self: self.open and self.sessions)
    @rule(session=picks, pick=picks, answer=st.sampled_from((None, None, 0, 1, 5, 40, 2**32 - 1, -1)))
    def register(self, session: int, pick: int, answer: int | None) -> None:
        """A request of a session ends, perhaps after it; an answer of less than nothing is refused."""
        lease = self.open[pick % len(self.open)].lease
        done = self.harness.register(self.sessions[-1 - session % len(self.sessions)], lease, answer)
        assert (done is None) == (answer == -1)

    @precondition(lambda self: self.ended and self.sessions)
    @rule(session=picks, pick=picks)
    def register_ended_lease(self, session: int, pick: int) -> None:
        lease = self.ended[pick % len(self.ended)].lease
        assert self.harness.register(self.sessions[session % len(self.sessions)], lease) is None

    @rule(name=picks, into=picks)
    def fork_session(self, name: int, into: int) -> None:
        self.keep_handle(self.harness.fork_session(name_of(name), name_of(into)))

    @rule(name=picks)
    def close_session(self, name: int) -> None:
        self.harness.close_session(name_of(name))

    @rule(passed_s=st.sampled_from((-3.0, 0.25, 7.0, 30.0, 100.0)))
    def set_time(self, passed_s: float) -> None:
        """Time passes; one that lies in the past is left out (S-2)."""
        self.now_s = max(self.now_s, self.now_s + passed_s)
        self.harness.set_time(self.now_s + min(passed_s, 0.0))

    def teardown(self) -> None:
        """After all releases nothing is protected: clearing leaves nothing at all (L-2, E-7)."""
        while self.open:
            self.harness.release(self.open.pop().lease)
        self.harness.clear()
        assert self.harness.first.dump() == ""
