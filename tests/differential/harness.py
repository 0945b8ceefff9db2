"""One oracle and any number of cores, driven by the same operations and compared after each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from differential.compositions import Composition, cores_under_test, policy_of, settings
from differential.oracle import Oracle
from differential.text import chained_key
from graftline.errors import ConfigError, StaleHandleError
from graftline.key import Namespace
from graftline.plan import Event, Freed, Held, Insertion, Lease, Match
from graftline.tree import TreeCore

NAMESPACES = (Namespace("m"), Namespace("m", salt="t"))
"""Those in which the machine puts paths."""
OPERATIONS = "operations"
"""Under this name tests record how many operations they did."""
Refused = (ConfigError, StaleHandleError)


@dataclass(frozen=True)
class Everyone:
    """One result of an operation for each of the cores in their order: handles differ between them."""

    results: tuple[Any, ...]

    @property
    def first(self) -> Any:
        return self.results[0]


class Mirror:
    """What the events of one core rebuild (V-1): component -> keys of the pages that it holds."""

    def __init__(self, names: Iterable[str], page_tokens: int) -> None:
        self.held: dict[str, set[bytes]] = {name: set() for name in names}
        self.page_tokens = page_tokens

    def read(self, events: Iterable[Event]) -> list[tuple[object, ...]]:
        """Takes events in; returns them page by page, in an order that every core shares."""
        pages = []
        for event in events:
            assert event.kind in ("stored", "removed")
            parent = event.parent_key
            for offset, key in enumerate(event.page_keys):
                mine = self.held[event.component]
                assert (key in mine) == (event.kind == "removed"), (
                    "stored twice or removed without being there"
                )
                mine.symmetric_difference_update({key})
                first = offset * self.page_tokens
                tokens = tuple(event.tokens[first : first + self.page_tokens].tolist())
                page = event.first_page + offset
                pages.append(
                    (
                        event.kind,
                        event.component,
                        event.tier,
                        event.namespace.seed(),
                        page,
                        key,
                        parent,
                        tokens,
                        event.reason,
                    )
                )
                parent = key
        return sorted(pages)


class Harness:
    """The cores of one composition behind the oracle, which is the first of them.

    Attributes:
        operations: how many were done.
        compare_every: after how many of them everything is compared; results always are.
    """

    compare_every = 1

    def __init__(self, composition: Composition, policy: str) -> None:
        self.composition = composition
        self.names = list(composition.rules)
        self.page_tokens = composition.page_tokens
        self.cores = self.make_cores(policy)
        self.first = self.cores[0]
        self.mirrors = [Mirror(self.names, self.page_tokens) for _ in self.cores]
        self.operations = 0

    def make_cores(self, policy: str) -> list[TreeCore]:
        oracle = Oracle(policy=policy_of(policy), **settings(self.composition))
        return [oracle, *cores_under_test(self.composition, policy)]

    # -- operations ------------------------------------------------------------------------------------

    def match(self, namespace: Namespace, tokens: Sequence[int], limit_tokens: int | None = None) -> Everyone:
        before = self.picture()
        found = self.each(lambda core, _: core.match(namespace, tokens, limit_tokens), plain_match)
        assert self.picture() == before, "M-1: a match changed something"
        return found

    def lease(self, found: Everyone) -> Everyone | None:
        return self.each(lambda core, i: core.lease(found.results[i]), plain_lease)

    def claim(self, found: Everyone, boundary_tokens: int) -> Everyone | None:
        return self.each(lambda core, i: core.claim(found.results[i], boundary_tokens), plain_lease)

    def holdings(self, found: Everyone, boundary_tokens: int) -> Everyone | None:
        before = self.picture()
        held = self.each(lambda core, i: core.holdings(found.results[i], boundary_tokens), plain_holdings)
        assert self.picture() == before, "L-7: asking what is held changed something"
        return held

    def release(self, lease: Everyone) -> Everyone | None:
        return self.each(lambda core, i: core.release(lease.results[i]), as_it_is)

    def release_components(self, lease: Everyone, names: Sequence[str]) -> Everyone | None:
        return self.each(lambda core, i: core.release_components(lease.results[i], names), as_it_is)

    def insert(
        self, lease: Everyone, tokens: Sequence[int], values: Mapping[str, Sequence[Held]], move_lease: bool
    ) -> Everyone | None:
        """Returns the lease to go on with; None when the insertion was refused."""
        before = self.picture()
        done = self.each(
            lambda core, i: core.insert(lease.results[i], tokens, values, move_lease=move_lease),
            plain_insertion,
        )
        if done is None:
            assert self.picture() == before, "N-3: a refused insertion changed something"
            return None
        return Everyone(tuple(result.lease for result in done.results))

    def evict(self, component: str, slots: int, namespace: Namespace | None) -> Freed:
        freed = self.each(lambda core, _: core.evict(component, slots, namespace), plain_freed)
        assert freed is not None
        return freed.first

    def drop(self, lease: Everyone, component: str, boundary_tokens: int) -> Everyone | None:
        before = self.picture()
        freed = self.each(
            lambda core, i: core.drop(lease.results[i], component, boundary_tokens), plain_freed
        )
        if freed is None or not freed.first.slots:
            assert self.picture() == before, "E-9: what stays changed something"
        return freed

    def clear(self) -> Freed:
        freed = self.each(lambda core, _: core.clear(), plain_freed_in_any_order)
        assert freed is not None
        return freed.first

    def open_session(self, name: str, priority: int, expected_return_s: float | None) -> Everyone | None:
        hints: dict[str, Any] = {"priority": priority, "expected_return_s": expected_return_s}
        return self.each(lambda core, _: core.open_session(name, **hints), without_handle)

    def register(
        self, session: Everyone, lease: Everyone, answer_tokens: int | None = None
    ) -> Everyone | None:
        def at_one(core: Any, i: int) -> bool:
            return bool(core.register(session.results[i], lease.results[i], answer_tokens=answer_tokens))

        return self.each(at_one, as_it_is)

    def fork_session(self, source_name: str, target_name: str) -> Everyone | None:
        return self.each(lambda core, _: core.fork_session(source_name, target_name), without_handle)

    def close_session(self, name: str) -> Everyone | None:
        return self.each(lambda core, _: core.close_session(name), as_it_is)

    def set_time(self, now_s: float) -> Everyone | None:
        return self.each(lambda core, _: core.set_time(now_s), as_it_is)

    # -- comparison ------------------------------------------------------------------------------------

    def each(self, operation: Callable[[TreeCore, int], Any], plain: Callable[[Any], Any]) -> Everyone | None:
        """Runs one operation everywhere; None when everyone refuses it with the same error."""
        results, told = [], []
        for index, core in enumerate(self.cores):
            try:
                result = operation(core, index)
            except Refused as error:
                results.append(None)
                told.append(type(error))
            else:
                results.append(result)
                told.append(plain(result))
        for core, answer in zip(self.cores, told, strict=True):
            assert answer == told[0], f"{core.name} answers\n{answer}\ninstead of\n{told[0]}"
        self.operations += 1
        if self.operations % self.compare_every == 0:
            self.compare()
        return None if told[0] in Refused else Everyone(tuple(results))

    def picture(self) -> str:
        """The first core's dump, where an operation is to be compared at once; else nothing."""
        return self.first.dump() if self.compare_every == 1 else ""

    def compare(self) -> None:
        """Everything that can be asked without an operation."""
        dump, stats = self.first.dump(), self.first.stats()
        held = self.held_by_namespace(self.first)
        events = self.mirrors[0].read(self.first.take_events())
        keys = self.held_keys()
        for core, mirror in zip(self.cores[1:], self.mirrors[1:], strict=True):
            assert core.dump() == dump, f"{core.name} dumps\n{core.dump()}instead of\n{dump}"
            assert core.stats() == stats
            assert self.held_by_namespace(core) == held
            core.check()
            assert mirror.read(core.take_events()) == events
            assert mirror.held == keys, f"V-1: the events of {core.name} rebuild something else"

    def held_by_namespace(self, core: TreeCore) -> list[int]:
        """Pages of every component in every namespace."""
        return [core.held_pages(name, space) for name in self.names for space in NAMESPACES]

    def held_keys(self) -> dict[str, set[bytes]]:
        """What is held, by the keys under which events name it."""
        assert isinstance(self.first, Oracle)
        pages = self.first.pages.items()
        return {
            name: {chained_key(key, self.page_tokens) for key, page in pages if name in page.slots}
            for name in self.names
        }


