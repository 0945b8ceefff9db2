"""What a request must be, before it is queued."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from graftline.components import ComponentSpec
from graftline.engine.api import EngineInfo, GenerationRequest
from graftline.engine.config import EngineConfig, check_prefetch
from graftline.engine.sampler import check_sampling
from graftline.engine.sizes import slots_needed
from graftline.errors import ConfigError
from graftline.key import as_tokens


def checked(
    request: GenerationRequest, info: EngineInfo, config: EngineConfig, components: Sequence[ComponentSpec]
) -> GenerationRequest:
    """The request with tokens of its own.

    Raises:
        ConfigError: why it can never run (rule X-6).
    """
    tokens, sampling = as_tokens(request.tokens), request.sampling
    check_sampling(sampling)
    check_prefetch(
        request.prefetch_policy or config.prefetch_policy,
        config.prefetch_timeout_s if request.prefetch_timeout_s is None else request.prefetch_timeout_s,
    )
    if len(tokens) == 0:
        raise ConfigError("the prompt is empty", hint="give at least one token")
    if int(tokens.max()) >= info.vocab_size:
        raise ConfigError(f"token id {int(tokens.max())} is outside the vocabulary of {info.vocab_size}")
    if wrong := [mark for mark in request.marks if not 0 <= mark <= len(tokens)]:
        raise ConfigError(f"mark {wrong[0]} is outside the prompt of {len(tokens)} tokens")
    total = len(tokens) + sampling.max_tokens
    if total > info.max_model_tokens:
        raise ConfigError(
            f"{len(tokens)} prompt tokens and {sampling.max_tokens} new ones are {total}, more than"
            f" {info.max_model_tokens}",
            hint="shorten the prompt or lower max_tokens",
        )
    for spec in components:
        need = slots_needed(spec.rule, info.page_tokens, total, config.chunk_tokens)
        if need > spec.slots:
            raise ConfigError(
                f"{total} tokens need {need} slots of '{spec.name}', its pool has {spec.slots}",
                hint="give more device memory, or ask for fewer tokens",
            )
    return replace(request, tokens=tokens.copy())
