"""The oracle: what `docs/design.md` says, as brute force over one dictionary.

    pages    (namespace, tokens up to the end of the page) -> Page

There is no tree, no run, no counter and no order kept between calls. Whatever is asked is found again
from the dictionary: a boundary is valid when the pages that it needs are there, a node is the set of
pages with one label, the next page to leave is the least of all pages that may leave. The only thing
that a page-wise world does not give by itself is where nodes end; rules T-2, T-3, L-1 and N-6 name
those places, and `cut` marks them by relabelling the pages before the cut.

`places.py` tells what is where, `visits.py` who uses what, this file what changes the pages.
Slow on purpose, and written from the rules, not from the core.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise

import numpy as np

from differential.places import Key, LeaseNote, Page
from differential.text import dump_text, page_event
from differential.visits import Visits
from graftline.errors import ConfigError, StaleHandleError
from graftline.key import Namespace
from graftline.plan import Event, Freed, Held, Insertion, Lease, Match, PoolStats, TreeStats, Vote

Wanted = Callable[[Key], bool]


class Oracle(Visits):
    """The operations of `TreeCore`, page by page."""

    name = "oracle"

    # -- match and lease ------------------------------------------------------------------------------

    def match(self, namespace: Namespace, tokens: Sequence[int], limit_tokens: int | None = None) -> Match:
        """M-1 to M-5."""
        limit = len(tokens) if limit_tokens is None else min(limit_tokens, len(tokens))
        offered: Key = (namespace, tuple(int(token) for token in tokens[:limit]))
        known = 0
        while known < self.pages_of(offered) and self.prefix(offered, known + 1) in self.pages:
            known += 1
        path = self.prefix(offered, known)
        boundary = self.deepest(path, self.names)
        own = {name: self.deepest(path, [name]) for name in self.names}
        without = {name: self.deepest(path, [n for n in self.names if n != name]) for name in self.names}
        limiting = self.limiting(boundary, known, own, without)
        closed = [own[name] for name in self.closed]
        branch = min(closed, default=known)
        tokens_of = self.page_tokens
        return Match(
            namespace=namespace,
            boundary_tokens=boundary * tokens_of,
            path_tokens=known * tokens_of,
            votes=tuple(Vote(n, own[n] * tokens_of, without[n] * tokens_of) for n in self.names),
            limited_by=limiting,
            lost_tokens=(known - boundary) * tokens_of,
            reason=self.refusal(path, limiting, own, without) if limiting else "",
            branch_tokens=branch * tokens_of if branch > boundary else 0,
            node=self.pages[self.prefix(path, boundary)].node if boundary else 0,
            path_node=self.pages[path].node if known else 0,
        )

    def limiting(self, boundary: int, known: int, own: dict[str, int], without: dict[str, int]) -> str:
        """M-4: without which component most would have been won, or which accepts least."""
        if boundary == known:
            return ""
        if max(without.values()) > boundary:
            return max(self.names, key=lambda name: without[name])
        return min(self.names, key=lambda name: own[name])

    def refusal(self, path: Key, name: str, own: dict[str, int], without: dict[str, int]) -> str:
        """M-4: the reason."""
        refused = without[name] if without[name] > own[name] else self.pages_of(path)
        if any(name in self.pages[k].lost for k in self.needs(name, self.prefix(path, refused))):
            return "evicted"
        return self.rules[name].refusal

    def lease(self, match: Match) -> Lease:
        """L-1, P-1."""
        boundary = match.boundary_tokens // self.page_tokens
        if boundary == 0:
            return self.grant((match.namespace, ()))
        node = self.node(match.node)
        end = self.prefix(node[-1], boundary) if node else (match.namespace, ())
        if self.pages_of(end) < boundary or not self.valid(end, self.names):
            raise StaleHandleError("outdated match")
        self.cut(end)
        granted = self.grant(end)
        self.touch(end)
        return granted

    def claim(self, match: Match, boundary_tokens: int) -> Lease:
        """L-6."""
        end = self.place(match, boundary_tokens)
        self.cut(end)
        return self.grant(end)

    def holdings(self, match: Match, boundary_tokens: int) -> dict[str, tuple[Held, ...]]:
        """L-7."""
        end = self.place(match, boundary_tokens)
        held = {name: self.held_in(self.path(end, 0, self.pages_of(end)), name) for name in self.names}
        return {name: self.gapless_runs(name, keys) for name, keys in held.items()}

    def gapless_runs(self, name: str, keys: Sequence[Key]) -> tuple[Held, ...]:
        """Runs as long as they can be of held pages of one path, shallow before deep."""
        starts = [i for i, k in enumerate(keys) if not i or self.pages_of(k) > self.pages_of(keys[i - 1]) + 1]
        runs = [keys[i:j] for i, j in pairwise([*starts, len(keys)])]
        slots = [np.array([self.pages[k].slots[name] for k in run], dtype=np.int32) for run in runs]
        return tuple(Held(self.pages_of(r[0]) - 1, s) for r, s in zip(runs, slots, strict=True))

    def place(self, match: Match, boundary_tokens: int) -> Key:
        """The end of a boundary on a match's known path."""
        if boundary_tokens % self.page_tokens or not 0 <= boundary_tokens <= match.path_tokens:
            raise ConfigError("no boundary of the path")
        if boundary_tokens == 0:
            return (match.namespace, ())
        node = self.node(match.path_node)
        end = self.prefix(node[-1], boundary_tokens // self.page_tokens) if node else (match.namespace, ())
        if len(end[1]) < boundary_tokens:
            raise StaleHandleError("outdated match")
        return end

    def grant(self, end: Key) -> Lease:
        """A new lease at the end of a node."""
        handle = self.new_label()
        self.leases[handle] = LeaseNote(end, set(self.names))
        return Lease(handle, len(end[1]), {name: self.reused(name, end) for name in self.names})

    def reused(self, name: str, end: Key) -> Held:
        """Needed pages up to the boundary, as far back as there is no gap."""
        slots: list[int] = []
        for k in reversed(self.needs(name, end)):
            if name not in self.pages[k].slots:
                break
            slots.insert(0, self.pages[k].slots[name])
        return Held(self.pages_of(end) - len(slots), np.array(slots, dtype=np.int32))

    def release(self, lease: Lease) -> None:
        """L-2."""
        self.note(lease)
        del self.leases[lease.handle]
        self.tidy()

    def release_components(self, lease: Lease, names: Sequence[str]) -> None:
        """L-3."""
        note = self.note(lease)
        for name in names:
            self.known_name(name)
        note.components -= set(names)

    # -- insert ---------------------------------------------------------------------------------------

    def insert(
        self,
        lease: Lease,
        tokens: Sequence[int],
        values: Mapping[str, Sequence[Held]],
        *,
        move_lease: bool = False,
    ) -> Insertion:
        """N-1 to N-6."""
        note = self.note(lease)
        start = self.pages_of(note.end)
        added = tuple(int(token) for token in tokens)
        whole = len(added) // self.page_tokens * self.page_tokens
        end: Key = (note.end[0], note.end[1] + added[:whole])
        given = self.read_values(values, end, start)
        new = [k for k in self.path(end, start, self.pages_of(end)) if k not in self.pages]
        missing = [(name, k) for name in self.closed for k in new if k not in given[name]]
        if missing:
            raise ConfigError(f"missing {missing}")
        if new:
            self.cut(self.prefix(end, self.pages_of(new[0]) - 1))
            label = self.new_label()
            self.pages.update({k: Page(label) for k in new})
            self.found.clear()
        adopted, duplicates = {}, {}
        for name in self.names:
            mine = given[name]
            adopted[name] = {k: slot for k, slot in mine.items() if name not in self.pages[k].slots}
            duplicates[name] = {k: slot for k, slot in mine.items() if k not in adopted[name]}
            self.adopt(name, adopted[name])
        if move_lease:
            self.cut(end)
        self.touch(end, {name: set(taken) for name, taken in adopted.items()})
        moved = self.grant(end) if move_lease else lease
        if move_lease:
            del self.leases[lease.handle]
        self.tidy()
        return Insertion(len(end[1]), len(new), self.as_runs(adopted), self.as_runs(duplicates), moved)

    def read_values(
        self, values: Mapping[str, Sequence[Held]], end: Key, start: int
    ) -> dict[str, dict[Key, int]]:
        """N-2: every page given, once each, inside the inserted path."""
        given: dict[str, dict[Key, int]] = {name: {} for name in self.names}
        for name, runs in values.items():
            self.known_name(name)
            for run in runs:
                for page, slot in enumerate(run.slots, run.first_page):
                    key = self.prefix(end, page + 1)
                    if not start <= page < self.pages_of(end) or key in given[name]:
                        raise ConfigError(f"page {page} of '{name}' lies outside or is given twice")
                    given[name][key] = int(slot)
        return given

    def adopt(self, name: str, taken: Mapping[Key, int]) -> None:
        """N-5, and T-3: where a component would hold several runs of a node, each but the last ends one."""
        for key, slot in sorted(taken.items(), key=lambda item: len(item[0][1])):
            self.pages[key].slots[name] = slot
            self.events.append(page_event(self, "stored", name, key, ""))
        self.found.clear()
        for label in {self.pages[key].node for key in taken}:
            held = self.held_in(self.node(label), name)
            for here, following in pairwise(held):
                if self.pages_of(following) > self.pages_of(here) + 1:
                    self.cut(here)

    def as_runs(self, pages: Mapping[str, Mapping[Key, int]]) -> dict[str, tuple[Held, ...]]:
        """Pages as runs of one page each; the comparison joins runs."""
        return {
            name: tuple(
                Held(self.pages_of(k) - 1, np.array([slot], dtype=np.int32)) for k, slot in given.items()
            )
            for name, given in pages.items()
            if given
        }

    # -- evict ----------------------------------------------------------------------------------------

    def evict(self, component: str, slots: int, namespace: Namespace | None = None) -> Freed:
        """E-2 to E-6, E-8: the least of all pages that may leave, again and again."""
        if slots < 0:
            raise ConfigError(f"cannot evict {slots} slots")
        self.known_name(component)
        left: list[tuple[str, int, str]] = []
        self.refresh(component)
        for _ in range(slots):
            candidates = self.candidates(component, namespace)
            while candidates and self.is_spared(*min(candidates)[1:], component):
                candidates = self.candidates(component, namespace)
            if not candidates:
                break
            _, key, reason = min(candidates)
            if component in self.closed:
                lost = [(n, "path evicted" if n not in self.closed else reason) for n in self.names]
            else:
                lost = [(component, reason)]
            for name, why in lost:
                left += self.remove(name, [key], why)
            self.tidy()
        return self.freed(left)

    def refresh(self, name: str) -> None:
        """P-7: every so often all candidates are asked."""
        candidates = self.candidates(name, None) if self.policy.ages else []
        self.evictions[name] += 1
        if self.evictions[name] * 16 >= len(candidates):
            self.evictions[name] = 0
            for _, key, _ in candidates:
                node = self.node(self.pages[key].node)
                self.ask(node, name, self.usage(node, name))

    def drop(self, lease: Lease, component: str, boundary_tokens: int) -> Freed:
        """E-9: one state of a path, unless a lease, a session or another path needs it."""
        self.known_name(component)
        note = self.note(lease)
        if not self.rules[component].holds_state:
            raise ConfigError(f"'{component}' holds no states")
        if boundary_tokens % self.page_tokens or not 0 < boundary_tokens <= len(note.end[1]):
            raise ConfigError("no boundary of the path")
        key = self.prefix(note.end, boundary_tokens // self.page_tokens)
        nexts = [k for k in self.below(key) if self.pages_of(k) == self.pages_of(key) + 1]
        told = any(key in self.refers(session, component) for session in self.sessions.values())
        if component not in self.pages[key].slots or self.leases_of(key, component) or told or nexts[1:]:
            return self.freed([])
        node = self.node(self.pages[key].node)
        held, live = self.held_in(node, component), self.live_pages(node, component)
        left = self.remove(component, [key], "evicted" if key in live else "dead")
        if key not in (held[0], held[-1]):  # T-3: the node ends where the first of its two runs does
            self.cut(self.prefix(key, self.pages_of(key) - 1))
        self.tidy()
        return self.freed(left)

    def held_pages(self, component: str, namespace: Namespace) -> int:
        """L-5: counted by walking."""
        self.known_name(component)
        return sum(key[0] == namespace and component in page.slots for key, page in self.pages.items())

    def candidates(
        self, name: str, namespace: Namespace | None
    ) -> list[tuple[tuple[int, int, float, int, int], Key, str]]:
        """What may leave of a component, one page a node; of one namespace, if told."""
        nodes = [node for node in self.nodes() if namespace in (None, node[0][0])]
        return [found for node in nodes if (found := self.next_page(node, name))]

    def is_spared(self, key: Key, reason: str, name: str) -> bool:
        """P-4: values of use are asked for once more."""
        node = self.node(self.pages[key].node)
        use = self.usage(node, name)
        if reason == "dead" or use.asked:
            return False
        use.asked = True
        rank = self.policy.rerank(use, self.now_s, self.clock)
        is_more = rank > use.rank
        use.rank = max(rank, use.rank)
        self.keep_usage(node, name, use)
        return is_more

    def next_page(
        self, node: list[Key], name: str
    ) -> tuple[tuple[int, int, float, int, int], Key, str] | None:
        """E-3, E-4: the page of a node that would leave next, with its place in the order (E-2, P-2)."""
        run = self.held_in(node, name)
        if not run:
            return None
        live = self.live_pages(node, name)
        if name in self.closed:
            if self.below(node[-1]) or node[-1] in {note.end for note in self.leases.values()}:
                return None
            page = run[-1]
        elif run[0] not in live and not self.leases_of(run[0], name):
            page = run[0]
        elif run[-1] not in live and not self.leases_of(run[-1], name):
            page = run[-1]
        elif not self.leases_of(run[0], name):
            page = run[0]
        else:
            return None
        use = self.pages[page].use[name]
        order = (int(page in live), use.level, use.rank, use.last_tick, self.pages_of(node[0]))
        return order, page, "evicted" if page in live else "dead"

    def remove(self, name: str, keys: Iterable[Key], reason: str) -> list[tuple[str, int, str]]:
        """Takes a component's values off pages; the nodes remember that they lost some."""
        left = []
        for key in keys:
            if name in self.pages[key].slots:
                left.append((name, self.pages[key].slots.pop(name), reason))
                self.events.append(page_event(self, "removed", name, key, reason))
                for k in self.node(self.pages[key].node):
                    self.pages[k].lost.add(name)
        self.found.clear()
        return left

    def tidy(self) -> None:
        """T-4, L-4: a page stays for a value on it, a page below it, or a lease that ends at it."""
        stays = {note.end for note in self.leases.values()}
        gone: list[tuple[Key, int]] = []
        for key in sorted(self.pages, key=self.pages_of, reverse=True):
            if self.pages[key].slots or key in stays:
                stays.add(self.prefix(key, self.pages_of(key) - 1))
            else:
                gone.append((key, self.pages.pop(key).node))
        self.found.clear()
        for note in self.sessions.values():  # S-5
            while note.frontier is not None and note.frontier not in self.pages:
                above = self.prefix(note.frontier, self.pages_of(note.frontier) - 1)
                note.frontier = above if above[1] else None
        self.ask_again()
        if self.policy.ages:
            self.ask_exposed(gone)

    def ask_exposed(self, gone: Iterable[tuple[Key, int]]) -> None:
        """P-7: nodes below which there was something, and is nothing any more."""
        labels = dict(gone)
        for key, label in gone:
            above = self.prefix(key, self.pages_of(key) - 1)
            parent = self.pages[above].node if above in self.pages else labels.get(above, label)
            node = self.node(parent) if parent != label else []
            for name in self.names:
                if node and not self.below(node[-1]) and self.held_in(node, name):
                    self.ask(node, name, self.usage(node, name))

    def freed(self, left: list[tuple[str, int, str]]) -> Freed:
        """The plan: slots in the order in which they left, and how many were of no use."""
        slots = {n: np.array([s for name, s, _ in left if name == n], dtype=np.int32) for n in self.names}
        dead = {
            n: sum(name == n and why in ("dead", "path evicted") for name, _, why in left) for n in self.names
        }
        return Freed({n: s for n, s in slots.items() if len(s)}, {n: d for n, d in dead.items() if d})

    def clear(self) -> Freed:
        """E-7: a prefix-closed value stays on the path of a lease, any other where a lease protects it."""
        paths = {k for note in self.leases.values() for k in self.path(note.end, 0, self.pages_of(note.end))}
        left = []
        for name in self.names:
            free: Wanted = (
                (lambda k: k not in paths)
                if name in self.closed
                else (lambda k, n=name: not self.leases_of(k, n))
            )
            left += self.remove(name, [k for k in self.pages if free(k)], "cleared")
        self.tidy()
        return self.freed(left)

    # -- reports --------------------------------------------------------------------------------------

    def take_events(self) -> list[Event]:
        """V-1: one event a page here."""
        events, self.events = self.events, []
        return events

    def roots(self) -> set[Namespace]:
        """Namespaces with a page or a lease."""
        return {key[0] for key in self.pages} | {note.end[0] for note in self.leases.values()}

    def stats(self) -> TreeStats:
        """L-5: counted by walking."""
        nodes = self.nodes()
        pools = []
        for name in self.names:
            held = self.held_in(self.pages, name)
            leased = sum(bool(self.leases_of(k, name)) for k in held)
            live = sum(len(self.live_pages(node, name).intersection(held)) for node in nodes)
            pools.append(PoolStats(name, self.tier, len(held), leased, len(held) - live))
        return TreeStats(
            nodes=len(nodes) + len(self.roots()),
            leases=len(self.leases),
            path_pages=len(self.pages),
            pools=tuple(pools),
            sessions=len(self.sessions),
        )

    def dump(self) -> str:
        """D-1."""
        return dump_text(self)

    def check(self) -> None:
        """Nothing is kept twice here, so nothing can contradict itself."""
