"""Two servers on one Mooncake cluster, whose parts die under them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from e2e.live import TIERED, Graftline, Truth, running, until
from tiers.store.servers import Mooncake


def test_two_servers_and_a_cluster_that_dies(
    model: Path, truth: Truth, own_mooncake: Mooncake, numbers: Iterator[int]
) -> None:
    """What one computed the other reuses; when a node or the master dies, both go on by themselves."""
    own_mooncake.up(nodes=2)
    flags = (*TIERED, "--store", own_mooncake.url())
    one, other = Graftline(model, *flags), Graftline(model, *flags)
    with running(one, other):
        old = []
        for here, there in ((one, other), (other, one), (one, other), (other, one)):
            old.append(here.write(numbers))
            answer = there.ask(old[-1])
            assert answer.tiers["store"] > 0 == answer.tiers["device"] == answer.tiers["host"]
            assert answer.text == truth(old[-1])

        own_mooncake.nodes[0].kill()
        before = one.store()["misses"]
        every_answer_is_right(one, other, truth, old)
        assert one.store()["misses"] > before, "a dead node had nothing of four prompts"
        shared(one, other, truth, numbers)

        own_mooncake.master.kill()
        every_answer_is_right(one, other, truth, old)
        until(lambda: "down" in one.faults() and "down" in other.faults(), "a reason")

        own_mooncake.start_master()
        until(lambda: own_mooncake.lent_bytes() > 0, "the node that is left")
        shared(one, other, truth, numbers)
        assert (one.terminate(), other.terminate()) == (0, 0)


def every_answer_is_right(one: Graftline, other: Graftline, truth: Truth, old: list[str]) -> None:
    for server in (one, other):
        server.forget()
        for text in old:
            assert server.ask(text).text == truth(text)


def shared(one: Graftline, other: Graftline, truth: Truth, numbers: Iterator[int]) -> None:
    """New prompts are reused by the other one, as soon as the cluster takes and gives objects again."""

    def reused() -> bool:
        text = one.write(numbers)
        other.until_store_is_tried()
        answer = other.ask(text)
        assert answer.text == truth(text)
        return answer.tiers["store"] > 0

    until(reused, "reuse of what the other one computed")
