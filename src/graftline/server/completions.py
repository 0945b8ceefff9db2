"""`POST /v1/completions`."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
from starlette.requests import Request
from starlette.responses import Response

from graftline.key import Tokens
from graftline.server.answer import Collected, collect, json_answer
from graftline.server.errors import bad_request
from graftline.server.job import Job, Piece, Prompt, ScoredToken
from graftline.server.middleware import request_id_of
from graftline.server.prepare import room, sampling_of, stops_of, wishes_of
from graftline.server.report import cache_report, timings, usage
from graftline.server.responses import (
    Chunk,
    Completion,
    CompletionChoice,
    CompletionChunk,
    CompletionLogprobs,
)
from graftline.server.run import Run
from graftline.server.schemas import CompletionBody
from graftline.server.state import Backend, State
from graftline.server.stream import RunResponse, UsageWishes, events
from graftline.server.tokens import Tokenizer

DEFAULT_MAX_TOKENS = 16


@dataclass(frozen=True, slots=True)
class Given:
    """One prompt as it was given: a text, or tokens."""

    value: str | list[int]
    param: str


def marks_of(body: CompletionBody, prompts: Sequence[Tokens]) -> tuple[int, ...]:
    """Marks of the only prompt.

    Raises:
        ApiError: there are several prompts, or a mark is past the end.
    """
    marks = tuple(body.cache_marks or ())
    if marks and len(prompts) != 1:
        raise bad_request("cache_marks needs a single prompt", "cache_marks")
    if marks and max(marks) > len(prompts[0]):
        raise bad_request(f"{max(marks)} is past the prompt's {len(prompts[0])} tokens", "cache_marks")
    return marks


def split(prompt: object) -> list[Given]:
    """The prompts of a `prompt` field, which has four forms.

    Raises:
        ApiError: there is none.
    """
    if isinstance(prompt, str):
        return [Given(prompt, "prompt")]
    assert isinstance(prompt, list)
    if not prompt:
        raise bad_request("the prompt is empty; give at least one token", "prompt", "empty_prompt")
    if isinstance(prompt[0], int):
        return [Given(prompt, "prompt")]
    return [Given(one, f"prompt[{i}]") for i, one in enumerate(prompt)]


async def tokens_of(given: Given, backend: Backend) -> Tokens:
    """Tokens of one prompt.

    Raises:
        ApiError: an id outside of the vocabulary.
    """
    if isinstance(given.value, str):
        return await backend.tokenizer.encode(given.value)
    vocab_size = backend.engine.info.vocab_size
    if wrong := [token for token in given.value if token >= vocab_size]:
        raise bad_request(f"{given.param}: {wrong[0]} is outside the vocabulary of {vocab_size}", given.param)
    return np.asarray(given.value, dtype=np.uint32)


async def prepare(body: CompletionBody, request: Request, state: State, backend: Backend) -> Job:
    """The job.

    Raises:
        ApiError: something in the request that cannot be done.
    """
    if body.echo and body.logprobs is not None:
        raise bad_request(
            "log-probabilities of the prompt are not supported; drop echo or logprobs", "logprobs"
        )
    model = state.check_model(body.model)
    given, n, info = split(body.prompt), body.n or 1, backend.engine.info
    if len(given) * n > state.config.max_sequences:
        raise bad_request(
            f"{len(given)} prompts with n = {n} are {len(given) * n} sequences, more than"
            f" {state.config.max_sequences}; send fewer at once",
            "prompt" if n == 1 else "n",
        )
    prompts: list[Tokens] = []
    max_tokens = 0
    for one in given:
        tokens = await tokens_of(one, backend)
        prompts.append(tokens)
        fits = room(info, len(tokens), body.max_tokens, DEFAULT_MAX_TOKENS, one.param)
        max_tokens = min(max_tokens or fits, fits)
    marks = marks_of(body, prompts)
    return Job(
        request_id=request_id_of(request.scope),
        model=model,
        prompts=tuple(Prompt(tokens, marks) for tokens in prompts),
        n=n,
        sampling=sampling_of(body, info, max_tokens, body.logprobs),
        stops=stops_of(body),
        wishes=wishes_of(body, request),
    )


async def complete(body: CompletionBody, request: Request, state: State) -> Response:
    """Answers a completion, streamed or whole."""
    backend = state.admit()
    headers = state.fields.check(body.model_extra, n=body.n or 1)
    job = await prepare(body, request, state, backend)
    echoes = [backend.tokenizer.decode(p.tokens.tolist()) for p in job.prompts] if body.echo else []
    state.log_prompt(job, str(body.prompt))
    run = state.start(job)
    maker = CompletionMaker(job, backend.tokenizer, echoes)
    if body.stream:
        wishes = UsageWishes.of(body.stream_options)
        return RunResponse(run, lambda: events(run, maker, wishes), state.config.ping_s, headers)
    return json_answer(maker.answer(await collect(run, request), run), headers)


class CompletionMaker:
    """Makes chunks and answers of one completion.

    Args:
        job: what was asked.
        tokenizer: names tokens.
        echoes: the prompts' texts, put before the answers; empty for none.
    """

    def __init__(self, job: Job, tokenizer: Tokenizer, echoes: Sequence[str] = ()) -> None:
        self._id = f"cmpl-{uuid.uuid4().hex}"
        self._created = int(time.time())
        self._job = job
        self._tokenizer = tokenizer
        self._echoes = echoes
        self._offsets: dict[int, int] = {}

    def piece(self, piece: Piece) -> Chunk:
        """A chunk; an answer's first one has the prompt, if wanted."""
        text = piece.text
        if self._echoes and piece.choice not in self._offsets:
            text = self._echoes[piece.choice // self._job.n] + text
        return self._chunk([self._choice(piece.choice, text, piece.scored, piece.finish)])

    def empty(self) -> Chunk:
        """A chunk without choices."""
        return self._chunk([])

    def answer(self, collected: list[Collected], run: Run) -> Completion:
        """The whole answer."""
        choices = []
        for one in collected:
            echo = self._echoes[one.index // self._job.n] if self._echoes else ""
            choices.append(self._choice(one.index, echo + one.text, one.scored, one.finish))
        return Completion(
            id=self._id,
            created=self._created,
            model=self._job.model,
            choices=choices,
            usage=usage(self._job, run.choices),
            cache=cache_report(self._job, run.choices),
            timings=timings(self._job, run.choices),
        )

    def _choice(
        self, index: int, text: str, scored: tuple[ScoredToken, ...], finish: str | None
    ) -> CompletionChoice:
        logprobs = None
        if self._job.sampling.logprobs is not None:
            logprobs = self._logprobs(scored, self._offsets.get(index, 0))
        self._offsets[index] = self._offsets.get(index, 0) + len(text)
        return CompletionChoice.model_validate(
            {"index": index, "text": text, "logprobs": logprobs, "finish_reason": finish}
        )

    def _logprobs(self, scored: tuple[ScoredToken, ...], offset: int) -> CompletionLogprobs:
        name = self._tokenizer.token_text
        tokens = [name(one.token) for one in scored]
        starts = accumulate((len(token) for token in tokens), initial=offset)
        return CompletionLogprobs(
            tokens=tokens,
            token_logprobs=[one.logprob for one in scored],
            top_logprobs=[{name(token): logprob for token, logprob in one.top} for one in scored],
            text_offset=list(starts)[:-1],
        )

    def _chunk(self, choices: list[CompletionChoice]) -> CompletionChunk:
        return CompletionChunk(
            id=self._id,
            object="text_completion",
            created=self._created,
            model=self._job.model,
            choices=choices,
        )
