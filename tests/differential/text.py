"""The oracle's own dump text and events."""

from __future__ import annotations

import hashlib
import zlib
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from graftline.key import Namespace
from graftline.plan import Event

if TYPE_CHECKING:
    from differential.oracle import Oracle
    from differential.places import Key


def dump_text(oracle: Oracle) -> str:
    """D-1: namespaces by their fields; below each its nodes, children by their tokens."""
    text = ""
    for namespace in sorted(oracle.roots(), key=lambda n: (n.model, n.weight_epoch, n.adapter, n.salt)):
        text += f"{namespace!r}\n"
        at_root = sum(note.end == (namespace, ()) for note in oracle.leases.values())
        if at_root:
            text += f"  0..0 #00000000 leases {at_root}\n"
        text += "".join(branch(oracle, (namespace, ()), 1))
    return text


def branch(oracle: Oracle, above: Key, depth: int) -> list[str]:
    """Lines of the nodes right below a prefix, each followed by its own branch."""
    start = oracle.pages_of(above)
    children = [node for node in oracle.nodes() if oracle.prefix(node[0], start) == above]
    children = [node for node in children if oracle.pages_of(node[0]) == start + 1]
    lines = []
    for node in sorted(children, key=lambda node: node[-1][1]):
        lines.append("  " * depth + node_line(oracle, node) + "\n")
        lines += branch(oracle, node[-1], depth + 1)
    return lines


def node_line(oracle: Oracle, node: list[Key]) -> str:
    """Place, checksum of the tokens, agreed boundaries, leases, holdings."""
    start, end = oracle.pages_of(node[0]) - 1, oracle.pages_of(node[-1])
    tokens = np.array(node[-1][1][start * oracle.page_tokens :], dtype="<u4")
    text = f"{start}..{end} #{zlib.crc32(tokens.tobytes()):08x}"
    agreed = [oracle.pages_of(key) for key in node if key in oracle.agreed()]
    if agreed:
        text += f" valid {min(agreed)}..{max(agreed)}"
    leases = sum(note.end == node[-1] for note in oracle.leases.values())
    if leases:
        text += f" leases {leases}"
    sessions = sum(note.frontier == node[-1] for note in oracle.sessions.values())
    if sessions:
        text += f" sessions {sessions}"
    for name in oracle.names:
        held = oracle.held_in(node, name)
        if held:
            slots = " ".join(str(oracle.pages[key].slots[name]) for key in held)
            first, tick = oracle.pages_of(held[0]) - 1, oracle.pages[held[0]].use[name].last_tick
            text += f" | {name} {first}..{first + len(held)} [{slots}] @{tick}"
        text += places_text(f" | {name} locks", start, lock_starts(oracle, node, name))
        text += places_text(f" | {name} references", start, reference_starts(oracle, node, name))
    return text


def places_text(what: str, start: int, firsts: list[int]) -> str:
    """How often something begins at which page of a node that starts at `start`; nothing for never."""
    places = Counter(max(start, first) for first in firsts)
    return what + "".join(f" {page}x{n}" for page, n in sorted(places.items())) if places else ""


def reference_starts(oracle: Oracle, node: list[Key], name: str) -> list[int]:
    """For each session that refers to the end of a node: the first page that it refers to."""
    pages = [oracle.refers(note, name) for note in oracle.sessions.values()]
    return [oracle.pages_of(referred[0]) - 1 for referred in pages if node[-1] in referred]


def lock_starts(oracle: Oracle, node: list[Key], name: str) -> list[int]:
    """For each lease that protects the end of a node: the first page that it needs."""
    return [oracle.pages_of(oracle.needs(name, end)[0]) - 1 for end in oracle.leases_of(node[-1], name)]


def page_event(oracle: Oracle, kind: str, name: str, key: Key, reason: str) -> Event:
    """V-1: what happened to one page of one component."""
    page_tokens, page = oracle.page_tokens, oracle.pages_of(key) - 1
    parent = chained_key(oracle.prefix(key, page), page_tokens)
    return Event(
        kind=kind,
        component=name,
        tier=oracle.tier,
        namespace=key[0],
        first_page=page,
        page_keys=(chained_key(key, page_tokens),),
        parent_key=parent,
        tokens=np.array(key[1][page * page_tokens :] if kind == "stored" else [], dtype=np.uint32),
        reason=reason,
    )


def chained_key(key: Key, page_tokens: int) -> bytes:
    """K-4: SHA-256 over the key of the page before and this page's tokens."""
    namespace, tokens = key
    if not tokens:
        return seed(namespace)
    before, last = tokens[:-page_tokens], tokens[-page_tokens:]
    data = b"".join(token.to_bytes(4, "little") for token in last)
    return hashlib.sha256(chained_key((namespace, before), page_tokens) + data).digest()


def seed(namespace: Namespace) -> bytes:
    """K-3: each field framed by its name, type and length, so that joined strings cannot collide."""
    framed = b"graftline/key/1"
    for name in ("model", "weight_epoch", "adapter", "salt"):
        value = getattr(namespace, name)
        data = str(value).encode()
        framed += f"{name}:{type(value).__name__}:{len(data)}:".encode() + data
    return hashlib.sha256(framed).digest()
