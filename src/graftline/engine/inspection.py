"""What names the methods of a module use.

Tells how the library's modules talk to their cache without running them.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from functools import cache
from types import CodeType, FunctionType
from typing import Any


def names_used(module: Any) -> frozenset[str]:
    """Names in the methods of the module's class and in a forward that was put on the instance."""
    names = names_of_class(type(module))  # type: ignore[arg-type]  # a class of unknown kind is hashable
    if (own := module.__dict__.get("forward")) is not None:
        names |= names_of_function(own)
    return names


@cache
def names_of_class(cls: type) -> frozenset[str]:
    """Names in the methods of a class and of those of its bases that belong to a model of the library."""
    names: set[str] = set()
    for base in cls.__mro__:
        if base.__module__.startswith("transformers.models."):
            for member in vars(base).values():
                names |= names_of_function(member)
    return frozenset(names)


def names_of_function(function: Any) -> frozenset[str]:
    """Names in a function, below its decorators; empty for anything else."""
    function = inspect.unwrap(getattr(function, "__func__", function))
    code = function.__code__ if isinstance(function, FunctionType) else None
    return frozenset(_names(code)) if code is not None else frozenset()


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
