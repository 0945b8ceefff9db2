"""Runs a causal model of the transformers library on packed steps over paged pools.

The runner keeps nothing between steps but the pools: whatever a sequence needs is in the slots that its rows
name. Restoring a prefix is therefore a matter of tables and of one copied state slot.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from graftline.engine.batch import PackedStep, Row
from graftline.engine.layouts import STATE, ModelLayout, plan_layout
from graftline.engine.patching import patch_model
from graftline.engine.plan import StepPlanner
from graftline.engine.pools import ComponentPool
from graftline.engine.probe import Trial, check_specs, library_logits, probe_row, probe_tokens
from graftline.engine.state import EngineState
from graftline.errors import ConfigError, UnsupportedModelError

SlotCounts = Mapping[str, int] | Callable[[Mapping[str, int]], Mapping[str, int]]


class Runner:
    """One model with its pools.

    Args:
        model: a causal model of the library; the runner takes it over, it cannot be called directly any more.
        layout: what `plan_layout` says of its configuration.
        page_tokens: tokens of a page, a multiple of `layout.page_multiple`.
        slots: slots per component, or a function that gets the bytes of one slot per component and
            returns these counts.
        device: where the model and the pools live.

    Raises:
        ConfigError: for page sizes and slot counts that cannot work.
        UnsupportedModelError: when a short trial shows that packed steps do not give the library's logits.
    """

    def __init__(
        self,
        model: Any,
        layout: ModelLayout,
        *,
        page_tokens: int,
        slots: SlotCounts,
        device: torch.device | str,
    ) -> None:
        if page_tokens < 1 or page_tokens % layout.page_multiple:
            raise ConfigError(
                f"page_tokens is {page_tokens}, it must be a positive multiple of {layout.page_multiple}"
            )
        self.layout = layout
        self.page_tokens = page_tokens
        self.device = torch.device(device)
        self.model = model.to(self.device).eval()
        self.vocab_size = int(model.config.get_text_config(decoder=True).vocab_size)
        tokens = probe_tokens(self.vocab_size)
        trial = Trial(layout, tokens, library_logits(self.model, tokens, self.device), page_tokens)
        self._state = EngineState(layout, StepPlanner(layout, page_tokens, self.device))
        self._cache = patch_model(self.model, self._state)
        self._arguments = frozenset(inspect.signature(self.model.forward).parameters)
        self._trying(self._find_specs)
        self.pools = self._make_pools(slots)
        self._state.pools = self.pools
        dtype = next(p.dtype for p in self.model.parameters() if p.is_floating_point())
        self._trying(lambda: trial.run(self.step, self.pools, dtype))
        for pool in self.pools.values():
            for tensor in pool.tensors.values():
                tensor.zero_()

    @classmethod
    def load(
        cls,
        path_or_name: str,
        *,
        dtype: torch.dtype | str,
        device: torch.device | str,
        page_tokens: int,
        slots: SlotCounts,
    ) -> Runner:
        """Load a model from a local folder or by its hub name; `dtype` "auto" keeps that of the weights."""
        model = AutoModelForCausalLM.from_pretrained(path_or_name, dtype=dtype)
        return cls(model, plan_layout(model.config), page_tokens=page_tokens, slots=slots, device=device)

    @property
    def slot_bytes(self) -> dict[str, int]:
        """Bytes of one slot per component, sidecars included."""
        return {
            name: sum(spec.slot_bytes for spec in specs.values()) for name, specs in self._state.specs.items()
        }

    def step(self, rows: Sequence[Row]) -> torch.Tensor:
        """Compute the rows' new tokens; returns the logits of each row's last token, float32 (rows, vocab).

        New KV goes into the slots that the tables name for the new tokens, and the state after the last token
        into each row's state slot; nothing else is changed, except that the rest of a page is zeroed when its
        first token is written. Pages before `start` are only read, and may be shared.
        """
        self._check(rows)
        step = self._state.planner.plan(rows)
        if self._selects:
            return self._forward(step, step.last)
        return self._forward(step, 0).index_select(0, step.last)

    def step_all(self, row: Row) -> torch.Tensor:
        """Like `step` for one row; returns the logits of every new token, float32 (n, vocab)."""
        self._check([row])
        return self._forward(self._state.planner.plan([row]), 0)

    def _forward(self, step: PackedStep, keep: torch.Tensor | int) -> torch.Tensor:
        given = {"input_ids": step.tokens, "position_ids": step.positions, "logits_to_keep": keep}
        arguments = {name: value for name, value in given.items() if name in self._arguments}
        arguments["past_key_values" if "past_key_values" in self._arguments else "cache_params"] = self._cache
        self._state.current = step
        try:
            with torch.no_grad():
                return self.model(use_cache=True, **arguments).logits[0].float()
        finally:
            self._state.current = None

    def _find_specs(self) -> None:
        """Run a few tokens that are stored nowhere, to learn shapes and types of all tensors.

        Also tells whether the model's forward computes the logits of chosen tokens only, when asked to.
        """
        count = max(4, self.layout.page_multiple)
        row = probe_row(probe_tokens(self.vocab_size, count), 0, self.layout, -(-count // self.page_tokens))
        step = self._state.planner.plan([row])
        self._selects = self._forward(step, step.last).shape[0] == 1
        check_specs(self._state)

    def _trying(self, trial: Callable[[], None]) -> None:
        """Run a part of the trial; a model whose code cannot take a packed step is refused, not a crash."""
        try:
            trial()
        except (RuntimeError, TypeError, AttributeError, LookupError, AssertionError) as error:
            reason = f"a packed step fails in its code: {error}"
            raise UnsupportedModelError(self.layout.model_type, reason) from error

    def _make_pools(self, slots: SlotCounts) -> dict[str, ComponentPool]:
        counts = slots if isinstance(slots, Mapping) else slots(self.slot_bytes)
        names = [component.name for component in self.layout.components]
        if missing := [name for name in names if name not in counts]:
            raise ConfigError(
                f"no slot count for {', '.join(missing)}", hint=f"components: {', '.join(names)}"
            )
        return {
            name: ComponentPool(name, counts[name], self._state.specs[name], self.device) for name in names
        }

    def _check(self, rows: Sequence[Row]) -> None:
        limit = self.layout.max_model_tokens
        if not rows:
            raise ConfigError("a step needs at least one row")
        for row in rows:
            if len(row.tokens) == 0:
                raise ConfigError(f"a row that starts at token {row.start} has no new tokens")
            if limit is not None and row.end > limit:
                raise ConfigError(f"a row ends at token {row.end}, the model serves at most {limit}")
            if row.state_slot is None and STATE in self.pools:
                raise ConfigError("a row has no state slot, but the model keeps states")
