"""A request that runs alone begins while its load comes, layer by layer; the text is the same (rule H-10)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from engine_support import (
    PATIENCE_S,
    Client,
    assert_greedy,
    one_of_each_composition,
    patch_loads,
    random_prompt,
    replay_boundary,
    serving,
)
from runner_support import SERVED, poison

from graftline.cache import load as load_module
from graftline.cache.layered import LayeredCopy, layered_copy
from graftline.plan import Tier
from graftline.tiers import RowPart
from graftline.tiers.worth import BreakEven

FAMILIES = one_of_each_composition()
PROMPT = random_prompt(1, 75)
OTHER = random_prompt(2, 20)


def tiers(**more: Any) -> dict[str, Any]:
    return {"host_ratio": 20.0, "break_even": BreakEven(), **more}


def to_host(client: Client, prompt: list[int] = PROMPT) -> None:
    """A prompt is in the host alone, and whatever is read of the device before it came is not a number."""
    client.ask(prompt, 2)
    with client.engine._changed:
        client.engine.cache.lower.flush()
    client.engine.clear_cache()
    poison(client.engine._runner)


class JustInTime:
    """Each tensor comes to the device only when a step asks for it, and none before.

    Attributes:
        asked: tensors for which a step came before they were there, in its order.
        reading: set when a step has come to the first of them.
        begun: set when a load has begun.
        held: whether a step that asks has to wait for `let_go`.
    """

    def __init__(
        self, client: Client, monkeypatch: pytest.MonkeyPatch, fails: Callable[[str], bool] = lambda _: False
    ) -> None:
        self.asked: list[tuple[str, str]] = []
        self.begun, self.reading, self.held = threading.Event(), threading.Event(), False
        self._fails = fails
        self._permits, self._granted = threading.Semaphore(0), 0
        self._copy: LayeredCopy | None = None
        patch_loads(client, monkeypatch, self._slowly)
        monkeypatch.setattr(load_module, "layered_copy", self._begin)
        gate = client.engine.cache.lower.link.gate
        self._wait = gate.wait
        monkeypatch.setattr(gate, "wait", self._waiting)

    def _slowly(self, copy: Any) -> Any:
        def slow(slots: Any, values: Any, part: RowPart | None = None) -> None:
            if part is None:
                copy(slots, values)
                return
            self._permits.acquire()
            if self._fails(part.tensor):
                raise OSError("no")
            copy(slots, values, part)

        return slow

    def _begin(self, *given: Any) -> LayeredCopy | None:
        self._copy = layered_copy(*given)
        if self._copy is not None:
            self._granted = 0
            self._grant(self._copy.progress._head)
        self.begun.set()
        return self._copy

    @property
    def later(self) -> list[tuple[str, str]]:
        """Tensors of the load that may come after somebody has begun to read."""
        progress = self._copy.progress
        return [tensor for tensor, place in progress._places.items() if place >= progress._head]

    def _grant(self, count: int) -> None:
        if count > self._granted:
            self._permits.release(count - self._granted)
            self._granted = count

    def _waiting(self, component: str, tensor: str) -> None:
        place = self._copy.progress._places.get((component, tensor))
        if place is not None and place >= self._granted:
            self.asked.append((component, tensor))
            self.reading.set()
            if not self.held:
                self._grant(place + 1)
        self._wait(component, tensor)

    def let_go(self) -> None:
        """Everything may come."""
        self.held = False
        self._grant(len(self._copy.progress._places))


def layers(tensors: list[tuple[str, str]]) -> list[int]:
    return [int(name.split(".")[0]) for _, name in tensors]


@pytest.mark.rule("H-10")
@pytest.mark.rule("X-1")
@pytest.mark.parametrize("family", SERVED)
def test_no_tensor_is_read_before_it_is_there(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(family, **tiers()) as client:
        client.record_logits()
        cold = client.logits_of(PROMPT, 3)
        to_host(client)
        just = JustInTime(client, monkeypatch)
        warm = client.logits_of(PROMPT, 3)
        assert torch.equal(warm, cold)
        to_host(client)
        outcome = client.ask(PROMPT, 3)
        assert_greedy(family, [PROMPT], [outcome], 3)
        boundary = replay_boundary(PROMPT, client.engine.info.page_tokens)
        assert (outcome.reused, outcome.reuse.host_tokens) == (boundary, boundary)
        assert set(layers(just.asked)) == set(layers(just.later))
        with client.engine._changed:
            client.engine.cache.lower.await_opened()
            client.engine.cache.lower.flush()
        assert not client.engine.cache.lower.link.gate.is_open
        client.assert_idle_and_whole()


@pytest.mark.rule("H-10")
@pytest.mark.parametrize("family", FAMILIES)
def test_a_load_that_breaks_off_while_it_is_read_is_made_again(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The step is given up, what it wrote of states with it; the texts are the same."""
    with serving(family, **tiers()) as client:
        to_host(client)
        last = max(
            (part for pool in client.engine.cache.pools.values() for part in pool.parts),
            key=lambda part: part.layer,
        )
        JustInTime(client, monkeypatch, lambda tensor: int(tensor.split(".")[0]) == last.layer)
        outcomes = [client.ask(PROMPT, 3), client.ask(OTHER, 3)]
        assert_greedy(family, [PROMPT], outcomes[:1], 3)
        assert_greedy(family, [OTHER], outcomes[1:], 3)
        dropped = client.engine.cache.lower.flow.dropped
        reasons = {reason for _, _, reason in dropped}
        assert reasons & {"copied again", "copy failed"}, "one layer alone is given up before it is read"
        with client.engine._changed:
            client.engine.cache.lower.flush()
        client.assert_idle_and_whole()


