"""Which components a replay has: read from a short text, and scaled to the pages of two words of a replay."""

from __future__ import annotations

from dataclasses import dataclass, replace

from graftline.cache.placement import Placement
from graftline.components import Checkpoint, Chunk, Full, ReuseRule, Window
from graftline.errors import ConfigError
from graftline.replay.tokens import KEY_TOKENS

DEFAULT_WINDOW_TOKENS = 1024


@dataclass(frozen=True, slots=True)
class Composition:
    """Components of a model: names and rules, in the order of reports; rules count real tokens."""

    name: str
    rules: tuple[tuple[str, ReuseRule], ...]

    def __post_init__(self) -> None:
        names = [name for name, _ in self.rules]
        if not names or len(set(names)) != len(names):
            raise ConfigError(f"composition '{self.name}': a name must stand for one component")

    @property
    def single_closed(self) -> bool:
        """Whether it is one prefix-closed component, for which the optimum is known exactly."""
        return len(self.rules) == 1 and self.rules[0][1].prefix_closed


def parse_composition(text: str) -> Composition:
    """Reads `full`, `full+swa:4096`, `full+swa+state`, `full+chunk:8192`.

    A number is the window's or the chunk's tokens; a window of W tokens looks back W - 1.

    Raises:
        ConfigError: it reads otherwise.
    """
    return Composition(text, tuple(_component(part.strip(), text) for part in text.split("+")))


def _component(part: str, text: str) -> tuple[str, ReuseRule]:
    kind, colon, number = part.partition(":")
    if colon and not (number.isdecimal() and int(number) > 0):
        raise ConfigError(f"composition '{text}': '{number}' is no number of tokens")
    if kind == "full" and not colon:
        return kind, Full()
    if kind == "state" and not colon:
        return kind, Checkpoint()
    if kind == "swa":
        return kind, Window(int(number or DEFAULT_WINDOW_TOKENS) - 1)
    if kind == "chunk" and colon:
        return kind, Chunk(int(number))
    raise ConfigError(
        f"composition '{text}': '{part}' is no component",
        hint="full, swa:TOKENS, chunk:TOKENS and state, joined by '+'",
    )


class ScaledRule(ReuseRule):
    """Any rule, asked with the real page whatever page the core has. The Python core takes it."""

    def __init__(self, rule: ReuseRule, page_tokens: int) -> None:
        self.rule = rule
        self.page_tokens = page_tokens
        self.refusal = rule.refusal

    def first_page(self, boundary_pages: int, page_tokens: int) -> int:  # noqa: ARG002
        """First page that a boundary needs."""
        return self.rule.first_page(boundary_pages, self.page_tokens)

    @property
    def prefix_closed(self) -> bool:
        """As the rule."""
        return self.rule.prefix_closed

    @property
    def holds_state(self) -> bool:
        """As the rule."""
        return self.rule.holds_state

    def free_at_or_below(self, boundary_pages: int, page_tokens: int) -> int:  # noqa: ARG002
        """As the rule."""
        return self.rule.free_at_or_below(boundary_pages, self.page_tokens)

    def free_at_or_above(self, boundary_pages: int, last_pages: int, page_tokens: int) -> int | None:  # noqa: ARG002
        """As the rule."""
        return self.rule.free_at_or_above(boundary_pages, last_pages, self.page_tokens)


def window_pages(rule: Window, page_tokens: int) -> int:
    """Pages that a boundary far enough from the start needs: `first_page(b) = max(0, b - pages)`."""
    return -(-rule.lookback_tokens // page_tokens)


def scaled_placement(placement: Placement, page_tokens: int) -> Placement:
    """The placement that keeps the same pages where a page has `KEY_TOKENS` tokens."""
    pages = placement.grid_pages(page_tokens)
    return replace(placement, grid_tokens=pages * KEY_TOKENS)


def scaled(rule: ReuseRule, page_tokens: int) -> ReuseRule:
    """The rule that asks for the same pages where a page has `KEY_TOKENS` tokens.

    Known rules stay of their kind, so that every core takes them: with `w = ceil(L / P)`,
    `(b·P - L) // P = b - w = (b·2 - w·2) // 2`.
    """
    if type(rule) is Full or type(rule) is Checkpoint:
        return rule
    if type(rule) is Window:
        return Window(KEY_TOKENS * window_pages(rule, page_tokens))
    if type(rule) is Chunk and rule.chunk_tokens % page_tokens == 0:
        return Chunk(rule.chunk_tokens // page_tokens * KEY_TOKENS)
    return ScaledRule(rule, page_tokens)
