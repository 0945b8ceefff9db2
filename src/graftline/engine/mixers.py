"""Runs the library's recurrent and convolution modules on states from slot pools.

Such a module takes a batch of sequences and a cache that holds one state per sequence. A packed step has
rows of different lengths, so the wrapper calls the module once per group of equal rows: `(rows, n)` tokens
with the states of just these rows. A single row works on its slot in place; several rows are gathered
before the call and scattered back after it, since the library changes states in place without telling.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import torch
from transformers.cache_utils import LinearAttentionLayer

from graftline.engine.batch import RowGroup
from graftline.engine.inspection import names_used
from graftline.engine.layouts import STATE
from graftline.engine.slices import joined, tokens_of
from graftline.engine.state import EngineState

STATE_CALLS = frozenset(
    (
        "get_conv_state",
        "update_conv_state",
        "get_recurrent_state",
        "update_recurrent_state",
        "get_linear_cache",
    )
)
CACHE_ARGUMENTS = ("past_key_values", "cache_params", "past_key_value", "cache")


class GroupStates:
    """What a wrapped module sees as its cache: the states of one layer for the rows of one group."""

    def __init__(self, state: EngineState, index: int, group: RowGroup) -> None:
        self.state = state
        self.index = index
        self.group = group
        self._loaded: dict[str, torch.Tensor] = {}
        self.store = LinearAttentionLayer(number_of_states=0)

    def _layer(self, kind: str, number: int) -> LinearAttentionLayer:
        """The library's own state layer, with the state of that kind and number loaded."""
        layer, name = self.store, f"{self.index}.{kind}{number}"
        if name not in self._loaded and not self.state.recording:
            rows = self._loaded[name] = self._load(self.state.tensor(STATE, name))
            if kind == "conv":
                layer.conv_states[number] = rows
                layer.conv_kernel_size[number] = rows.shape[-1]
                layer.is_conv_states_initialized[number] = True
            else:
                layer.recurrent_states[number] = rows
                layer.is_recurrent_states_initialized[number] = True
        layer.is_conv_states_initialized.setdefault(number, False)
        layer.is_recurrent_states_initialized.setdefault(number, False)
        layer.has_previous_state.setdefault(number, not self.group.fresh)
        return layer

    def _load(self, pool: torch.Tensor) -> torch.Tensor:
        if self.group.rows == 1:
            rows = pool[self.group.state_slots[0]][None]
            return rows.zero_() if self.group.fresh else rows
        if self.group.fresh:
            return pool.new_zeros((self.group.rows, *pool.shape[1:]))
        return pool.index_select(0, self.group.state_index)

    def finish(self) -> None:
        """Bring the states of several rows back to their slots; note the shapes while recording."""
        if self.state.recording:
            for kind, states in (
                ("conv", self.store.conv_states),
                ("recurrent", self.store.recurrent_states),
            ):
                for number, rows in states.items():
                    self.state.record(STATE, f"{self.index}.{kind}{number}", rows.shape[1:], rows.dtype)
        elif self.group.rows > 1:
            for name, rows in self._loaded.items():
                self.state.tensor(STATE, name).index_copy_(0, self.group.state_index, rows)

    # The rest is the interface that the library's modules call; names and order of arguments are theirs.

    def get_conv_state(self, layer_idx: int, state_idx: int = 0) -> torch.Tensor | None:  # noqa: ARG002
        """Convolution state, (rows, channels, kernel); None where the sequences begin."""
        layer = self._layer("conv", state_idx)
        return layer.conv_states[state_idx] if layer.has_previous_state[state_idx] else None

    def get_recurrent_state(self, layer_idx: int, state_idx: int = 0) -> torch.Tensor | None:  # noqa: ARG002
        """Recurrent state, (rows, ...); None where the sequences begin."""
        layer = self._layer("recurrent", state_idx)
        return layer.recurrent_states[state_idx] if layer.has_previous_state[state_idx] else None

    def update_conv_state(
        self,
        conv_states: torch.Tensor,
        layer_idx: int,  # noqa: ARG002
        state_idx: int = 0,
        **kwargs: Any,
    ) -> torch.Tensor:
        """Append to the convolution state; returns what is held and the new columns, concatenated."""
        return self._layer("conv", state_idx).update_conv_state(conv_states, state_idx, **kwargs)

    def update_recurrent_state(
        self,
        recurrent_states: torch.Tensor,
        layer_idx: int,  # noqa: ARG002
        state_idx: int = 0,
        **kwargs: Any,
    ) -> torch.Tensor:
        """Replace the recurrent state."""
        return self._layer("recurrent", state_idx).update_recurrent_state(
            recurrent_states, state_idx, **kwargs
        )

    def is_recording_past(self, layer_idx: int) -> bool:  # noqa: ARG002
        """False: steps are never rolled back."""
        return False

    def get_linear_cache(self, layer_idx: int) -> torch.Tensor | None:
        """Recurrent state under the name that MiniMax uses."""
        return self.get_recurrent_state(layer_idx)

    def set_linear_cache(self, layer_idx: int, linear_cache: torch.Tensor) -> None:
        """Replace the recurrent state, under the name that MiniMax uses."""
        self.update_recurrent_state(linear_cache, layer_idx)


def wrap_mixers(model: Any, state: EngineState) -> None:
    """Replace, on the instances, the forward of every outermost module that keeps states in a cache."""
    for module in list(_mixers(model)):
        module.forward = _grouped(module.forward, module.layer_idx, state)


def _mixers(module: Any) -> Iterator[Any]:
    if hasattr(module, "layer_idx") and names_used(module) & STATE_CALLS:
        yield module
    else:
        for child in module.children():
            yield from _mixers(child)


def _grouped(forward: Callable[..., Any], index: int, state: EngineState) -> Callable[..., Any]:
    signature = inspect.signature(forward)
    cache_name = next(name for name in CACHE_ARGUMENTS if name in signature.parameters)
    extra = next((p.name for p in signature.parameters.values() if p.kind is p.VAR_KEYWORD), "")

    def run(group: RowGroup, arguments: dict[str, Any]) -> Any:
        states = GroupStates(state, index, group)
        arguments[cache_name] = states
        out = forward(**arguments)
        states.finish()
        return out

    def grouped_forward(*args: Any, **kwargs: Any) -> Any:
        step = state.step
        arguments = signature.bind(*args, **kwargs).arguments
        arguments.update(arguments.pop(extra, {}))
        if len(step.groups) == 1 and step.groups[0].rows == 1:
            return run(step.groups[0], arguments)
        total = step.total_tokens
        parts = [(group, run(group, tokens_of(arguments, group, total))) for group in step.groups]
        return joined(parts)

    return grouped_forward
