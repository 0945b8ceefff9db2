"""Which component holds what of a model: derived from its configuration alone, in one table.

A layer type of the library says how a layer looks back: at everything (`full`), through a window
(`swa`), within its chunk (`chunk`), through a recurrent or convolution state (`state`), or in two
ways at once. `KINDS` maps the types to these; a type that is not in it is refused, since a wrong
guess would give wrong text after a cache hit.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from transformers.cache_utils import get_layer_types_and_kwargs

from graftline.components import Checkpoint, Chunk, Full, ReuseRule, Window
from graftline.errors import UnsupportedModelError

FULL, WINDOW, CHUNK = "full", "swa", "chunk"
STATE = "state"


@dataclass(frozen=True, slots=True)
class LayerKind:
    """How one layer type of the library looks back.

    Attributes:
        attention: `full`, `swa` or `chunk`, the kind of the layer's own KV; None when it has none.
        has_state: whether it keeps recurrent or convolution states.
        sidecars: tensors that it keeps per page of `full` beside or instead of KV there.
    """

    attention: str | None = None
    has_state: bool = False
    sidecars: tuple[str, ...] = ()


_COMPRESSOR = ("compressor.entries", "compressor.tail_kv", "compressor.tail_gate")
_OVERLAP = ("compressor.overlap_kv", "compressor.overlap_gate")
_INDEXER = tuple(name.replace("compressor", "indexer") for name in (*_COMPRESSOR, *_OVERLAP))

KINDS: Mapping[str, LayerKind] = {
    "full_attention": LayerKind(FULL),
    "sliding_attention": LayerKind(WINDOW),
    "chunked_attention": LayerKind(CHUNK),
    "indexed_attention": LayerKind(FULL, sidecars=("indexer_key",)),
    "linear_attention": LayerKind(has_state=True),
    "conv": LayerKind(has_state=True),
    "hybrid": LayerKind(FULL, has_state=True),
    "hybrid_sliding": LayerKind(WINDOW, has_state=True),
    "heavily_compressed_attention": LayerKind(WINDOW, sidecars=_COMPRESSOR),
    "compressed_sparse_attention": LayerKind(WINDOW, sidecars=(*_COMPRESSOR, *_OVERLAP, *_INDEXER)),
    # Layers that only mix channels; some configurations list them among the layer types.
    "moe": LayerKind(),
    "mlp": LayerKind(),
}

REFUSED_MODELS: Mapping[str, str] = {
    "rwkv": "its recurrent state is kept in a format of its own",
    "xlstm": "its recurrent state is kept in a format of its own",
    "reformer": "its attention depends on hashed buckets of the whole sequence",
    "xlnet": "it is not a causal model with a KV cache",
    "transfo-xl": "its memory depends on how the prompt was cut",
}
# Frequencies of these change once a sequence grows past the original length, which would make the
# KV of a prefix depend on what follows it. Up to that length they are constant.
LENGTH_DEPENDENT_ROPE = ("dynamic", "longrope")


@dataclass(frozen=True, slots=True)
class LayerPlan:
    """One layer of a model.

    Attributes:
        index: number of the layer, counted from 0.
        kind: the library's layer type, for example `hybrid_sliding`.
        attention: component whose rule its attention follows, or None. A layer that reuses the KV of
            an earlier one names that component too, but is not among the component's layers.
        has_state: whether it is part of component `state`.
        window_tokens: tokens a query sees, itself included; None without a window.
        chunk_tokens: size of its attention chunks; None without chunks.
    """

    index: int
    kind: str
    attention: str | None
    has_state: bool
    window_tokens: int | None
    chunk_tokens: int | None


@dataclass(frozen=True, slots=True)
class ComponentPlan:
    """One component of a model: a reuse rule, the layers that store something in it, its sidecars.

    `sidecars` are names of tensors in the component's pool that are no KV and no state of their own.
    """

    name: str
    rule: ReuseRule
    layers: tuple[int, ...]
    sidecars: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ModelLayout:
    """All layers and components of a model.

    Attributes:
        page_multiple: `page_tokens` must be a multiple of this.
        max_model_tokens: longest sequence that is served exactly, or None when nothing limits it.
    """

    model_type: str
    layers: tuple[LayerPlan, ...]
    components: tuple[ComponentPlan, ...]
    page_multiple: int
    max_model_tokens: int | None

    def component(self, name: str) -> ComponentPlan:
        """The component of that name; `KeyError` when the model has none."""
        for component in self.components:
            if component.name == name:
                return component
        raise KeyError(name)


def plan_layout(config: Any) -> ModelLayout:
    """Components of the model that `config` (a configuration of the library) describes.

    Raises:
        UnsupportedModelError: for what cannot be served with exact reuse, with the reason and the layer.
    """
    text = config.get_text_config(decoder=True)
    _refuse_model(config, text)
    types, details = get_layer_types_and_kwargs(text)
    own_types = getattr(text, "layer_types", None) or types
    windows = {item["sliding_window"] for item in details if item.get("sliding_window")}
    layers = tuple(
        _plan_layer(text, index, types[index], own_types[index], details[index], len(windows) > 1)
        for index in range(len(types))
    )
    return ModelLayout(
        model_type=text.model_type,
        layers=layers,
        components=_components(text.model_type, layers, types),
        page_multiple=math.lcm(*(getattr(text, "compress_rates", None) or {"": 1}).values()),
        max_model_tokens=_max_model_tokens(text),
    )


def _refuse_model(config: Any, text: Any) -> None:
    if reason := REFUSED_MODELS.get(text.model_type):
        raise UnsupportedModelError(text.model_type, reason)
    if getattr(config, "is_encoder_decoder", False):
        raise UnsupportedModelError(text.model_type, "it has an encoder, only decoders are served")
    if not getattr(text, "is_causal", True) or getattr(text, "use_bidirectional_attention", False) is True:
        raise UnsupportedModelError(text.model_type, "its attention looks ahead, so no prefix can be reused")


def _plan_layer(
    text: Any, index: int, stored: str, own: str, details: dict[str, Any], many_windows: bool
) -> LayerPlan:
    """Plan of one layer; `stored` is `dummy` where the layer keeps nothing of its own."""
    kind = KINDS.get(own)
    if kind is None:
        raise UnsupportedModelError(text.model_type, f"layer type '{own}' is unknown", index)
    window = chunk = None
    attention = kind.attention
    if attention == WINDOW:
        window = details.get("sliding_window") or getattr(
            text.per_layer_config[index], "sliding_window", None
        )
        if not window:
            raise UnsupportedModelError(text.model_type, "the size of its window is not given", index)
        attention = f"{WINDOW}_{window}" if many_windows else WINDOW
    elif attention == CHUNK:
        chunk = details.get("sliding_window") or text.attention_chunk_size
    return LayerPlan(index, own, attention, kind.has_state and stored != "dummy", window, chunk)


def _components(
    model_type: str, layers: tuple[LayerPlan, ...], stored: list[str]
) -> tuple[ComponentPlan, ...]:
    """Components in the order full, windows, chunk, state; `stored` tells which layers keep their own."""
    keeping = [layer for layer in layers if stored[layer.index] != "dummy"]
    rules: dict[str, ReuseRule] = {}
    members: dict[str, list[int]] = {}
    sidecars: dict[str, list[str]] = {}
    for layer in keeping:
        for name, rule in _rules(layer):
            rules.setdefault(name, rule)
            if rules[name] != rule:
                raise UnsupportedModelError(model_type, f"its chunks differ from {rules[name]}", layer.index)
            members.setdefault(name, []).append(layer.index)
        for name in KINDS[layer.kind].sidecars:
            sidecars.setdefault(FULL, []).append(f"{layer.index}.{name}")
    order = sorted(rules, key=lambda name: (name == STATE, name == CHUNK, name != FULL, name))
    return tuple(
        ComponentPlan(name, rules[name], tuple(members[name]), tuple(sidecars.get(name, ())))
        for name in order
    )


def _rules(layer: LayerPlan) -> Iterator[tuple[str, ReuseRule]]:
    """Components that the layer stores something in, with their rules."""
    if layer.attention is not None:
        if layer.window_tokens is not None:
            yield layer.attention, Window(layer.window_tokens - 1)
        elif layer.chunk_tokens is not None:
            yield layer.attention, Chunk(layer.chunk_tokens)
        else:
            yield layer.attention, Full()
    if layer.attention != FULL and KINDS[layer.kind].sidecars:
        yield FULL, Full()
    if layer.has_state:
        yield STATE, Checkpoint()


def _max_model_tokens(text: Any) -> int | None:
    limits = []
    if isinstance(declared := getattr(text, "max_position_embeddings", None), int) and declared > 0:
        limits.append(declared)
    for rope in _rope_parameters(text):
        if rope.get("rope_type", rope.get("type")) in LENGTH_DEPENDENT_ROPE:
            original = rope.get("original_max_position_embeddings") or declared
            if not original:
                reason = (
                    "its rotary frequencies depend on the length of the sequence, without a constant range"
                )
                raise UnsupportedModelError(text.model_type, reason)
            limits.append(int(original))
    return min(limits, default=None)


def _rope_parameters(text: Any) -> Iterator[Mapping[str, Any]]:
    """The rotary settings, flat or one per layer type."""
    for name in ("rope_parameters", "rope_scaling"):
        settings = getattr(text, name, None)
        if isinstance(settings, Mapping):
            yield settings
            yield from (item for item in settings.values() if isinstance(item, Mapping))
