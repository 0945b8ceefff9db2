"""V: events tell, in order, what came and what left."""

from __future__ import annotations

import random

import pytest

from graftline.components import Checkpoint, ComponentSpec, Full, Window
from graftline.key import Namespace, as_tokens, page_keys
from graftline.plan import Event, Tier
from spec.sketch import HERE, Sketch, tokens_of


def keys_of(text: str, page_tokens: int = 1, namespace: Namespace = HERE) -> list[bytes]:
    return list(page_keys(namespace.seed(), as_tokens(tokens_of(text)), page_tokens))


def told(events: list[Event]) -> list[tuple[str, str, int, int, str]]:
    """Kind, component, first page, pages, reason."""
    return [(e.kind, e.component, e.first_page, len(e.page_keys), e.reason) for e in events]


@pytest.mark.rule("V-1")
def test_a_stored_event_names_pages_by_their_keys_and_tokens(sketch) -> None:
    tree: Sketch = sketch(page_tokens=2, full=Full(), swa=Window(2))
    tree.put("abcdef", swa="..*")
    full, swa = tree.core.take_events()
    assert (full.kind, full.component, full.tier, full.namespace) == ("stored", "full", Tier.DEVICE, HERE)
    assert (full.first_page, list(full.page_keys), full.parent_key) == (0, keys_of("abcdef", 2), HERE.seed())
    assert full.tokens.tolist() == tokens_of("abcdef")
    assert (swa.first_page, list(swa.page_keys)) == (2, keys_of("abcdef", 2)[2:])
    assert swa.parent_key == keys_of("abcdef", 2)[1]
    assert swa.tokens.tolist() == tokens_of("ef")
    assert tree.core.take_events() == [], "told once"


@pytest.mark.rule("V-1")
def test_a_removed_event_gives_its_reason(sketch) -> None:
    """A sparse component's loss is told as well, with its place; a router need not guess."""
    tree: Sketch = sketch(full=Full(), swa=Window(1), state=Checkpoint())
    tree.put("abcdef", swa=".*.*.*", state="...*.*")
    tree.core.take_events()
    tree.evict("swa", 1)
    assert told(tree.core.take_events()) == [("removed", "swa", 1, 1, "dead")]
    tree.evict("swa", 1)
    assert told(tree.core.take_events()) == [("removed", "swa", 3, 1, "evicted")]
    tree.evict("full", 1)
    assert told(tree.core.take_events()) == [
        ("removed", "full", 5, 1, "evicted"),
        ("removed", "swa", 5, 1, "path evicted"),
        ("removed", "state", 5, 1, "path evicted"),
    ]
    tree.core.clear()
    assert {event.reason for event in tree.core.take_events()} == {"cleared"}


@pytest.mark.rule("V-1")
def test_duplicates_look_ups_and_leases_are_no_events(sketch) -> None:
    tree: Sketch = sketch(full=Full(), swa=Window(1))
    tree.put("abcd", swa="...*")
    tree.core.take_events()
    tree.put("abcd", full="****", swa="...*")
    tree.find("abX")
    tree.use("ab")
    assert tree.core.take_events() == []


@pytest.mark.rule("V-1")
def test_recording_is_off_unless_asked_for(core_type) -> None:
    core = core_type([ComponentSpec("full", Full(), 4)], page_tokens=1)
    tree = Sketch(lambda *_, **__: core, {"full": Full()})
    tree.put("ab")
    tree.core.clear()
    assert tree.core.take_events() == []


@pytest.mark.rule("V-1")
@pytest.mark.parametrize("seed", range(4))
def test_events_rebuild_what_the_tree_holds(sketch, seed: int) -> None:
    """A router that reads only events knows, for each key, which components hold that page."""
    chance = random.Random(seed)
    tree: Sketch = sketch(page_tokens=2, full=Full(), swa=Window(3), state=Checkpoint())
    mirror: dict[str, set[bytes]] = {"full": set(), "swa": set(), "state": set()}
    texts: set[str] = set()
    for _ in range(80):
        text = "".join(chance.choices(["aa", "ab"], k=chance.randint(1, 7)))
        texts |= {text[:end] for end in range(2, len(text) + 1, 2)}
        if chance.random() < 0.6:
            bitmaps = {name: "".join(chance.choices("*.", k=len(text) // 2)) for name in ("swa", "state")}
            tree.put(text, **bitmaps)
        else:
            tree.core.evict(chance.choice(list(mirror)), chance.randint(1, 5))
        for event in tree.core.take_events():
            keys, mine = set(event.page_keys), mirror[event.component]
            assert keys.isdisjoint(mine) if event.kind == "stored" else keys <= mine
            mine ^= keys
        for pool in tree.core.stats().pools:
            assert len(mirror[pool.component]) == pool.held_pages
        for known in sorted(texts):
            key = keys_of(known, 2)[-1]
            assert (key in mirror["full"]) == (tree.find(known).votes[0].boundary_tokens == len(known))
            assert (key in mirror["state"]) == (
                key in mirror["full"] and tree.find(known).votes[2].boundary_tokens == len(known)
            )
