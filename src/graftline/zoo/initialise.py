"""Weights for models that were never trained: every tensor from its own name and the seed.

The library initialises matrices with a standard deviation of 0.02 or so. A layer then adds next to nothing to
the residual stream, and a wrong or missing state does not show in the logits. Here a matrix has a standard
deviation of 1/sqrt(fan in), so that a layer's output is about as large as its input, and the parameters of
recurrent layers are drawn so that states remember for tens of tokens and neither vanish nor grow.

Each tensor has a generator of its own, seeded with SHA-256 of the seed and the tensor's name: neither the
order in which modules are built nor the global generator matters, and the values of one tensor do not change
when another is added.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from graftline.errors import ConfigError

EMBEDDING_STD = 1.5
"""Of an embedding as it enters the first layer. Larger, and layers hardly change the logits; smaller, and
greedy text falls into short loops in families that normalise what a layer adds."""

QUERY_SHARPNESS = 2.0
"""Standard deviation of attention scores. At 1 attention is close to a mean over all tokens, which hardly
changes with one more token, so greedy text often ends in one token repeated; at 2 it picks a few tokens."""

Rule = Callable[[Tensor, torch.Generator], Tensor]


@dataclass(frozen=True, slots=True)
class _Facts:
    """What the rules need to know of the whole model: its modules, its width, its factor on embeddings."""

    modules: dict[str, nn.Module]
    hidden_size: int
    embedding_scale: float


def initialise(model: PreTrainedModel, seed: int) -> None:
    """Overwrites every parameter and stored buffer in place.

    Scales of norms stay at their neutral value, but for those of queries, which sharpen attention.
    Values are drawn in float32 on the CPU and rounded once to the tensor's own dtype.

    Raises:
        ConfigError: a parameter for which there is no rule.
    """
    facts = _Facts(
        modules=dict(model.named_modules()),
        hidden_size=model.config.get_text_config().hidden_size,
        embedding_scale=float(getattr(model.base_model, "normalizer", 1.0)),
    )
    seen: set[int] = set()
    with torch.no_grad():
        for name, tensor in sorted(model.state_dict(keep_vars=True).items()):
            if id(tensor) in seen:
                continue  # one tensor under two names: an embedding tied to the head, or a shared block
            seen.add(id(tensor))
            values = _values(name, tensor.detach(), facts, _generator(name, seed))
            if values is not None:
                tensor.copy_(values)


def _generator(name: str, seed: int) -> torch.Generator:
    digest = hashlib.sha256(f"{seed}/{name}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "little") >> 1)


def _values(name: str, tensor: Tensor, facts: _Facts, generator: torch.Generator) -> Tensor | None:
    """New values, or None where the constructor's constant is right."""
    owner_name = name.rpartition(".")[0]
    owner = facts.modules[owner_name]
    if not tensor.is_floating_point():
        return _expert_table(tensor, owner) if name.endswith("tid2eid") else None
    if isinstance(owner, nn.Embedding):
        # Some families multiply embeddings on the way in; the product is what counts.
        scale = float(getattr(owner, "embed_scale", facts.embedding_scale))
        return _normal(tensor, generator, EMBEDDING_STD / scale)
    if re.search(r"\.(q|query)_(norm|layernorm)\.weight$", name):
        # A scale of 1 is stored as 1, or as 0 by layers that add 1 themselves.
        return tensor + (_sharpness(owner_name, facts) - 1.0)
    rules = _SAFE_GATE_RULES + _RULES if getattr(owner, "safe_gate", False) else _RULES
    for pattern, rule in rules:
        if re.search(pattern, name):
            return rule(tensor, generator) if rule is not None else None
    if tensor.ndim < 2:
        raise ConfigError(
            f"no rule initialises '{name}' of {type(owner).__name__}", hint="add one to zoo/initialise.py"
        )
    sharpness = _sharpness(owner_name, facts) if re.search(r"\.q(_b)?_proj\.weight$", name) else 1.0
    return _normal(tensor, generator, sharpness * _fan_in(name, tensor, facts.hidden_size) ** -0.5)


def _sharpness(projection: str, facts: _Facts) -> float:
    """Factor on the queries that a projection or a norm gives to its attention module."""
    attention = facts.modules[projection.rpartition(".")[0]]
    # A few families leave out the division by sqrt(head_dim), which makes attention sharp enough.
    return 1.0 if getattr(attention, "scaling", None) == 1.0 else QUERY_SHARPNESS


