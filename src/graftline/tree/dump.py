"""The tree as text: equal trees give equal texts, whatever core made them (rule D-1)."""

from __future__ import annotations

import zlib

from graftline.tree.node import Holding, Node
from graftline.tree.state import State


def dump(state: State) -> str:
    """One line a node, children by their first page, namespaces in the order of their fields."""
    lines: list[str] = []
    for namespace in sorted(state.roots, key=lambda n: (n.model, n.weight_epoch, n.adapter, n.salt)):
        lines.append(repr(namespace))
        pending = [(state.roots[namespace], 0)]
        while pending:
            node, depth = pending.pop()
            if node.parent is not None or node.leases:
                lines.append(f"{'  ' * (depth + 1)}{node_text(state, node)}")
            children = sorted(node.children.values(), key=lambda child: child.tokens.tolist(), reverse=True)
            pending.extend((child, depth + (node.parent is not None)) for child in children)
    return "\n".join(lines) + "\n" if lines else ""


def node_text(state: State, node: Node) -> str:
    """Place, tokens' checksum, agreed boundaries and holdings of one node."""
    mark = zlib.crc32(node.tokens.astype("<u4").tobytes())
    text = f"{node.start}..{node.end} #{mark:08x}"
    if node.shallowest:
        text += f" valid {node.shallowest}..{node.deepest}"
    if node.leases:
        text += f" leases {node.leases}"
    if node.sessions:
        text += f" sessions {len(node.sessions)}"
    for index, spec in enumerate(state.specs):
        text += holding_text(spec.name, node.holdings[index])
    return text


def holding_text(name: str, holding: Holding) -> str:
    """Run, slots, last use, locks and references of one holding; nothing when there is nothing to tell."""
    text = ""
    if len(holding.slots):
        slots = " ".join(str(slot) for slot in holding.slots)
        text += f" | {name} {holding.first}..{holding.end} [{slots}] @{holding.usage.last_tick}"
    if holding.locks:
        text += f" | {name} locks {places_text(holding.locks)}"
    if holding.references:
        text += f" | {name} references {places_text(holding.references)}"
    return text


def places_text(places: dict[int, int]) -> str:
    """What counts from a page on: `2x1 5x3` is 1 from page 2 on, 3 from page 5 on."""
    return " ".join(f"{first}x{count}" for first, count in sorted(places.items()))
