"""What one HTTP request asks of the engine, and one answer on its way."""

from __future__ import annotations

from dataclasses import dataclass, replace

from graftline.engine.api import (
    GenerationRequest,
    PrefetchPolicy,
    ReuseReport,
    SamplingParams,
    TokenEvent,
)
from graftline.key import Tokens
from graftline.server.bridge import Arrival
from graftline.server.detokenize import StopTexts
from graftline.server.errors import ApiError, internal, unavailable
from graftline.server.responses import FinishReason
from graftline.server.tokens import Tokenizer


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt.

    Attributes:
        tokens: u32.
        marks: places where other prompts are expected to leave it, in tokens.
    """

    tokens: Tokens
    marks: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class CacheWishes:
    """What a request asks of the cache; fields as in `GenerationRequest`."""

    salt: str = ""
    session_id: str = ""
    priority: int = 0
    use_cache: bool = True
    expected_return_s: float | None = None
    prefetch_policy: PrefetchPolicy | None = None
    prefetch_timeout_s: float | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """One HTTP request's work: each prompt is answered `n` times.

    Attributes:
        request_id: for the log.
        model: name under which the answer goes out.
        prompts: at least one.
        n: answers a prompt.
        sampling: choice i of a prompt uses `seed + i`.
        stops: texts that end an answer.
        wishes: what it asks of the cache.
    """

    request_id: str
    model: str
    prompts: tuple[Prompt, ...]
    n: int
    sampling: SamplingParams
    stops: tuple[str, ...] = ()
    wishes: CacheWishes = CacheWishes()

    @property
    def prompt_tokens(self) -> int:
        """Of all prompts, each counted once."""
        return sum(len(prompt.tokens) for prompt in self.prompts)

    def engine_request(self, choice: int) -> GenerationRequest:
        """What the engine is asked for choice number `choice` of all."""
        prompt = self.prompts[choice // self.n]
        seed = self.sampling.seed
        sampling = self.sampling if seed is None else replace(self.sampling, seed=seed + choice % self.n)
        return GenerationRequest(
            prompt.tokens,
            sampling,
            salt=self.wishes.salt,
            session_id=self.wishes.session_id,
            priority=self.wishes.priority,
            use_cache=self.wishes.use_cache,
            marks=prompt.marks,
            expected_return_s=self.wishes.expected_return_s,
            label=self.request_id if choice == 0 else f"{self.request_id}#{choice}",
            prefetch_policy=self.wishes.prefetch_policy,
            prefetch_timeout_s=self.wishes.prefetch_timeout_s,
        )


@dataclass(frozen=True, slots=True)
class ScoredToken:
    """A token with its log-probability (natural) and those of the likeliest at its place."""

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class Piece:
    """What an answer gained.

    Attributes:
        choice: its index.
        text: may be empty.
        scored: tokens since the last piece, when log-probabilities were asked for. A token whose text is
            held back comes with the piece that has its text.
        finish: set on the last piece of an answer.
    """

    choice: int
    text: str
    scored: tuple[ScoredToken, ...] = ()
    finish: FinishReason | None = None


class Choice:
    """One answer: from the engine's events to pieces of text.

    Attributes:
        index: its place in the answer.
        engine_id: the engine's id, None before it was submitted.
        generated: tokens so far.
        finished: whether its last piece was made.
        reuse: the engine's report, None before its first event.
        submitted_s, first_s, last_s: `time.perf_counter` at submission and of the first and last event; 0.0
            before.
    """

    def __init__(self, index: int, job: Job, tokenizer: Tokenizer) -> None:
        self.index = index
        self.engine_id: int | None = None
        self.generated = 0
        self.finished = False
        self.reuse: ReuseReport | None = None
        self.submitted_s = 0.0
        self.first_s = 0.0
        self.last_s = 0.0
        self._request_id = job.request_id
        self._detokenizer = tokenizer.detokenizer()
        self._stops = StopTexts(job.stops)
        self._scored: list[ScoredToken] = []

    def take(self, arrival: Arrival) -> Piece | None:
        """Takes an event in; the piece that it makes, if any.

        Raises:
            ApiError: the engine failed, or gave the request up.
        """
        event = arrival.event
        self._time(arrival.at_s)
        self.reuse = event.reuse or self.reuse
        if event.finish_reason in ("abort", "error"):
            self.finished = True
            raise self._failure(event)
        text = self._text(event)
        finish: FinishReason | None = None
        if self._stops.found or event.finish_reason == "stop":
            finish = "stop"
        elif event.finish_reason == "length":
            finish = "length"
        self.finished = finish is not None
        if not text and finish is None:
            return None
        scored, self._scored = tuple(self._scored), []
        return Piece(self.index, text, scored, finish)

    def _text(self, event: TokenEvent) -> str:
        text = ""
        if event.token is not None:
            self.generated += 1
            text = self._detokenizer.push(event.token)
            if event.logprob is not None:
                self._scored.append(ScoredToken(event.token, event.logprob, event.top_logprobs))
        if event.finish_reason is None:
            return self._stops.push(text)
        shown = self._stops.push(text + self._detokenizer.flush())
        return shown + self._stops.flush()

    def _time(self, at_s: float) -> None:
        self.first_s = self.first_s or at_s
        self.last_s = at_s

    def _failure(self, event: TokenEvent) -> ApiError:
        if event.finish_reason == "abort":
            return unavailable("the server stopped before the answer was complete", "stopping")
        return internal(self._request_id)
