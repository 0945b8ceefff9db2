"""Errors of graftline: one base, one class per kind of fault, each with the offending value and a way out."""

from __future__ import annotations


class GraftlineError(Exception):
    """Base of every error that graftline raises on purpose.

    Args:
        message: lower case, no full stop, names the offending value.
        hint: what to do next; empty when there is nothing to add.
    """

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} (hint: {self.hint})" if self.hint else self.message


class ConfigError(GraftlineError, ValueError):
    """A setting or an argument that can never work."""


class CapacityError(GraftlineError):
    """A pool cannot give the slots asked for, even after evicting everything that may go.

    Args:
        component: the pool that is full.
        wanted_slots: how many were asked for.
        free_slots: how many it could give.
    """

    def __init__(self, component: str, wanted_slots: int, free_slots: int, *, hint: str = "") -> None:
        super().__init__(
            f"pool '{component}' cannot give {wanted_slots} slots, only {free_slots} are free or evictable",
            hint=hint or "wait for running requests to finish, or make the pool larger",
        )
        self.component = component
        self.wanted_slots = wanted_slots
        self.free_slots = free_slots


class NamespaceError(GraftlineError, ValueError):
    """Two things of different namespaces were put together."""


class StaleHandleError(GraftlineError):
    """A match or lease names something that is not there any more; match again."""


class EngineClosedError(GraftlineError):
    """The engine was closed, or it stopped after a fault; it takes no more requests."""


class IntegrityError(GraftlineError):
    """The bookkeeping contradicts itself: a fault of graftline, never of the caller.

    Args:
        rule: number of the broken rule in `docs/design.md`.
    """

    def __init__(self, rule: str, message: str) -> None:
        super().__init__(f"{rule}: {message}", hint="please report this with the output of dump()")
        self.rule = rule


class UnsupportedModelError(GraftlineError, ValueError):
    """A model that cannot be served with exact reuse; it is refused at start.

    Args:
        model_type: the config's `model_type`.
        reason: what stands in the way.
        layer: index of the layer concerned, or None when the whole model is.
    """

    def __init__(self, model_type: str, reason: str, layer: int | None = None) -> None:
        where = "" if layer is None else f", layer {layer}"
        super().__init__(
            f"model type '{model_type}'{where}: {reason}",
            hint="see docs/reference/models.md for the families that are served",
        )
        self.model_type = model_type
        self.reason = reason
        self.layer = layer
