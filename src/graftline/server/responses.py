"""Bodies of answers. Shapes are those of the OpenAI API; `cache` and `timings` are additions."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

FinishReason = Literal["stop", "length"]


class ResponseBody(BaseModel):
    """What all answers share."""

    model_config = ConfigDict(frozen=True)


class ErrorDetail(ResponseBody):
    """What was wrong."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorBody(ResponseBody):
    """Every error."""

    error: ErrorDetail


class CachedByTier(ResponseBody):
    """Reused tokens by where they lay when the request came."""

    device: int
    host: int = 0
    store: int = 0


class PromptTokensDetails(ResponseBody):
    """`cached_tokens` is always an integer."""

    cached_tokens: int
    cached_tokens_by_tier: CachedByTier


class Usage(ResponseBody):
    """Tokens of the whole request; `prompt_tokens` counts each prompt once, reused or not."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails


class ShortfallBody(ResponseBody):
    """What one tier below the device had of a prompt, and was not brought up.

    `reached_tokens` is null, and so is `lost_tokens`, when the tier was not asked in time or did not answer.
    """

    tier: str
    reached_tokens: int | None
    lost_tokens: int | None
    reason: str


class CacheReport(ResponseBody):
    """What was reused and what kept the rest away; counts are in tokens, summed over the prompts.

    `limited_by` and `reason` are those of the prompt that lost most; empty when nothing was lost.
    `boundaries` gives each component's own deepest boundary. `coalesced_tokens` are reused ones that another
    request computed while this one waited; `restored_ms` is how long values took to come up from lower tiers.
    `shortfalls` tells what those tiers had besides, prompt by prompt.
    """

    matched_tokens: int
    reused_tokens: int
    lost_tokens: int
    limited_by: str
    reason: str
    boundaries: dict[str, int]
    coalesced_tokens: int = 0
    restored_ms: float = 0.0
    shortfalls: list[ShortfallBody] = []
    session_id: str | None


class Timings(ResponseBody):
    """Times in milliseconds, under llama.cpp's names; `prompt_ms` counts from arrival to the first token."""

    cache_n: int
    prompt_n: int
    prompt_ms: float
    prompt_per_token_ms: float
    prompt_per_second: float
    predicted_n: int
    predicted_ms: float
    predicted_per_token_ms: float
    predicted_per_second: float


class TopLogprob(ResponseBody):
    """A token that was likely at a place; `bytes` is null for a token that is no whole text."""

    token: str
    logprob: float
    bytes: list[int] | None


class TokenLogprob(TopLogprob):
    """A token of the answer."""

    top_logprobs: list[TopLogprob]


class ChatLogprobs(ResponseBody):
    """Log-probabilities of a chat's answer."""

    content: list[TokenLogprob]


class CompletionLogprobs(ResponseBody):
    """Log-probabilities of a completion; four lists of equal length."""

    tokens: list[str]
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float]]
    text_offset: list[int]


class AssistantMessage(ResponseBody):
    """An answer."""

    role: Literal["assistant"] = "assistant"
    content: str


class ChatChoice(ResponseBody):
    """One answer of a chat."""

    index: int
    message: AssistantMessage
    logprobs: ChatLogprobs | None
    finish_reason: FinishReason


class CompletionChoice(ResponseBody):
    """One answer of a completion; `finish_reason` is null in a chunk that is not the last."""

    index: int
    text: str
    logprobs: CompletionLogprobs | None
    finish_reason: FinishReason | None


class Answer(ResponseBody):
    """What both kinds of answer share."""

    id: str
    created: int
    model: str


class ChatCompletion(Answer):
    """A chat's answer."""

    object: Literal["chat.completion"] = "chat.completion"
    choices: list[ChatChoice]
    usage: Usage
    cache: CacheReport
    timings: Timings


class Completion(Answer):
    """A completion."""

    object: Literal["text_completion"] = "text_completion"
    choices: list[CompletionChoice]
    usage: Usage
    cache: CacheReport
    timings: Timings


class Delta(ResponseBody):
    """What a chunk adds to an answer; the first one of each answer has the role."""

    role: Literal["assistant"] | None = None
    content: str


class ChatChunkChoice(ResponseBody):
    """One answer's part of a chunk."""

    index: int
    delta: Delta
    logprobs: ChatLogprobs | None
    finish_reason: FinishReason | None


