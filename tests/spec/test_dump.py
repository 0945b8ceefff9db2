"""D: every core has the same operations and tells equal trees in equal texts."""

from __future__ import annotations

import inspect
import zlib
from collections.abc import Callable
from dataclasses import fields

import pytest

from differential.oracle import Oracle
from graftline.components import Checkpoint, ComponentSpec, Full, Window
from graftline.errors import ConfigError
from graftline.key import Namespace
from graftline.plan import Freed, Insertion, Lease, Match, TreeStats
from graftline.tree import PythonCore, TreeCore
from spec.sketch import HERE, Sketch, tokens_of


def mark(text: str) -> str:
    """Checksum of the tokens, as u32 in little-endian order."""
    return f"#{zlib.crc32(b''.join(token.to_bytes(4, 'little') for token in tokens_of(text))):08x}"


@pytest.mark.rule("D-1")
def test_the_dump_is_one_line_a_node(sketch) -> None:
    """Place, checksum, agreed boundaries, leases; then each holding's run, slots, tick and locks."""
    tree: Sketch = sketch(full=Full(), swa=Window(2))
    tree.put("abcd", swa=".***")
    tree.put("abXY", swa="..**")
    tree.put("b", swa="*", namespace=Namespace("a"))
    tree.hold("abcd")
    tree.hold()
    assert tree.core.dump() == "\n".join(
        [
            "Namespace(model='a', weight_epoch=0, adapter='', salt='')",
            f"  0..1 {mark('b')} valid 1..1 | full 0..1 [8] @6 | swa 0..1 [105] @7",
            "Namespace(model='m', weight_epoch=0, adapter='', salt='')",
            "  0..0 #00000000 leases 1",
            f"  0..2 {mark('ab')} | full 0..2 [0 1] @8 | full locks 0x1 | swa 1..2 [100] @2",
            f"    2..4 {mark('XY')} valid 3..4 | full 2..4 [6 7] @4 | swa 2..4 [103 104] @5",
            f"    2..4 {mark('cd')} valid 3..4 leases 1 | full 2..4 [2 3] @9 | full locks 2x1"
            " | swa 2..4 [101 102] @10 | swa locks 2x1",
            "",
        ]
    )


@pytest.mark.rule("D-1")
def test_an_empty_tree_is_an_empty_text(sketch) -> None:
    assert sketch(full=Full()).core.dump() == ""


@pytest.mark.rule("D-1")
def test_children_come_in_the_order_of_their_tokens_not_of_their_arrival(sketch) -> None:
    lines = set()
    for order in ("ABC", "CBA", "BAC"):
        tree: Sketch = sketch(full=Full())
        for text in order:
            tree.put(text)
        lines.add("".join(line.split()[1] for line in tree.picture().splitlines()))
    assert lines == {"ABC"}


@pytest.mark.rule("D-1")
def test_the_oracle_tells_the_same_tree_in_the_same_text(core_type) -> None:
    rules = {"full": Full(), "swa": Window(3), "state": Checkpoint()}
    dumps = []
    for kind in (Oracle, core_type):
        tree = Sketch(kind, rules)
        tree.serve("abcdefgh")
        tree.serve("abcdXY")
        tree.hold("abcdef")
        tree.core.evict("state", 1)
        dumps.append(tree.core.dump())
    assert dumps[0] == dumps[1] != ""


OPERATIONS = sorted(
    name for name, value in vars(TreeCore).items() if inspect.isfunction(value) and name[0] != "_"
)


@pytest.mark.rule("D-2")
@pytest.mark.parametrize("operation", OPERATIONS)
def test_every_core_has_the_operations_with_the_same_parameters(core_type, operation: str) -> None:
    def shape(owner: object) -> list[tuple[str, object, object]]:
        _, *parameters = inspect.signature(getattr(owner, operation)).parameters.values()  # without self
        return [(p.name, p.kind, p.default) for p in parameters]

    assert shape(core_type) == shape(TreeCore)


@pytest.mark.rule("D-2")
def test_every_core_is_made_with_the_same_arguments(core_type) -> None:
    def shape(made: Callable[..., object]) -> list[tuple[str, object, object]]:
        return [(p.name, p.kind, p.default) for p in inspect.signature(made).parameters.values()]

    assert shape(core_type) == shape(PythonCore) == shape(Oracle)


@pytest.mark.rule("D-2")
def test_the_operations_are_those_of_the_protocol() -> None:
    assert OPERATIONS == [
        "check",
        "claim",
        "clear",
        "close_session",
        "drop",
        "dump",
        "evict",
        "fork_session",
        "held_pages",
        "holdings",
        "insert",
        "lease",
        "match",
        "open_session",
        "register",
        "release",
        "release_components",
        "set_time",
        "stats",
        "take_events",
    ]


@pytest.mark.rule("D-2")
def test_results_are_the_plans_that_every_core_shares(sketch) -> None:
    tree: Sketch = sketch(full=Full(), swa=Window(1))
    found = tree.find("ab")
    lease = tree.core.lease(found)
    done = tree.grow(lease, "ab", swa=".*")
    results = [found, lease, done, tree.core.evict("swa", 0), tree.core.clear(), tree.core.stats()]
    assert [type(result) for result in results] == [Match, Lease, Insertion, Freed, Freed, TreeStats]
    assert [field.name for field in fields(found)] == [
        "namespace",
        "boundary_tokens",
        "path_tokens",
        "votes",
        "limited_by",
        "lost_tokens",
        "reason",
        "branch_tokens",
        "node",
        "path_node",
    ]
    assert found.namespace == HERE


@pytest.mark.rule("D-2")
@pytest.mark.parametrize(
    ("specs", "page_tokens", "named"),
    [
        ([], 1, "at least one"),
        ([ComponentSpec("a", Full(), 1), ComponentSpec("a", Window(1), 1)], 1, "a name of its own"),
        ([ComponentSpec("a", Full(), 1)], 0, "page_tokens is 0"),
    ],
    ids=["none", "twice", "page"],
)
def test_a_core_that_cannot_work_is_refused(core_type, specs, page_tokens: int, named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        core_type(specs, page_tokens=page_tokens)
