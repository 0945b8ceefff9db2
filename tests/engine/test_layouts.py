"""What a configuration says about its components, and what is refused."""

from __future__ import annotations

import pytest
from runner_support import REFUSED, SERVED
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from graftline.components import Checkpoint, Chunk, Full, Window
from graftline.engine.layouts import KINDS, plan_layout
from graftline.errors import UnsupportedModelError
from graftline.zoo import build_config

SWA = Window(7)  # the zoo's window is 8 tokens, the token itself included


def rules(family: str) -> dict[str, object]:
    return {c.name: c.rule for c in plan_layout(build_config(family)).components}


@pytest.mark.parametrize(
    ("family", "expected"),
    [
        ("llama", {"full": Full()}),
        ("gemma3", {"full": Full(), "swa": SWA}),
        ("mistral", {"swa": SWA}),
        ("llama4", {"full": Full(), "chunk": Chunk(8)}),
        ("qwen3_next", {"full": Full(), "state": Checkpoint()}),
        ("falcon_h1", {"full": Full(), "state": Checkpoint()}),
        ("lfm3", {"full": Full(), "swa": SWA, "state": Checkpoint()}),
        ("inkling", {"full": Full(), "swa": SWA, "state": Checkpoint()}),
        ("recurrent_gemma", {"swa": SWA, "state": Checkpoint()}),
        ("mamba2", {"state": Checkpoint()}),
        ("deepseek_v32", {"full": Full()}),
        ("deepseek_v4", {"full": Full(), "swa": SWA}),
    ],
)
def test_components_of_a_family(family: str, expected: dict[str, object]) -> None:
    assert rules(family) == expected
    assert list(rules(family)) == list(expected)


@pytest.mark.parametrize("family", SERVED)
def test_every_layer_is_planned(family: str) -> None:
    config = build_config(family).get_text_config(decoder=True)
    layout = plan_layout(config)
    assert [layer.index for layer in layout.layers] == list(range(config.num_hidden_layers))
    for component in layout.components:
        for index in component.layers:
            layer = layout.layers[index]
            keeps = {layer.attention, "state" if layer.has_state else None}
            assert component.name in keeps or KINDS[layer.kind].sidecars
    assert layout.max_model_tokens is None or layout.max_model_tokens > 1000


def test_layers_that_reuse_kv_belong_to_a_component_without_storing() -> None:
    layout = plan_layout(build_config("gemma3n"))
    stored = {index for component in layout.components for index in component.layers}
    reusing = [layer for layer in layout.layers if layer.index not in stored]
    assert reusing
    assert {layer.attention for layer in reusing} == {"full", "swa"}


def test_indexer_keys_are_sidecars_of_full() -> None:
    layout = plan_layout(build_config("dots3_note"))
    full = layout.component("full")
    assert full.sidecars == tuple(f"{index}.indexer_key" for index in full.layers)
    assert layout.component("swa").sidecars == ()


def test_compressed_kv_is_a_sidecar_of_full() -> None:
    config = build_config("deepseek_v4")
    layout = plan_layout(config)
    full = layout.component("full")
    kinds = {layer.index: layer.kind for layer in layout.layers}
    assert all("compressed" in kinds[index] for index in full.layers)
    assert layout.component("swa").layers == tuple(range(len(layout.layers)))
    for index in full.layers:
        names = {name.split(".", 1)[1] for name in full.sidecars if name.startswith(f"{index}.")}
        assert {"compressor.entries", "compressor.tail_kv", "compressor.tail_gate"} <= names
        assert ("indexer.entries" in names) == (kinds[index] == "compressed_sparse_attention")
    assert all(layout.page_multiple % rate == 0 for rate in config.compress_rates.values())


def test_each_window_size_is_a_component_of_its_own() -> None:
    config = build_config("gemma3")
    sliding = [i for i, kind in enumerate(config.layer_types) if kind == "sliding_attention"]
    config.per_layer_config = {sliding[0]: {"sliding_window": 4}}
    rules = {c.name: (c.rule, c.layers) for c in plan_layout(config).components}
    assert rules["swa_4"] == (Window(3), (sliding[0],))
    assert rules["swa_8"] == (Window(7), tuple(sliding[1:]))


@pytest.mark.rule("X-4")
@pytest.mark.parametrize("family", REFUSED)
def test_a_state_of_an_own_format_is_refused(family: str) -> None:
    with pytest.raises(UnsupportedModelError, match="format of its own"):
        plan_layout(build_config(family))


@pytest.mark.rule("X-4")
def test_an_unknown_layer_type_is_refused_with_its_layer() -> None:
    config = build_config("qwen3_next")
    config.layer_types = [*config.layer_types[:2], "telepathy", *config.layer_types[3:]]
    with pytest.raises(UnsupportedModelError, match="telepathy") as error:
        plan_layout(config)
    assert error.value.layer == 2
    assert error.value.model_type == config.model_type


@pytest.mark.parametrize("model_type", ["t5", "bart"])
def test_an_encoder_is_refused(model_type: str) -> None:
    with pytest.raises(UnsupportedModelError, match="encoder"):
        plan_layout(CONFIG_MAPPING[model_type]())


def test_attention_that_looks_ahead_is_refused() -> None:
    config = build_config("llama")
    config.is_causal = False
    with pytest.raises(UnsupportedModelError, match="looks ahead"):
        plan_layout(config)


@pytest.mark.parametrize("kind", ["dynamic", "longrope"])
def test_length_dependent_frequencies_limit_the_length(kind: str) -> None:
    """Up to the original length they are constant, so that far prefixes can be reused."""
    config = build_config("llama")
    config.max_position_embeddings = 4096
    config.rope_parameters = {
        "rope_type": kind,
        "rope_theta": 10000.0,
        "factor": 4.0,
        "original_max_position_embeddings": 1024,
        "short_factor": [1.0] * 8,
        "long_factor": [2.0] * 8,
    }
    assert plan_layout(config).max_model_tokens == 1024
    config.rope_parameters = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0}
    assert plan_layout(config).max_model_tokens == 4096
