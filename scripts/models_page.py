"""Writes docs/reference/models.md from the zoo and the engine's own plan of each family.

`--check` fails when the page is out of date.
"""

from __future__ import annotations

import sys
from pathlib import Path

from graftline.engine.layouts import ModelLayout, plan_layout
from graftline.errors import UnsupportedModelError
from graftline.zoo import build_config, describe, families

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "models.md"
HEAD = """# Models

Written by `scripts/models_page.py` from the families of `graftline.zoo` and the engine's plan of each; `make check` fails when it is old.

`graftline serve` runs causal models of the transformers library whose layers are of the kinds below. What a layer holds is derived from
the config in one table, `src/graftline/engine/layouts.py`. A model with another kind of layer is refused at start, with the layer and the
reason; a short trial at start also compares packed steps with the library's own forward, and refuses a model whose logits differ.

**What was verified**, for every family below that is served, on a small model of random weights that make a wrong state show, in float32:

- `tests/engine/test_runner_families.py`: logits of packed steps against the library's plain forward without any cache: one chunk, odd chunks, token
  by token, several rows in one step, a prefix shared at a page boundary for pages of 1, 4 and 16, slots full of NaN before use; with controls that
  must differ.
- `tests/engine/test_engine_families.py`: greedy text of the whole engine against the plain forward: cold, exact repeat, branching, after eviction
  and healing, after preemption, two requests in one batch, at every page boundary of a prompt, for pages of 1, 16 and 64.

| family | model type | components (rule x layers) | sidecars of `full` | notes |
|---|---|---|---|---|
"""


def main() -> int:
    """Writes or checks the page."""
    text = page()
    if "--check" in sys.argv:
        if not PAGE.exists() or PAGE.read_text() != text:
            print(f"{PAGE}: out of date; run: python scripts/models_page.py")
            return 1
        return 0
    PAGE.write_text(text)
    return 0


def page() -> str:
    """The page's text."""
    served, refused = [], []
    for family in sorted(families()):
        info = describe(family)
        try:
            layout = plan_layout(build_config(family))
        except UnsupportedModelError as error:
            refused.append(f"| `{family}` | `{info.model_type}` | {error.reason} |")
            continue
        served.append(
            f"| `{family}` | `{info.model_type}` | {components(layout)} | {beside(layout)} | {info.notes} |"
        )
    lines = [HEAD + "\n".join(served), "", f"{len(served)} families are served.", "", "Refused:", ""]
    lines += ["| family | model type | why |", "|---|---|---|", *refused, ""]
    return "\n".join(lines)


def components(layout: ModelLayout) -> str:
    """Names and rules, and how many layers each has."""
    return " + ".join(f"`{c.name}` {type(c.rule).__name__} x{len(c.layers)}" for c in layout.components)


def beside(layout: ModelLayout) -> str:
    """Sidecars, and the pages that they ask for."""
    names = sorted({name.split(".", 1)[-1] for c in layout.components for name in c.sidecars})
    text = ", ".join(names)
    return f"{text}; pages of a multiple of {layout.page_multiple}" if layout.page_multiple > 1 else text


if __name__ == "__main__":
    sys.exit(main())