@pytest.mark.rule("H-10")
def test_a_load_that_cannot_be_made_again_ends_the_engine_with_a_word_to_everybody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with serving("inkling", **tiers()) as client:
        to_host(client)
        just = JustInTime(client, monkeypatch, lambda _: just.reading.is_set())
        for pool in client.engine.cache.pools.values():
            monkeypatch.setattr(pool, "import_rows", lambda *_: 1 / 0)
        outcome = client.ask(PROMPT, 3)
        assert (outcome.finish, outcome.error) == ("error", "the engine stopped: ZeroDivisionError")
        assert client.engine.failed


@pytest.mark.rule("H-10")
@pytest.mark.parametrize("end", ["abort", "finish"])
def test_a_request_that_ends_while_it_reads_leaves_nothing(end: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving("inkling", **tiers()) as client:
        to_host(client)
        just = JustInTime(client, monkeypatch)
        just.held = True
        pending = client.submit(PROMPT, 30)
        assert just.reading.wait(PATIENCE_S)
        getattr(client.engine, end)(pending.ident)
        just.let_go()
        assert pending.wait().finish == {"abort": "abort", "finish": "stop"}[end]
        outcome = client.ask(PROMPT, 3)
        assert_greedy("inkling", [PROMPT], [outcome], 3)
        assert outcome.reused == replay_boundary(PROMPT, client.engine.info.page_tokens)
        with client.engine._changed:
            client.engine.cache.lower.flush()
        client.assert_idle_and_whole()


@pytest.mark.rule("H-10")
@pytest.mark.parametrize("family", FAMILIES)
def test_those_that_come_meanwhile_wait_for_the_step_and_read_the_same_pages(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One shares the prompt of the load, one does not."""
    with serving(family, **tiers()) as client:
        to_host(client)
        just = JustInTime(client, monkeypatch)
        just.held = True
        pending = [client.submit(PROMPT, 3)]
        assert just.begun.wait(PATIENCE_S)
        if just.later:  # else it is read when it has come as a whole
            assert just.reading.wait(PATIENCE_S)
        pending += [client.submit(PROMPT, 3), client.submit(OTHER, 3)]
        just.let_go()
        outcomes = [request.wait() for request in pending]
        assert_greedy(family, [PROMPT] * 2, outcomes[:2], 3)
        assert_greedy(family, [OTHER], outcomes[2:], 3)
        with client.engine._changed:
            client.engine.cache.lower.flush()
        client.assert_idle_and_whole()


@pytest.mark.rule("H-10")
@pytest.mark.rule("X-8")
def test_beside_others_a_load_is_waited_for_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """They use the time; nobody waits in a step."""
    with serving("inkling", **tiers()) as client:
        to_host(client)
        copies = []
        patch_loads(
            client, monkeypatch, lambda copy: lambda *given: (copies.append(len(given)), copy(*given))
        )
        running = client.submit(OTHER, 200)
        running.wait_for_token()
        outcome = client.ask(PROMPT, 3)
        client.engine.abort(running.ident)
        assert_greedy("inkling", [PROMPT], [outcome], 3)
        assert outcome.reuse.host_tokens > 0
        assert set(copies) == {2}, "rows and their slots: never a part of them"
        assert client.engine.cache.lower.flow.pages["full", Tier.HOST, Tier.DEVICE] > 0
