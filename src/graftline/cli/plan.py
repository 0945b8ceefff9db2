"""`graftline plan`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter, Token

from graftline.cli.options import Json, Size, parse_bytes
from graftline.cli.output import data, human_bytes, json_data, note, table
from graftline.cli.traces import READING, Reading, note_empty, progress_bars
from graftline.errors import ConfigError
from graftline.plan import Tier
from graftline.replay.compositions import Composition, parse_composition
from graftline.replay.memory import LevelFigures, MemoryAnswer, Wish, plan_memory, told
from graftline.replay.simulate import DEFAULT_CHUNK_TOKENS

SCHEMA = "graftline.plan/1"
EXAMPLES = """Examples:

  graftline plan trace.jsonl.gz --hit-rate 0.8
  graftline plan trace.jsonl --hit-rate 0.8 --components full+state --token-bytes 24KiB --state-bytes 48MiB
  graftline plan trace.jsonl --hit-rate 0.9 --components full+swa:4096 --token-bytes full=32KiB,swa=96KiB \\
      --device-memory 20GiB

The first level whose memory is not given is the one asked for: device, host, store. Its pools are as small
as the hit rate allows. `graftline serve` prints the bytes of a token and of a state at its start."""


def parse_sizes(text: str) -> dict[str, int]:
    """Bytes by component from `full=32KiB,swa=8KiB`; a size alone stands under the empty name.

    Raises:
        ValueError: it reads otherwise.
    """
    sizes = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        name, equals, size = item.rpartition("=")
        if equals and not name.strip():
            raise ValueError(f"'{item}' is not COMPONENT=BYTES, for example full=32KiB")
        sizes[name.strip()] = parse_bytes(size)
    return sizes


def _sizes(_: type, tokens: Sequence[Token]) -> dict[str, int]:
    return parse_sizes(tokens[0].value)


Sizes = Annotated[Mapping[str, int], Parameter(converter=_sizes, accepts_keys=False, n_tokens=1)]


@dataclass(frozen=True, slots=True)
class Planned:
    """What is asked."""

    components: str = "full"
    """full, swa[:TOKENS], chunk:TOKENS and state, joined by '+'."""
    policy: str = "lru"
    """Order of eviction, such as lru, lfu, slru, cost, session or session(lfu)."""
    token_bytes: Sizes = field(default_factory=dict)
    """Bytes of one cached token: of every component (32KiB), or by name (full=32KiB,swa=8KiB)."""
    state_bytes: Size = 0
    """Bytes of one state."""
    device_memory: Size = 0
    """Device memory that there is; then host memory is asked for."""
    host_memory: Size = 0
    """Host memory that there is besides; then store memory is asked for."""
    precision: float = 3.0
    """How much larger than a size that is too small the answer may be, in percent."""
    core: Literal["auto", "python", "rust"] = "auto"
    """Which tree core keeps the books."""
    chunk_tokens: int = DEFAULT_CHUNK_TOKENS
    """Tokens of a prompt computed at once."""


PLANNED = Planned()


def plan(
    trace: Path,
    *,
    hit_rate: float,
    planned: Annotated[Planned, Parameter(name="*")] = PLANNED,
    reading: Annotated[Reading, Parameter(name="*")] = READING,
    json: Json = False,
) -> int:
    """How much memory a trace needs for a wanted hit rate, found by replaying it at many sizes.

    Exit status 1 when no memory reaches it.

    Args:
        trace: JSON lines, plain or gzipped.
        hit_rate: wanted share of the prompt tokens that need not be computed, for example 0.8.
    """
    paged = reading.open(trace)
    next(iter(paged))  # the page may be the trace's block
    wish = _wish(planned, hit_rate, paged.page_tokens)
    with progress_bars() as progress:
        answer = plan_memory(paged, wish, progress)
    note_empty(paged)
    if json:
        json_data(as_json(answer))
    else:
        _show(answer)
    return 0 if answer.reached else 1


def _wish(planned: Planned, hit_rate: float, page_tokens: int) -> Wish:
    composition = parse_composition(planned.components)
    if planned.host_memory and not planned.device_memory:
        raise ConfigError("--host-memory is given without --device-memory")
    given = [size for size in (planned.device_memory, planned.host_memory) if size]
    return Wish(
        composition=composition,
        hit_rate=hit_rate,
        slot_bytes=slot_bytes(composition, planned.token_bytes, planned.state_bytes, page_tokens),
        given_bytes=tuple(given),
        policy=planned.policy,
        core=planned.core,
        chunk_tokens=planned.chunk_tokens,
        precision=planned.precision / 100,
    )


def slot_bytes(
    composition: Composition, token_bytes: Mapping[str, int], state_bytes: int, page_tokens: int
) -> dict[str, int]:
    """Bytes of a slot of each component; empty when nothing was said.

    Raises:
        ConfigError: they are told of some components only, or of one that is not there.
    """
    if not token_bytes and not state_bytes:
        return {}
    names = [name for name, rule in composition.rules if not rule.holds_state]
    for name in token_bytes:
        if name and name not in names:
            raise ConfigError(
                f"--token-bytes names '{name}'", hint=f"components with tokens: {', '.join(names)}"
            )
    found = {}
    for name, rule in composition.rules:
        size = (
            state_bytes if rule.holds_state else token_bytes.get(name, token_bytes.get("", 0)) * page_tokens
        )
        if not size:
            flag = "--state-bytes" if rule.holds_state else f"--token-bytes {name}="
            raise ConfigError(f"the bytes of component '{name}' are not told", hint=f"give {flag}")
        found[name] = size
    return found


def as_json(answer: MemoryAnswer) -> dict[str, Any]:
    """Everything, ready for `json.dumps`."""
    wish = answer.wish
    return {
        "schema": SCHEMA,
        "trace": answer.trace,
        "composition": wish.composition.name,
        "policy": wish.policy,
        "page_tokens": answer.page_tokens,
        "requests": answer.requests,
        "prompt_tokens": answer.prompt_tokens,
        "wanted_hit_rate": wish.hit_rate,
        "reached": answer.reached,
        "ceiling": answer.ceiling,
        "prefix_hit_rate": answer.prefix_hit_rate,
        "working_set_slots": dict(answer.working_set),
        "working_set_bytes": wish.bytes_of(answer.working_set),
        "slot_bytes": dict(wish.slot_bytes),
        "levels": [asdict(level) | {"tier": level.tier.name.lower()} for level in answer.levels],
        "optimum_slots": answer.optimum_slots,
        "curve": [asdict(tried) for tried in answer.curve],
    }


def _show(answer: MemoryAnswer) -> None:
    wish = answer.wish
    note(
        f"{answer.trace}, {wish.composition.name}, {wish.policy}: {answer.requests:,} requests,"
        f" {answer.prompt_tokens:,} prompt tokens, pages of {answer.page_tokens}"
    )
    rows = [_level_row(level, answer) for level in answer.levels]
    if rows:
        table(rows, ("level", "slots", "memory", "tokens found here", "hit rate"))
    _verdict(answer)
    known = bool(wish.slot_bytes)
    points = [tried for tried in answer.curve if tried.on_curve]
    if points:
        if answer.levels:
            data("")
        rows = [
            (told(tried.slots), human_bytes(tried.level_bytes) if known else "-", f"{tried.hit_rate:.1%}")
            for tried in points
        ]
        table(rows, (f"{wish.level.name.lower()} slots", "memory", "hit rate"))


def _level_row(level: LevelFigures, answer: MemoryAnswer) -> tuple[str, ...]:
    share = level.loaded_tokens / answer.prompt_tokens
    return (
        level.tier.name.lower(),
        told(level.slots),
        human_bytes(level.level_bytes) if level.level_bytes else "-",
        f"{share:.1%}",
        f"{level.hit_rate:.1%}",
    )


def _verdict(answer: MemoryAnswer) -> None:
    wish = answer.wish
    if not answer.reached:
        note(
            f"{wish.hit_rate:.1%} cannot be reached: an endless cache reaches {answer.ceiling:.1%},"
            f" and of the prompts' tokens {answer.prefix_hit_rate:.1%} came before in whole pages"
        )
        return
    level = answer.levels[-1]
    missing = "" if level.tier == wish.level else f"; no {wish.level.name.lower()} memory is needed"
    size = human_bytes(level.level_bytes) if level.level_bytes else told(level.slots)
    note(f"{wish.hit_rate:.1%} is reached with {size} of {level.tier.name.lower()} memory{missing}")
    if answer.optimum_slots is not None and level.tier == Tier.DEVICE:
        note(f"with fewer than about {answer.optimum_slots:,} slots no order of eviction reaches it")
