"""The core runs where neither torch nor anything else but numpy is installed."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import sys
import graftline.cache, graftline.tiers, graftline.tree, graftline.components, graftline.policies
from graftline.cache import PrefixCache
from graftline.components import ComponentSpec, Full
with PrefixCache([ComponentSpec("full", Full(), 8)], page_tokens=4).begin(range(9)) as request:
    request.grow(9)
    request.advance(8)
    request.advance(9)
    request.finish()
outside = {name.partition(".")[0] for name in sys.modules} - set(sys.stdlib_module_names)
print(sorted(name for name in outside if not name.startswith("_")))
"""


def test_the_core_imports_numpy_and_nothing_else() -> None:
    done = subprocess.run([sys.executable, "-I", "-c", CODE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "['graftline', 'numpy']"
