"""What the patched parts of one model share: the step being run, the layout, what the probe has seen.

Every module of the model carries a reference to it, so that the attention function and the wrappers find
the step of their own runner; two runners in one process share nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from graftline.engine.batch import PackedStep
from graftline.engine.layouts import LayerPlan, ModelLayout
from graftline.engine.plan import StepPlanner
from graftline.engine.pools import ComponentPool, TensorSpec
from graftline.errors import GraftlineError, UnsupportedModelError

ATTRIBUTE = "graftline_state"


@dataclass(slots=True)
class EngineState:
    """Shared by the cache, the attention function and the wrappers of one model.

    Attributes:
        pools: tensors per component; empty until the probe has found their shapes.
        current: the step being run, or the one row of it that a segment runs; None between steps.
        specs: per component the tensors that the probe has seen.
        attended: layers whose attention the probe has seen.
    """

    layout: ModelLayout
    planner: StepPlanner
    pools: dict[str, ComponentPool] = field(default_factory=dict)
    current: PackedStep | None = None
    specs: dict[str, dict[str, TensorSpec]] = field(default_factory=dict)
    attended: set[int] = field(default_factory=set)

    def attending_layer(self, layer_index: int | None) -> LayerPlan:
        """Layer that an attention call works for, given the layer index of the calling module.

        Modules shared by several layers carry an index that means nothing; the layer at work is the one that
        updated its KV just before. Only a layer that reuses the KV of an earlier one makes no update, and is
        known by its own index.
        """
        if layer_index is not None:
            plan = self.layout.layers[layer_index]
            if plan.attention is not None and plan.index not in self.layout.component(plan.attention).layers:
                return plan
        return self.layout.layers[self.step.last_layer]

    def note_attention(self, plan: LayerPlan, options: Mapping[str, Any]) -> None:
        """Note that a layer attends through the shared function, and check the window that it asks for."""
        self.attended.add(plan.index)
        window = options.get("sliding_window", plan.window_tokens)
        if window != plan.window_tokens:
            reason = f"its attention asks for a window of {window} tokens, not {plan.window_tokens}"
            raise UnsupportedModelError(self.layout.model_type, reason, plan.index)

    @property
    def step(self) -> PackedStep:
        """The step being run."""
        if self.current is None:
            raise GraftlineError(
                "the model was called outside of a step",
                hint="a model given to a Runner is run by its step() only",
            )
        return self.current

    @property
    def recording(self) -> bool:
        """Whether the probe is running: layers note shapes and store nothing."""
        return not self.pools

    def record(self, component: str, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> None:
        """Note the shape (without the slot axis) and type of one tensor of a component."""
        self.specs.setdefault(component, {})[name] = TensorSpec(tuple(shape), dtype)

    def tensor(self, component: str, name: str) -> torch.Tensor:
        """Pool tensor of that name, shape [slots, ...], when what was loaded of it is there (rule H-10)."""
        return self.pools[component].tensor(name)
