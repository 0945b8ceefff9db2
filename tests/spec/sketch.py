"""Trees that can be drawn: tokens are letters, values are bitmaps, and the dump is read back as letters.

    tree.put("abcdef", swa="....**", state=".....*")

puts six pages into a tree (of one-token pages), with a window over the last two and a state at the end;
`*` is a page given, `.` is a hole. A prefix-closed component gives all pages unless told otherwise.
`picture()` is `dump()` with the letters in place of the checksums and without what a test does not show.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable

import numpy as np

from graftline.components import ComponentSpec, ReuseRule
from graftline.key import Namespace
from graftline.plan import Freed, Held, Insertion, Lease, Match
from graftline.policies import EvictionPolicy
from graftline.tree import TreeCore

HERE = Namespace("m")


def tokens_of(text: str) -> list[int]:
    """One token a letter."""
    return [ord(letter) for letter in text]


class Sketch:
    """A core and the letters that were put into it.

    The slots of the first component count from 0, of the second from 100, of the third from 200.
    """

    def __init__(
        self,
        core_type: Callable[..., TreeCore],
        rules: dict[str, ReuseRule],
        page_tokens: int = 1,
        policy: EvictionPolicy | str | None = None,
        **limits: float,
    ) -> None:
        specs = [ComponentSpec(name, rule, slots=100) for name, rule in rules.items()]
        self.core = core_type(specs, page_tokens=page_tokens, policy=policy, record_events=True, **limits)
        self.rules = rules
        self.page_tokens = page_tokens
        self.next_slot = {name: 100 * index for index, name in enumerate(rules)}
        self.seen: dict[str, str] = {}

    # -- requests --------------------------------------------------------------------------------------

    def find(self, text: str, limit: int | None = None, namespace: Namespace = HERE) -> Match:
        return self.core.match(namespace, tokens_of(text), limit)

    def hit(self, text: str, limit: int | None = None) -> int:
        """The agreed boundary in tokens."""
        return self.find(text, limit).boundary_tokens

    def hold(self, text: str = "", limit: int | None = None, namespace: Namespace = HERE) -> Lease:
        """A lease of the longest reusable prefix; of the empty one for no text."""
        return self.core.lease(self.find(text, limit, namespace))

    def claim(self, text: str, boundary: int | None = None) -> Lease:
        """A claim of a boundary on the known path, of the end of it where none is told."""
        found = self.find(text)
        return self.core.claim(found, found.path_tokens if boundary is None else boundary)

    def use(self, text: str) -> None:
        """One use: a lease that is given back at once."""
        self.core.release(self.hold(text))

    def grow(self, lease: Lease, text: str, *, move: bool = True, **bitmaps: str) -> Insertion:
        """Adds `text` after a lease's boundary, with the pages of the bitmaps."""
        start, pages = lease.boundary_tokens // self.page_tokens, len(text) // self.page_tokens
        for name, rule in self.rules.items():
            if rule.prefix_closed:
                bitmaps.setdefault(name, "*" * pages)
        values = {name: self.runs(name, start, bitmap) for name, bitmap in bitmaps.items()}
        self.remember(text)
        return self.core.insert(lease, tokens_of(text), values, move_lease=move)

    def put(self, text: str, *, namespace: Namespace = HERE, **bitmaps: str) -> Insertion:
        """A request that computed all of `text` and ended."""
        lease = self.hold(namespace=namespace)
        done = self.grow(lease, text, move=False, **bitmaps)
        self.core.release(lease)
        return done

    def serve(self, prompt: str) -> Match:
        """A whole request as the cache makes it: reuse, stop where something is to be kept, end (C-5).

        Of windows and the like it gives what its boundary needs, of states the one at the boundary.
        """
        found = self.find(prompt, len(prompt) - 1)
        lease = self.core.lease(found)
        page = self.page_tokens
        replay, whole = (len(prompt) - 1) // page * page, len(prompt) // page * page
        for stop in sorted({found.branch_tokens, replay, whole}):
            begin = lease.boundary_tokens
            if stop > begin:
                bitmaps = {name: self.needed(name, begin, stop) for name in self.rules}
                lease = self.grow(lease, prompt[begin:stop], **bitmaps).lease
        self.core.release(lease)
        return found

    def needed(self, name: str, begin: int, end: int) -> str:
        """Bitmap of the pages in `[begin, end)` that the boundary `end` needs; all are given in tokens."""
        pages = range(begin // self.page_tokens, end // self.page_tokens)
        first = self.rules[name].first_page(pages.stop, self.page_tokens)
        return "".join("*" if page >= first else "." for page in pages)

    def register(self, name: str, text: str = "", **hints: float) -> bool:
        """A request of a session that ends at the longest reusable prefix of `text`."""
        lease = self.hold(text)
        known = self.core.register(self.core.open_session(name, **hints), lease)
        self.core.release(lease)
        return known

    def evict(self, name: str, slots: int) -> list[int]:
        """Slots of `name` that left, in order."""
        return slots_of(self.core.evict(name, slots), name)

    def runs(self, name: str, start: int, bitmap: str) -> list[Held]:
        """The runs of a bitmap, with new slots."""
        found = []
        for run in re.finditer(r"\*+", bitmap):
            first = self.next_slot[name]
            self.next_slot[name] += len(run[0])
            found.append(Held(start + run.start(), np.arange(first, first + len(run[0]), dtype=np.int32)))
        return found

    # -- pictures --------------------------------------------------------------------------------------

    def remember(self, text: str) -> None:
        """Learns the checksum of every run of pages in `text`."""
        for first in range(0, len(text), self.page_tokens):
            for end in range(first + self.page_tokens, len(text) + 1, self.page_tokens):
                data = np.array(tokens_of(text[first:end]), dtype="<u4").tobytes()
                self.seen[f"#{zlib.crc32(data):08x}"] = text[first:end]

    def picture(self, *, ticks: bool = False, valid: bool = False) -> str:
        """The dump without namespaces; ticks of the last use and valid boundaries where they are told."""
        lines = [line[2:] for line in self.core.dump().splitlines() if line.startswith(" ")]
        text = re.sub(r"#[0-9a-f]{8}", lambda found: self.seen.get(found[0], "root"), "\n".join(lines))
        text = text if ticks else re.sub(r" @\d+", "", text)
        return text if valid else re.sub(r" valid \d+\.\.\d+", "", text)


def slots_of(freed: Freed, name: str) -> list[int]:
    """Slots that a component gave up, in order."""
    return freed.slots[name].tolist() if name in freed.slots else []


def drawn(text: str) -> str:
    """A picture written into a test, without its indentation."""
    lines = text.strip("\n").rstrip().splitlines()
    margin = min(len(line) - len(line.lstrip()) for line in lines)
    return "\n".join(line[margin:] for line in lines)
