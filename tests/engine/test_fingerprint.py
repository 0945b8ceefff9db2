"""K-3: what tells two models apart in every tier, a store that both use too."""

from __future__ import annotations

import pytest
import torch
from engine_support import build_model

from graftline.engine.load import model_fingerprint


@pytest.mark.rule("K-3")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_any_single_weight_tells_two_models_apart(dtype: torch.dtype) -> None:
    """The first value of every weight, its last one, and one in between."""
    model = build_model("inkling", dtype=dtype)
    before = model_fingerprint(model)
    assert model_fingerprint(model) == before
    for weight in list(model.state_dict().values())[::5]:
        flat = weight.view(-1)
        for place in {0, flat.numel() // 2 + 1, flat.numel() - 1} & set(range(flat.numel())):
            value = flat[place].clone()
            with torch.no_grad():
                flat[place] = value + 1
                assert model_fingerprint(model) != before
                flat[place] = value
    assert model_fingerprint(model) == before
