"""The tree core in readable Python. `crates/core` is the fast one; both keep `docs/design.md`."""

from graftline.tree.core import PythonCore
from graftline.tree.protocol import TreeCore

__all__ = ["PythonCore", "TreeCore"]
