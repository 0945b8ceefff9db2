"""The streaming client of the benchmarks: token ids in, tokens and times out, as a client sees them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx2
from bench.serve.models import tokens_of
from demo.talking import chunks, content


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer.

    Attributes:
        tokens: what was generated.
        ttft_s: from sending to the first piece of text.
        total_s: from sending to the end of the stream.
        prompt_tokens, reused_tokens: as the server tells them.
        engine_s: the server's own time from submission to the engine's first token; 0 when not told.
        cache: the server's report of reuse; empty for other servers.
    """

    tokens: tuple[int, ...]
    ttft_s: float
    total_s: float
    prompt_tokens: int
    reused_tokens: int
    engine_s: float = 0.0
    cache: Mapping[str, Any] = field(default_factory=dict)

    @property
    def why(self) -> str:
        """What limited the reuse, or a dash."""
        if not self.cache.get("lost_tokens"):
            return "-"
        return f"{self.cache['lost_tokens']}: {self.cache['limited_by']}, {self.cache['reason']}"


def complete(client: httpx2.Client, prompt: Sequence[int], tokens: int, **more: Any) -> Reply:
    """Streams a greedy completion of exactly `tokens` tokens.

    Args:
        client: with the server's address.
        prompt: token ids.
        tokens: to generate.
        more: further fields of the request.

    Raises:
        RuntimeError: the server refused, or gave another number of tokens.
    """
    body = {
        "prompt": list(prompt),
        "max_tokens": tokens,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
        **more,
    }
    text, first_s = "", 0.0
    last: Mapping[str, Any] = {}
    start_s = time.perf_counter()
    with client.stream("POST", "/v1/completions", json=body) as response:
        if response.status_code != 200:
            raise RuntimeError(f"{response.status_code}: {response.read().decode()}")
        if ignored := response.headers.get("X-Ignored-Fields"):
            raise RuntimeError(f"the server ignores these fields of the request: {ignored}")
        for chunk in chunks(response):
            piece = "".join(content(choice) for choice in chunk["choices"])
            if piece and not first_s:
                first_s = time.perf_counter()
            text += piece
            last = chunk if chunk.get("usage") else last
    total_s = time.perf_counter() - start_s
    generated = tokens_of(text)
    if len(generated) != tokens:
        raise RuntimeError(f"{len(generated)} tokens came, {tokens} were asked for")
    usage = last["usage"]
    return Reply(
        tokens=tuple(generated),
        ttft_s=first_s - start_s,
        total_s=total_s,
        prompt_tokens=usage["prompt_tokens"],
        reused_tokens=(usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0,
        engine_s=(last.get("timings") or {}).get("prompt_ms", 0.0) / 1e3,
        cache=last.get("cache") or {},
    )
