"""A copy of a library function that finds other functions under the names it calls."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import FunctionType, MethodType
from typing import Any


def rebind_forward(module: Any, **replacements: Callable[..., Any]) -> None:
    """Give the instance a forward whose global names in `replacements` stand for the given functions.

    The library's function and its module stay as they are: the copy has the same code and its own globals.
    """
    original = inspect.unwrap(type(module).forward)
    names = {**original.__globals__, **replacements}
    forward = FunctionType(
        original.__code__, names, original.__name__, original.__defaults__, original.__closure__
    )
    forward.__kwdefaults__ = original.__kwdefaults__
    module.forward = MethodType(forward, module)


def library_global(module: Any, name: str) -> Callable[..., Any]:
    """The function that the forward of the module's class finds under that global name."""
    function: Callable[..., Any] = inspect.unwrap(type(module).forward).__globals__[name]
    return function
