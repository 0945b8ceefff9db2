"""C: any order of everything that requests do, on every composition, page size and core."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from graftline.cache import CachedRequest
from graftline.errors import CapacityError
from spec.cache_support import COMPOSITIONS, INSTALLED, Model


class Crowd(RuleBasedStateMachine):
    """Requests that share prefixes begin, compute, generate and end in any order, in small pools or large."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[CachedRequest] = []

    @initialize(
        composition=st.sampled_from(sorted(COMPOSITIONS)),
        page_tokens=st.sampled_from([1, 2, 4]),
        tight=st.booleans(),
        core=st.sampled_from(INSTALLED),
        cut_tokens=st.sampled_from([0, 8]),
    )
    def start(self, composition: str, page_tokens: int, tight: bool, core: str, cut_tokens: int) -> None:
        self.model = Model(composition, page_tokens, slots=60 // page_tokens if tight else 200, core=core)
        self.model.cache.cut_tokens = cut_tokens

    @precondition(lambda self: len(self.open) < 4)
    @rule(
        stem=st.integers(0, 24),
        tail=st.lists(st.integers(0, 2), min_size=1, max_size=8),
        use_cache=st.integers(0, 5).map(bool),
        marks=st.lists(st.integers(0, 25), max_size=1),
    )
    def begin(self, stem: int, tail: list[int], use_cache: bool, marks: list[int]) -> None:
        prompt = [*range(10, 10 + stem), *tail]
        try:
            request = self.model.begin(
                prompt, use_cache=use_cache, marks=[mark for mark in marks if mark <= len(prompt)]
            )
        except CapacityError:
            return
        self.open.append(request)

    @precondition(lambda self: self.open)
    @rule(which=st.integers(0, 3), most=st.integers(1, 12))
    def compute(self, which: int, most: int) -> None:
        request = self.open[which % len(self.open)]
        to_tokens = min(request.next_stop(), request.computed_tokens + most)
        if to_tokens > request.computed_tokens:
            self.attempt(request, to_tokens)

    @precondition(lambda self: self.open)
    @rule(which=st.integers(0, 3), tokens=st.lists(st.integers(0, 2), min_size=1, max_size=9))
    def generate(self, which: int, tokens: list[int]) -> None:
        request = self.open[which % len(self.open)]
        if request.computed_tokens == len(request.tokens):
            for token in tokens:
                request.append([token])
                if not self.attempt(request, len(request.tokens)):
                    break

    def attempt(self, request: CachedRequest, to_tokens: int) -> bool:
        try:
            self.model.compute(request, to_tokens)
        except CapacityError:
            return False
        return True

    @precondition(lambda self: self.open)
    @rule(which=st.integers(0, 3), how=st.sampled_from(["finish", "finish", "abort"]))
    def end(self, which: int, how: str) -> None:
        getattr(self.open.pop(which % len(self.open)), how)()

    @rule(data=st.data(), count=st.integers(1, 30))
    def evict(self, data: st.DataObject, count: int) -> None:
        name = data.draw(st.sampled_from(sorted(self.model.rules)))
        self.model.cache.settle(self.model.cache.core.evict(name, count))

    @invariant()
    def nothing_is_lost_and_every_reader_reads_what_is_right(self) -> None:
        if hasattr(self, "model"):
            self.model.cache.check()
            for request in self.open:
                self.model.verify(request)

    def teardown(self) -> None:
        if hasattr(self, "model"):
            for request in self.open:
                request.finish()
            self.model.assert_idle_and_whole()


class TestCrowd(Crowd.TestCase):
    """C-1, C-2, C-3, C-4, C-9, C-10 and C-14 together."""

    pytestmark = pytest.mark.rule("C-1", "C-2", "C-3", "C-4", "C-9", "C-10", "C-14")
