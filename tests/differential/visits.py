"""The oracle's part about who uses what: touches, ranks, sessions (rules P-1 to P-5, S-1 to S-8)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from differential.places import Key, Places, SessionNote
from graftline.errors import ConfigError
from graftline.plan import Lease
from graftline.policies import Passage, Usage


class Visits(Places):
    """Uses and sessions."""

    def touch(self, end: Key, fresh: Mapping[str, set[Key]] | None = None) -> None:
        """P-1: components in their order, shallow nodes before deep ones, a tick each."""
        self.ask_again()
        for name in self.names:
            used = set(self.needs(name, end)) | (fresh or {}).get(name, set())
            for node in self.nodes_on(end):
                if used.intersection(self.held_in(node, name)):
                    use = self.usage(node, name)
                    if self.policy.ages and fresh is None:
                        self.locate(node, use)
                        self.policy.found(use)
                    self.clock += 1
                    gaps = self.clock - use.last_tick, self.now_s - use.last_s
                    use.last_tick, use.last_s, use.uses = self.clock, self.now_s, use.uses + 1
                    self.locate(node, use)
                    use.children = self.children(node)
                    self.policy.touch(use, *gaps)
                    self.ask(node, name, use)

    def locate(self, node: list[Key], use: Usage) -> None:
        """P-1, P-8: where the node is."""
        use.start_page, use.end_page = self.pages_of(node[0]) - 1, self.pages_of(node[-1])

    def children(self, node: list[Key]) -> int:
        """How many nodes lie right below a node."""
        return sum(self.prefix(k, self.pages_of(k) - 1) == node[-1] for k in self.pages)

    def usage(self, node: list[Key], name: str) -> Usage:
        """A copy of what is known of a component's values in a node."""
        use = self.pages[node[0]].use.get(name)
        return use.copy() if use else Usage(self.names.index(name))

    def ask(self, node: list[Key], name: str, use: Usage) -> None:
        """P-2, P-3: level and rank, kept on all pages of the node."""
        before, use.sessions = use.sessions, self.sessions_of(node, name)
        if self.policy.ages and before and not use.sessions:
            self.locate(node, use)
            self.policy.left(use)
        use.level, use.rank = self.policy.level(use), self.policy.rank(use)
        use.stale = use.asked = False
        self.keep_usage(node, name, use)

    def keep_usage(self, node: list[Key], name: str, use: Usage) -> None:
        """The same usage on all pages of a node."""
        for k in node:
            self.pages[k].use[name] = use

    def ask_again(self) -> None:
        """P-3: wherever the number of sessions or a hint is not what the policy was told."""
        for node in self.nodes():
            for name in self.names:
                use = self.usage(node, name)
                changed = use.stale or use.sessions != self.sessions_of(node, name)
                if changed and self.held_in(node, name):
                    self.ask(node, name, use)

    # -- sessions -------------------------------------------------------------------------------------

    def refers(self, note: SessionNote, name: str) -> list[Key]:
        """S-3, S-5: pages of a component that a session refers to."""
        if note.registered is None or note.frontier is None:
            return []
        reach = self.pages_of(note.frontier)
        return [k for k in self.needs(name, note.registered) if self.pages_of(k) <= reach]

    def sessions_of(self, node: list[Key], name: str) -> int:
        """S-3: how many sessions refer to a value of a component in a node."""
        run = set(self.held_in(node, name))
        return sum(not run.isdisjoint(self.refers(note, name)) for note in self.sessions.values())

    def set_time(self, now_s: float) -> tuple[str, ...]:
        """S-2."""
        if not math.isfinite(now_s):
            raise ConfigError("no time")
        self.now_s = max(self.now_s, now_s)
        self.policy.set_time(self.now_s)
        idle = [n for n, note in self.sessions.items() if self.now_s - note.last_s > self.session_ttl_s]
        for name in idle:
            self.close_session(name)
        return tuple(idle)

    def open_session(self, name: str, *, priority: int = 0, expected_return_s: float | None = None) -> int:
        """S-1."""
        if not 0 <= priority < 2**20 or not 0 <= (expected_return_s or 0) < math.inf:
            raise ConfigError("no such hint")
        note = self.sessions.get(name)
        if note is None:
            if len(self.sessions) == self.max_sessions:
                self.close_session(next(iter(self.sessions)))
            note = SessionNote(self.new_label(), 0, None, 0.0)
        note.priority, note.expected_return_s = priority, expected_return_s
        self.renew(name, note)
        return note.handle

    def renew(self, name: str, note: SessionNote) -> None:
        """S-2: the session used last stands last."""
        note.last_s = self.now_s
        self.sessions.pop(name, None)
        self.sessions[name] = note

    def register(self, handle: int, lease: Lease, *, answer_tokens: int | None = None) -> bool:
        """S-3, S-4."""
        if answer_tokens is not None and not 0 <= answer_tokens < 2**32:
            raise ConfigError("no such answer")
        end = self.note(lease).end
        for name, note in self.sessions.items():
            if note.handle == handle:
                self.renew(name, note)
                self.tell_passage(note, end, answer_tokens)
                self.move_frontier(note, end, end)
                return True
        return False

    def tell_passage(self, note: SessionNote, end: Key, answer_tokens: int | None) -> None:
        """P-8: the session, then the runs of every component on its path, deep before shallow."""
        if not self.policy.ages:
            return
        kept, before = None, note.frontier
        if before is not None and self.prefix(end, self.pages_of(before)) != before:
            common = range(min(self.pages_of(before), self.pages_of(end)), -1, -1)
            kept = next((n for n in common if self.prefix(before, n) == self.prefix(end, n)), 0)
        last = self.node(self.pages[end].node) if end[1] else []
        answer = (
            float(len(last)) if all(self.usage(last, name).uses < 2 for name in self.names if last) else 0.0
        )
        if answer_tokens is not None:
            answer = answer_tokens / self.page_tokens
        self.policy.registered(Passage(note.handle, self.pages_of(end), kept, answer))
        for name in self.names:
            needed = self.needs(name, end)
            first = self.pages_of(needed[0]) - 1 if needed else self.pages_of(end)
            for node in reversed(self.nodes_on(end)):
                if self.pages_of(node[-1]) > first and self.held_in(node, name):
                    use = self.usage(node, name)
                    self.locate(node, use)
                    self.policy.passed(use)
                    use.stale = True
                    self.keep_usage(node, name, use)
        self.policy.settled()

    def move_frontier(self, note: SessionNote, registered: Key | None, frontier: Key | None) -> None:
        """S-4, S-7: every node with a page that is referenced now is told the hints."""
        if frontier is None or not frontier[1]:
            registered = frontier = None
        note.registered, note.frontier = registered, frontier
        for name in self.names:
            for label in {self.pages[k].node for k in self.refers(note, name)}:
                node = self.node(label)
                use = self.usage(node, name)
                before = use.priority, use.return_s
                use.priority = max(use.priority, note.priority)
                if note.expected_return_s is not None:
                    expected = self.now_s + note.expected_return_s
                    use.return_s = min(use.return_s, expected) if use.return_s > self.now_s else expected
                use.stale = use.stale or before != (use.priority, use.return_s)
                self.keep_usage(node, name, use)
        self.ask_again()

    def fork_session(self, source_name: str, target_name: str) -> int:
        """S-6."""
        if source_name not in self.sessions:
            raise ConfigError("no such session")
        source = replace(self.sessions[source_name])
        hints = {"priority": source.priority, "expected_return_s": source.expected_return_s}
        handle = self.open_session(target_name, **hints)
        self.move_frontier(self.sessions[target_name], source.registered, source.frontier)
        return handle

    def close_session(self, name: str) -> bool:
        """S-1."""
        closed = self.sessions.pop(name, None)
        self.ask_again()
        if closed is not None:
            self.policy.closed(closed.handle)
        return closed is not None
