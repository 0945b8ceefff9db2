"""What the patched parts of one model share: the step being run, the layout, what the probe has seen.

Every module of the model carries a reference to it, so that the attention function and the wrappers find
the step of their own runner; two runners in one process share nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from graftline.engine.batch import PackedStep
from graftline.engine.layouts import ModelLayout
from graftline.engine.plan import StepPlanner
from graftline.engine.pools import ComponentPool, TensorSpec
from graftline.errors import GraftlineError

ATTRIBUTE = "graftline_state"


@dataclass(slots=True)
class EngineState:
    """Shared by the cache, the attention function and the wrappers of one model.

    Attributes:
        pools: tensors per component; empty until the probe has found their shapes.
        current: the step being run, or the one row of it that a segment runs; None between steps.
        specs: per component the tensors that the probe has seen.
    """

    layout: ModelLayout
    planner: StepPlanner
    pools: dict[str, ComponentPool] = field(default_factory=dict)
    current: PackedStep | None = None
    specs: dict[str, dict[str, TensorSpec]] = field(default_factory=dict)

    def attention_of(self, layer_index: int | None) -> str:
        """Component that the attention call of a module follows, given the module's own layer index.

        Modules shared by several layers carry an index that means nothing; the layer at work is the one that
        updated its KV just before. Only a layer that reuses the KV of an earlier one makes no update, and is
        known by its own index.
        """
        if layer_index is not None:
            plan = self.layout.layers[layer_index]
            if plan.attention is not None and plan.index not in self.layout.component(plan.attention).layers:
                return plan.attention
        return str(self.layout.layers[self.step.last_layer].attention)

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
        """Pool tensor of that name, shape [slots, ...]."""
        return self.pools[component].tensors[name]
