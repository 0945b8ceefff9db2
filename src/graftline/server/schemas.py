"""Bodies of requests. Unknown fields are kept apart and not refused here; see `fields.py`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

TokenId = Annotated[int, Field(ge=0, le=2**32 - 1)]
Text = Annotated[str, Field(min_length=1)]
Seed = Annotated[int, Field(ge=-(2**63), le=2**63 - 1)]

MAX_ID = 256
MAX_STOPS = 16
MAX_LOGPROBS = 20
MAX_MARKS = 16
MAX_CHOICES = 128


class RequestBody(BaseModel):
    """What all bodies share: exact types, no NaN, unknown fields kept."""

    model_config = ConfigDict(extra="allow", strict=True, allow_inf_nan=False)


class StreamOptions(RequestBody):
    """What a stream tells besides text."""

    include_usage: bool | None = Field(None, description="A last chunk with the usage of the whole request.")
    continuous_usage_stats: bool | None = Field(None, description="Usage so far in every chunk.")


class GenerationBody(RequestBody):
    """What chat and completions share."""

    model: str | None = Field(None, description="A served name; the served model when left out.")
    max_tokens: int | None = Field(None, ge=1, description="Most tokens to generate.")
    temperature: float | None = Field(None, ge=0, description="0 is greedy; 1 when left out.")
    top_p: float | None = Field(
        None, gt=0, le=1, description="Nucleus: the likeliest tokens of this total chance."
    )
    top_k: int | None = Field(
        None, ge=-1, le=2**31 - 1, description="The likeliest so many; 0 or -1 for all."
    )
    min_p: float | None = Field(None, ge=0, le=1, description="Least chance relative to the likeliest token.")
    seed: Seed | None = Field(None, description="Makes sampling repeatable; choice i uses seed + i.")
    stop: Text | Annotated[list[Text], Field(max_length=MAX_STOPS)] | None = Field(
        None, description="Texts that end generation; they are not part of the answer."
    )
    stop_token_ids: Annotated[list[TokenId], Field(max_length=128)] | None = Field(
        None, description="Tokens that end generation; they are not part of the answer."
    )
    ignore_eos: bool | None = Field(None, description="Go on after the model's end of text.")
    n: int | None = Field(None, ge=1, le=MAX_CHOICES, description="How many answers.")
    stream: bool | None = Field(None, description="Server-sent events instead of one answer.")
    stream_options: StreamOptions | None = None
    session_id: str | None = Field(
        None, max_length=MAX_ID, description="Who will come back; before the header X-Session-ID."
    )
    prompt_cache_key: str | None = Field(
        None, max_length=MAX_ID, description="Taken as the session when no session id is given."
    )
    cache_salt: str | None = Field(
        None, max_length=1024, description="Prompts of different salts never share anything."
    )
    use_cache: bool | None = Field(
        None, description="False computes the whole prompt and keeps nothing of it."
    )
    priority: int | None = Field(
        None, ge=-(2**31), le=2**31 - 1, description="Larger runs first, and is kept longer."
    )
    expected_return_s: float | None = Field(
        None,
        ge=0,
        le=1e9,
        description="Seconds after the answer until the session's next request is expected.",
    )
    prefetch_policy: Literal["best_effort", "wait", "timeout"] | None = Field(
        None, description="What the request does while a store brings up a part of its prompt."
    )
    prefetch_timeout_s: float | None = Field(
        None, gt=0, le=3600, description="How long it waits under `timeout`."
    )
    user: str | None = Field(None, description="Accepted, not used.")


class TextPart(RequestBody):
    """A part of a message's content."""

    type: Literal["text"]
    text: str


class FunctionCall(RequestBody):
    """Which function an assistant called."""

    name: str
    arguments: str = Field(description="JSON.")


class ToolCall(RequestBody):
    """A call in an assistant's message."""

    id: str | None = None
    type: Literal["function"] = "function"
    function: FunctionCall


class Message(RequestBody):
    """One turn. Other fields are passed to the chat template."""

    role: Literal["developer", "system", "user", "assistant", "tool", "function"]
    content: str | list[TextPart] | None = None
    name: str | None = None
    tool_calls: list[ToolCall] | None = None
    tool_call_id: str | None = None


class Function(RequestBody):
    """What a tool is."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None


class Tool(RequestBody):
    """A tool, shown to the model by the chat template; calls come back as text."""

    type: Literal["function"]
    function: Function


class TemplateBody(RequestBody):
    """What goes into a chat template."""

    messages: Annotated[list[Message], Field(min_length=1)]
    tools: list[Tool] | None = None
    chat_template_kwargs: dict[str, Any] | None = Field(None, description="More variables of the template.")
    add_generation_prompt: bool | None = Field(
        None, description="Whether the assistant's turn is opened; true."
    )


class ChatBody(GenerationBody, TemplateBody):
    """`POST /v1/chat/completions`."""

    max_completion_tokens: int | None = Field(None, ge=1, description="Before max_tokens, if both are given.")
    logprobs: bool | None = Field(None, description="Log-probabilities of the tokens of the answer.")
    top_logprobs: int | None = Field(
        None, ge=0, le=MAX_LOGPROBS, description="And of so many others at each place."
    )
    tool_choice: Literal["none", "auto"] | None = Field(None, description="`none` hides the tools.")


Prompt = str | list[str] | list[TokenId] | list[list[TokenId]]


class CompletionBody(GenerationBody):
    """`POST /v1/completions`."""

    prompt: Prompt = Field(description="A text, token ids, or a list of either.")
    echo: bool | None = Field(None, description="Put the prompt before the answer.")
    logprobs: int | None = Field(
        None, ge=0, le=MAX_LOGPROBS, description="Log-probabilities of so many tokens."
    )
    cache_marks: Annotated[list[Annotated[int, Field(ge=0)]], Field(max_length=MAX_MARKS)] | None = Field(
        None, description="Places in a single prompt, in tokens, where other prompts will leave it."
    )


class TokenizeBody(RequestBody):
    """`POST /tokenize`: a text, or messages."""

    model: str | None = None
    prompt: str | None = None
    messages: Annotated[list[Message], Field(min_length=1)] | None = None
    tools: list[Tool] | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    add_generation_prompt: bool | None = None
    add_special_tokens: bool | None = Field(None, description="True for a text, false for messages.")
    return_token_strs: bool | None = None


class DetokenizeBody(RequestBody):
    """`POST /detokenize`."""

    model: str | None = None
    tokens: list[TokenId]
