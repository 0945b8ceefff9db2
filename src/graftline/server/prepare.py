"""From a request's fields to a job."""

from __future__ import annotations

from starlette.requests import Request

from graftline.engine.api import EngineInfo, SamplingParams
from graftline.server.errors import ApiError, bad_request
from graftline.server.job import CacheWishes
from graftline.server.schemas import MAX_ID, GenerationBody

GREEDY_BELOW = 1e-5
"""Temperatures below this are taken as 0: dividing by them could overflow, and leaves one token anyway."""


def session_of(body: GenerationBody, request: Request) -> str:
    """Who asks: the body's session id, else the header's, else the prompt cache key.

    Raises:
        ApiError: the header is too long.
    """
    header = request.headers.get("x-session-id", "")
    if len(header) > MAX_ID:
        raise bad_request(f"X-Session-ID has {len(header)} characters, {MAX_ID} are allowed", "session_id")
    return body.session_id or header or body.prompt_cache_key or ""


def wishes_of(body: GenerationBody, request: Request) -> CacheWishes:
    """What a request asks of the cache.

    Raises:
        ApiError: the session's header is too long.
    """
    return CacheWishes(
        salt=body.cache_salt or "",
        session_id=session_of(body, request),
        priority=body.priority or 0,
        use_cache=body.use_cache is not False,
        expected_return_s=body.expected_return_s,
        prefetch_policy=body.prefetch_policy,
        prefetch_timeout_s=body.prefetch_timeout_s,
    )


def stops_of(body: GenerationBody) -> tuple[str, ...]:
    """Stop texts, as a tuple."""
    if body.stop is None:
        return ()
    return (body.stop,) if isinstance(body.stop, str) else tuple(body.stop)


def sampling_of(
    body: GenerationBody, info: EngineInfo, max_tokens: int, logprobs: int | None
) -> SamplingParams:
    """How tokens are chosen.

    Raises:
        ApiError: a stop token outside of the vocabulary.
    """
    stop_ids = tuple(body.stop_token_ids or ())
    if wrong := [token for token in stop_ids if token >= info.vocab_size]:
        raise bad_request(
            f"stop_token_ids: {wrong[0]} is outside the vocabulary of {info.vocab_size}", "stop_token_ids"
        )
    temperature = 1.0 if body.temperature is None else body.temperature
    return SamplingParams(
        max_tokens=max_tokens,
        temperature=0.0 if temperature < GREEDY_BELOW else temperature,
        top_p=1.0 if body.top_p is None else body.top_p,
        top_k=max(0, body.top_k or 0),
        min_p=body.min_p or 0.0,
        seed=body.seed,
        stop_token_ids=stop_ids,
        ignore_eos=bool(body.ignore_eos),
        logprobs=logprobs,
    )


def room(
    info: EngineInfo, prompt_tokens: int, max_tokens: int | None, default: int | None, param: str
) -> int:
    """How many tokens may be generated.

    Args:
        info: has the longest sequence.
        prompt_tokens: of the longest prompt.
        max_tokens: as asked for.
        default: when not asked for; None takes all that is left.
        param: field that the prompt came in.

    Raises:
        ApiError: prompt and answer together are longer than the model takes.
    """
    limit = info.max_model_tokens
    if prompt_tokens == 0:
        raise bad_request("the prompt is empty; give at least one token", param, "empty_prompt")
    wanted = max_tokens or default or max(1, limit - prompt_tokens)
    if max_tokens is None and prompt_tokens < limit:
        wanted = min(wanted, limit - prompt_tokens)
    total = prompt_tokens + wanted
    if total > limit:
        raise _too_long(limit, prompt_tokens, wanted, param)
    return wanted


def _too_long(limit: int, prompt_tokens: int, wanted: int, param: str) -> ApiError:
    return bad_request(
        f"the prompt has {prompt_tokens} tokens and {wanted} are to be generated, {prompt_tokens + wanted} in"
        f" all; the limit is {limit}. Shorten the prompt or lower max_tokens",
        param if prompt_tokens >= limit else "max_tokens",
        "context_length_exceeded",
    )
