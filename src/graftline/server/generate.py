"""Routes that generate text, and those that turn text into tokens and back."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response

from graftline.server.chat import chat, template_input
from graftline.server.completions import complete
from graftline.server.errors import bad_request
from graftline.server.responses import ChatCompletion, Completion, Detokenized, Tokenized
from graftline.server.routing import AppState, StrictJsonRoute, failures
from graftline.server.schemas import ChatBody, CompletionBody, DetokenizeBody, TokenizeBody

router = APIRouter(route_class=StrictJsonRoute, tags=["generation"])

GENERATION_FAILURES = failures(400, 401, 403, 404, 413, 415, 429, 500, 503)


def _answer(model: type) -> dict[int | str, dict[str, Any]]:
    event = {
        "type": "object",
        "properties": {"data": {"type": "string", "description": "A chunk as JSON; at the end [DONE]."}},
    }
    content = {"text/event-stream": {"itemSchema": event}}
    return {200: {"model": model, "content": content}, **GENERATION_FAILURES}


@router.post("/v1/chat/completions", response_model=None, responses=_answer(ChatCompletion))
async def chat_completions(body: ChatBody, request: Request, state: AppState) -> Response:
    """Answers a chat."""
    return await chat(body, request, state)


@router.post("/v1/completions", response_model=None, responses=_answer(Completion))
async def completions(body: CompletionBody, request: Request, state: AppState) -> Response:
    """Continues a text."""
    return await complete(body, request, state)


@router.post("/tokenize", responses=failures(400, 401, 403, 404, 413, 415, 503))
async def tokenize(body: TokenizeBody, state: AppState) -> Tokenized:
    """Tokens of a text or of a chat."""
    backend = state.backend()
    state.check_model(body.model)
    if (body.prompt is None) == (body.messages is None):
        raise bad_request("give either prompt or messages", "prompt")
    if body.prompt is not None:
        tokens = await backend.tokenizer.encode(body.prompt, special=body.add_special_tokens is not False)
    else:
        tokens = (await backend.tokenizer.render(template_input(body))).tokens
    names = [backend.tokenizer.token_text(int(token)) for token in tokens] if body.return_token_strs else None
    return Tokenized(
        count=len(tokens),
        max_model_len=backend.engine.info.max_model_tokens,
        tokens=tokens.tolist(),
        token_strs=names,
    )


@router.post("/detokenize", responses=failures(400, 401, 403, 404, 413, 415, 503))
async def detokenize(body: DetokenizeBody, state: AppState) -> Detokenized:
    """Text of tokens, without special ones."""
    backend = state.backend()
    state.check_model(body.model)
    vocab_size = backend.engine.info.vocab_size
    if wrong := [token for token in body.tokens if token >= vocab_size]:
        raise bad_request(f"tokens: {wrong[0]} is outside the vocabulary of {vocab_size}", "tokens")
    return Detokenized(prompt=backend.tokenizer.decode(body.tokens))