def _fan_in(name: str, tensor: Tensor, hidden_size: int) -> int:
    """How many inputs add up in one output."""
    shape = tuple(int(n) for n in tensor.shape)
    if name.endswith("rel_logits_proj.proj"):
        return shape[0]
    if len(shape) != 3:
        return math.prod(shape[1:])
    if re.search(r"(shared_)?experts\.", name) and hidden_size in shape[1:]:
        # Stored as [experts, out, in] by most families and as [experts, in, out] by some.
        other = shape[1] if shape[2] == hidden_size else shape[2]
        return other if "down_proj" in name else hidden_size
    if re.search(r"(x_proj|dt_proj)_weight$", name):
        return shape[2]
    return shape[1] if name.endswith("gate_weight") else math.prod(shape[1:])


def _normal(tensor: Tensor, generator: torch.Generator, std: float) -> Tensor:
    return torch.randn(tensor.shape, generator=generator) * std


def _spread(std: float) -> Rule:
    return lambda tensor, generator: _normal(tensor, generator, std)


def _between(low: float, high: float) -> Rule:
    return lambda tensor, generator: torch.rand(tensor.shape, generator=generator) * (high - low) + low


def _fill(value: float) -> Rule:
    return lambda tensor, _: torch.full(tensor.shape, value)


def _inverse_softplus_between(low: float, high: float) -> Rule:
    def rule(tensor: Tensor, generator: torch.Generator) -> Tensor:
        rates = _between(math.log(low), math.log(high))(tensor, generator).exp()
        return torch.log(torch.expm1(rates))

    return rule


def _expert_table(tensor: Tensor, router: nn.Module) -> Tensor:
    """Experts of each token id for routers that look them up: neighbours, starting at the id."""
    tokens, chosen = tensor.shape
    experts = router.get_parameter("weight").shape[0]
    return (torch.arange(tokens)[:, None] + torch.arange(chosen)[None, :]) % experts


_DECAY = _between(math.log(0.02), math.log(0.5))
"""Logarithm of a decay per unit of step; with steps near 1 half-lives lie between 1 and 35 tokens."""

_SAFE_GATE_RULES: tuple[tuple[str, Rule | None], ...] = (
    # Decay is exp(bound * sigmoid(...)) with a bound near -5, so the argument has to be well below 0.
    (r"A_log$", _fill(0.0)),
    (r"dt_bias$", _between(-5.0, -2.0)),
)

_RULES: tuple[tuple[str, Rule | None], ...] = (
    # Recurrent layers.
    (r"A_log$", _DECAY),
    (r"(dt_bias|dt_proj\.bias|dt_proj_bias)$", _between(-2.0, 0.5)),
    (r"\.D$", None),
    (r"recurrent_param$", _inverse_softplus_between(0.001, 0.05)),
    (r"time_(decay|first|mix_\w+)$", None),
    (r"igate_preact\.bias$", _fill(0.0)),
    (r"fgate_preact\.bias$", None),
    (r"(diagonal_decay|key_decay|query_decay|slope_rate)$", None),
    # Attention.
    (r"sinks$", _spread(1.0)),
    (r"qk_norm\.temp$", _fill(1.0)),
    (r"(position_bias|static_weight)$", _spread(0.5)),
    # Routers: a small preference per expert, far below the spread of the scores.
    (r"(e_score_correction_bias|expert_bias)$", _spread(0.05)),
    (r"balancing_biases$", None),
    # Residual streams.
    (r"correct_output_scale$", _fill(1.0)),
    (r"(attention_input|mlp_input|final_input)\.query$", lambda t, g: _normal(t, g, t.shape[-1] ** -0.5)),
    (r"(_hc|hc_head)\.(hc_)?base$", _spread(0.5)),
    # Scales at 1, or at 0 where the layer adds 1 itself: as constructed.
    (r"(norm\w*|ln\w*)\.weight$", None),
    (r"(scale|scalar|norm\d?)$", None),
    # Biases.
    (r"(norm\w*|ln\w*)\.bias$", _spread(0.05)),
    (r"bias$", _spread(0.1)),
)