class Chunk(Answer):
    """What both kinds of chunk share; `cache` and `timings` come with the last one."""

    usage: Usage | None = None
    cache: CacheReport | None = None
    timings: Timings | None = None


class ChatChunk(Chunk):
    """A piece of a streamed chat."""

    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    choices: list[ChatChunkChoice]


class CompletionChunk(Chunk):
    """A piece of a streamed completion."""

    object: Literal["text_completion"] = "text_completion"
    choices: list[CompletionChoice]


class ModelCard(ResponseBody):
    """A served model."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str = "graftline"
    max_model_len: int
    page_size: int
    composition: str
    components: list[str]


class ModelList(ResponseBody):
    """All served models."""

    object: Literal["list"] = "list"
    data: list[ModelCard]


class Tokenized(ResponseBody):
    """Tokens of a text."""

    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | None


class Detokenized(ResponseBody):
    """Text of tokens."""

    prompt: str


class Status(ResponseBody):
    """How the server is."""

    status: str


class Version(ResponseBody):
    """Which graftline it is."""

    version: str


class Pool(ResponseBody):
    """Slots of one component: free + held + private = capacity; `leased` of the held ones are in use."""

    component: str
    capacity: int
    free: int
    held: int
    leased: int
    private: int
    slot_bytes: int


class BreakEvenBody(ResponseBody):
    """Measured speeds: bringing values up is cheaper than computing them by these.

    `store_is_known` is false until a store that was down at start, or came later, has answered.
    """

    prefill_s_per_token: float
    host_s_per_byte: float
    host_latency_s: float
    store_s_per_byte: float
    store_latency_s: float
    store_is_known: bool = True


class ServerInfo(ResponseBody):
    """What is served, and how."""

    version: str
    models: list[str]
    model_type: str
    composition: str
    page_size: int
    max_model_len: int
    vocab_size: int
    dtype: str
    device: str
    core: str
    pools: list[Pool]
    host_pools: list[Pool] = []
    write_policy: str = "none"
    stores: list[str] = []
    break_even: BreakEvenBody | None = None


class Lost(ResponseBody):
    """Reuse that one component kept away for one reason."""

    component: str
    reason: str
    tokens: int


class Moved(ResponseBody):
    """What moved from one tier to another, of one component; a store counts objects where it has no pages."""

    component: str
    source: str
    target: str
    pages: int
    bytes: int


class Dropped(ResponseBody):
    """Moves between two tiers that were given up; each cost a computation at most."""

    source: str
    target: str
    reason: str
    count: int


class ShortfallCount(ResponseBody):
    """Requests that a tier had more for than they got, for one reason; tokens as far as they are known."""

    tier: str
    reason: str
    requests: int
    tokens: int


class StoreFault(ResponseBody):
    """Calls of one kind that failed for one reason, or objects that were not taken."""

    operation: str
    reason: str
    count: int


class StoreBody(ResponseBody):
    """What one store did."""

    url: str
    calls: dict[str, int]
    seconds: dict[str, float]
    faults: list[StoreFault]
    hits: int
    misses: int
    read_bytes: int
    written_bytes: int
    left_alone_s: float


class CacheStats(ResponseBody):
    """Counters since the start and sizes now."""

    prompt_tokens: int
    reused_tokens: int
    computed_tokens: int
    generated_tokens: int
    lost_tokens: list[Lost]
    evicted_slots: dict[str, int]
    skipped_checkpoints: int
    preemptions: int
    requests_running: int
    requests_waiting: int
    pools: list[Pool]
    host_pools: list[Pool] = []
    host_tokens: int = 0
    store_tokens: int = 0
    coalesced_requests: int = 0
    coalesced_tokens: int = 0
    sessions: int = 0
    moved: list[Moved] = []
    dropped: list[Dropped] = []
    shortfalls: list[ShortfallCount] = []
    stores: list[StoreBody] = []
    break_even: BreakEvenBody | None = None


class Closed(ResponseBody):
    """Whether the session was open."""

    closed: bool


class Stores(ResponseBody):
    """The stores now, the near one first."""

    stores: list[str]


class Reset(ResponseBody):
    """What a reset freed."""

    freed_slots: int
