"""K: what identifies a cached prefix."""

from __future__ import annotations

import hashlib
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graftline.components import Full
from graftline.errors import ConfigError
from graftline.key import Namespace, as_tokens, page_keys, whole_pages
from spec.sketch import HERE, Sketch


@pytest.mark.rule("K-1")
@pytest.mark.parametrize(
    "given_tokens",
    [
        [1, 2, 3],
        (1, 2, 3),
        np.array([1, 2, 3]),
        np.array([1, 2, 3], dtype=np.uint8),
        np.array([9, 1, 2, 3])[1:],
    ],
    ids=["list", "tuple", "int64", "uint8", "slice"],
)
def test_lists_and_integer_arrays_become_u32(given_tokens: object) -> None:
    tokens = as_tokens(given_tokens)
    assert tokens.dtype == np.uint32
    assert tokens.tolist() == [1, 2, 3]


@pytest.mark.rule("K-1")
def test_a_u32_array_is_taken_without_a_copy() -> None:
    tokens = np.arange(5, dtype=np.uint32)
    assert np.shares_memory(as_tokens(tokens), tokens)


@pytest.mark.rule("K-1")
@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ([3, -1], "token id -1"),
        ([2**32], "token id 4294967296"),
        (np.array([-7], dtype=np.int8), "token id -7"),
        ([1.0, 2.0], "float64"),
        ([True, False], "bool"),
        ("abc", "shape"),
        (["a"], "<U1"),
        ([None], "object"),
        ([[1, 2], [3, 4]], "shape"),
        (7, "shape"),
    ],
    ids=repr,
)
def test_what_is_no_token_id_is_refused_by_name(wrong: object, named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        as_tokens(wrong)


@pytest.mark.rule("K-1")
def test_the_largest_id_is_a_token_like_any_other(sketch) -> None:
    tree: Sketch = sketch(full=Full())
    lease = tree.hold()
    tree.core.insert(lease, [2**32 - 1, 0], {"full": tree.runs("full", 0, "**")})
    assert tree.core.match(HERE, [2**32 - 1, 0]).boundary_tokens == 2
    assert tree.core.match(HERE, [2**32 - 1, 1]).boundary_tokens == 1


@pytest.mark.rule("K-2")
@pytest.mark.parametrize("tokens", range(13))
def test_a_rest_of_less_than_a_page_is_left_out(sketch, tokens: int) -> None:
    tree: Sketch = sketch(page_tokens=4, full=Full())
    text = "abcdefghijklm"[:tokens]
    tree.put(text)
    assert whole_pages(tokens, 4) == tokens // 4
    assert tree.core.stats().path_pages == tokens // 4
    assert tree.hit(text + "xyz") == tokens // 4 * 4, "the rest is not matched either"


@pytest.mark.rule("K-2")
def test_pages_are_compared_whole(sketch) -> None:
    tree: Sketch = sketch(page_tokens=4, full=Full())
    tree.put("aaaabbbb")
    assert tree.hit("aaaabbbx") == 4, "three of four tokens of a page are nothing"


FRAMING = [
    Namespace("ab", 0, "c", ""),
    Namespace("a", 0, "bc", ""),
    Namespace("abc", 0, "", ""),
    Namespace("", 0, "abc", ""),
    Namespace("", 0, "", "abc"),
    Namespace("ab", 0, "", "c"),
    Namespace("", 1, "", ""),
    Namespace("", 11, "", ""),
    Namespace("1", 1, "", ""),
    Namespace("", 0, "adapter:str:1:a", ""),
]


@pytest.mark.rule("K-3")
def test_no_joining_of_strings_makes_two_namespaces_equal(sketch) -> None:
    """("ab", "c") is not ("a", "bc"); a weight epoch, an adapter and a salt stay apart as well."""
    tree: Sketch = sketch(full=Full())
    seeds = {namespace.seed() for namespace in FRAMING}
    assert len(seeds) == len(FRAMING)
    for put in FRAMING:
        tree.put("same text", namespace=put)
        for asked in FRAMING[FRAMING.index(put) + 1 :]:
            assert tree.find("same text", namespace=asked).path_tokens == 0


@pytest.mark.rule("K-3")
def test_a_new_weight_epoch_reuses_nothing_of_the_old_one(sketch) -> None:
    tree: Sketch = sketch(full=Full())
    tree.put("prompt", namespace=Namespace("m", weight_epoch=1))
    assert tree.find("prompt", namespace=Namespace("m", weight_epoch=2)).boundary_tokens == 0
    assert tree.find("prompt", namespace=Namespace("m", weight_epoch=1)).boundary_tokens == 6


@pytest.mark.rule("K-4")
def test_page_keys_are_a_chain_of_whole_sha256_over_little_endian_u32() -> None:
    namespace = Namespace("m", 3, "lora", "tenant")
    framed = (
        b"graftline/key/1"
        + b"model:str:1:m"
        + b"weight_epoch:int:1:3"
        + b"adapter:str:4:lora"
        + b"salt:str:6:tenant"
    )
    seed = hashlib.sha256(framed).digest()
    first = hashlib.sha256(seed + struct.pack("<2I", 1, 2**32 - 1)).digest()
    second = hashlib.sha256(first + struct.pack("<2I", 7, 8)).digest()
    assert namespace.seed() == seed
    assert list(page_keys(seed, as_tokens([1, 2**32 - 1, 7, 8]), 2)) == [first, second]
    assert {len(first), len(second)} == {32}


@pytest.mark.rule("K-4")
@given(
    st.lists(st.integers(0, 2), min_size=1, max_size=4),
    st.lists(st.integers(0, 2), min_size=1, max_size=4),
    st.sampled_from(FRAMING),
    st.sampled_from(FRAMING),
)
def test_two_prefixes_have_one_key_only_when_they_are_the_same(
    a: list[int], b: list[int], ours: Namespace, theirs: Namespace
) -> None:
    *_, key_a = page_keys(ours.seed(), as_tokens(a), 1)
    *_, key_b = page_keys(theirs.seed(), as_tokens(b), 1)
    assert (key_a == key_b) == ((a, ours) == (b, theirs))


@pytest.mark.rule("K-1")
def test_ragged_lists_are_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="different lengths"):
        as_tokens([[1, 2], [3]])


@pytest.mark.rule("K-3")
@pytest.mark.parametrize(
    "wrong", [{"weight_epoch": True}, {"weight_epoch": "1"}, {"salt": 1}, {"model": None}]
)
def test_a_namespace_takes_only_its_own_types(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        Namespace(**wrong)