class Pair(Harness):
    """Two cores without the oracle, for long walks: everything is compared now and then."""

    compare_every = 25

    def make_cores(self, policy: str) -> list[TreeCore]:
        return cores_under_test(self.composition, policy)

    def held_keys(self) -> dict[str, set[bytes]]:
        return self.mirrors[0].held


# -- results without handles, which every core numbers in its own way ---------------------------------


def as_it_is(result: object) -> object:
    return result


def without_handle(handle: int) -> object:
    return type(handle)


def plain_match(found: Match) -> object:
    return (
        found.namespace,
        found.boundary_tokens,
        found.path_tokens,
        found.votes,
        found.limited_by,
        found.lost_tokens,
        found.reason,
        found.branch_tokens,
    )


def plain_lease(lease: Lease) -> object:
    held = {name: (run.first_page, run.slots.tolist()) for name, run in lease.held.items()}
    return lease.boundary_tokens, held


def plain_insertion(done: Insertion) -> object:
    return (
        done.boundary_tokens,
        done.new_pages,
        plain_runs(done.adopted),
        plain_runs(done.duplicates),
        plain_lease(done.lease),
    )


def plain_runs(given: Mapping[str, Sequence[Held]]) -> object:
    """Pages and their slots in order of the page; how they were cut into runs is left open."""
    return {
        name: [(page, int(slot)) for run in runs for page, slot in enumerate(run.slots, run.first_page)]
        for name, runs in given.items()
    }


def plain_holdings(held: Mapping[str, Sequence[Held]]) -> object:
    """By component, its runs as they are."""
    return {name: [(run.first_page, run.slots.tolist()) for run in runs] for name, runs in held.items()}


def plain_freed(freed: Freed) -> object:
    return {name: slots.tolist() for name, slots in freed.slots.items()}, dict(freed.dead_pages)


def plain_freed_in_any_order(freed: Freed) -> object:
    return {name: sorted(slots.tolist()) for name, slots in freed.slots.items()}, dict(freed.dead_pages)
