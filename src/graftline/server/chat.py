"""`POST /v1/chat/completions`."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from graftline.server.answer import Collected, collect, json_answer
from graftline.server.errors import bad_request
from graftline.server.job import Job, Piece, Prompt, ScoredToken
from graftline.server.middleware import request_id_of
from graftline.server.prepare import room, sampling_of, stops_of, wishes_of
from graftline.server.report import cache_report, timings, usage
from graftline.server.responses import (
    AssistantMessage,
    ChatChoice,
    ChatChunk,
    ChatChunkChoice,
    ChatCompletion,
    ChatLogprobs,
    Chunk,
    Delta,
    TokenLogprob,
    TopLogprob,
)
from graftline.server.run import Run
from graftline.server.schemas import ChatBody, Message, TemplateBody, TokenizeBody
from graftline.server.state import Backend, State
from graftline.server.stream import RunResponse, UsageWishes, events
from graftline.server.tokens import Chat, Tokenizer, parse_arguments


def template_input(body: TemplateBody | TokenizeBody, *, with_tools: bool = True) -> Chat:
    """What the chat template is given.

    Raises:
        ApiError: a tool call whose arguments are no JSON.
    """
    return Chat(
        messages=[_message(message, f"messages[{i}]") for i, message in enumerate(body.messages or ())],
        tools=[tool.model_dump(exclude_none=True) for tool in body.tools or ()] if with_tools else (),
        variables=body.chat_template_kwargs or {},
        generate=body.add_generation_prompt is not False,
    )


def _message(message: Message, place: str) -> Mapping[str, Any]:
    made = message.model_dump(exclude_none=True)
    made["content"] = _content(message)
    for i, call in enumerate(made.get("tool_calls", ())):
        param = f"{place}.tool_calls[{i}].function.arguments"
        call["function"]["arguments"] = parse_arguments(call["function"]["arguments"], param)
    return made


def _content(message: Message) -> str:
    if message.content is None or isinstance(message.content, str):
        return message.content or ""
    return "\n".join(part.text for part in message.content)


async def prepare(body: ChatBody, request: Request, backend: Backend, model: str) -> tuple[Job, str]:
    """The job, and the prompt's text.

    Raises:
        ApiError: something in the request that cannot be done.
    """
    if body.top_logprobs and not body.logprobs:
        raise bad_request("top_logprobs needs logprobs to be true", "top_logprobs")
    info = backend.engine.info
    rendered = await backend.tokenizer.render(template_input(body, with_tools=body.tool_choice != "none"))
    asked = body.max_completion_tokens or body.max_tokens
    max_tokens = room(info, len(rendered.tokens), asked, None, "messages")
    logprobs = (body.top_logprobs or 0) if body.logprobs else None
    job = Job(
        request_id=request_id_of(request.scope),
        model=model,
        prompts=(Prompt(rendered.tokens, rendered.marks),),
        n=body.n or 1,
        sampling=sampling_of(body, info, max_tokens, logprobs),
        stops=stops_of(body),
        wishes=wishes_of(body, request),
    )
    return job, rendered.text


async def chat(body: ChatBody, request: Request, state: State) -> Response:
    """Answers a chat, streamed or whole."""
    backend = state.admit()
    model = state.check_model(body.model)
    headers = state.fields.check(body.model_extra, n=body.n or 1)
    job, text = await prepare(body, request, backend, model)
    state.log_prompt(job, text)
    run = state.start(job)
    maker = ChatMaker(job, backend.tokenizer)
    if body.stream:
        wishes = UsageWishes.of(body.stream_options)
        return RunResponse(run, lambda: events(run, maker, wishes), state.config.ping_s, headers)
    return json_answer(maker.answer(await collect(run, request), run), headers)


class ChatMaker:
    """Makes chunks and answers of one chat.

    Args:
        job: what was asked.
        tokenizer: names tokens.
    """

    def __init__(self, job: Job, tokenizer: Tokenizer) -> None:
        self._id = f"chatcmpl-{uuid.uuid4().hex}"
        self._created = int(time.time())
        self._job = job
        self._tokenizer = tokenizer
        self._begun: set[int] = set()

    def piece(self, piece: Piece) -> Chunk:
        """A chunk; an answer's first one has the role."""
        if piece.choice in self._begun:
            delta = Delta(content=piece.text)
        else:
            self._begun.add(piece.choice)
            delta = Delta(role="assistant", content=piece.text)
        choice = ChatChunkChoice(
            index=piece.choice, delta=delta, logprobs=self._logprobs(piece.scored), finish_reason=piece.finish
        )
        return self._chunk([choice])

    def empty(self) -> Chunk:
        """A chunk without choices."""
        return self._chunk([])

    def answer(self, collected: list[Collected], run: Run) -> ChatCompletion:
        """The whole answer."""
        return ChatCompletion(
            id=self._id,
            created=self._created,
            model=self._job.model,
            choices=[
                ChatChoice(
                    index=one.index,
                    message=AssistantMessage(content=one.text),
                    logprobs=self._logprobs(one.scored),
                    finish_reason=one.finish,
                )
                for one in collected
            ],
            usage=usage(self._job, run.choices),
            cache=cache_report(self._job, run.choices),
            timings=timings(self._job, run.choices),
        )

    def _chunk(self, choices: list[ChatChunkChoice]) -> ChatChunk:
        return ChatChunk(
            id=self._id,
            object="chat.completion.chunk",
            created=self._created,
            model=self._job.model,
            choices=choices,
        )

    def _logprobs(self, scored: tuple[ScoredToken, ...]) -> ChatLogprobs | None:
        if self._job.sampling.logprobs is None:
            return None
        return ChatLogprobs(content=[self._token(one) for one in scored])

    def _token(self, scored: ScoredToken) -> TokenLogprob:
        return TokenLogprob(
            token=self._tokenizer.token_text(scored.token),
            logprob=scored.logprob,
            bytes=self._tokenizer.token_bytes(scored.token),
            top_logprobs=[
                TopLogprob(
                    token=self._tokenizer.token_text(token),
                    logprob=logprob,
                    bytes=self._tokenizer.token_bytes(token),
                )
                for token, logprob in scored.top
            ],
        )
