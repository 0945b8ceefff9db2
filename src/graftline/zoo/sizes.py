"""How large a model of the zoo is: one set of numbers that every family reads in its own way."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Mapping
from dataclasses import dataclass

from graftline.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Sizes:
    """Dimensions of a model; a family that has no use for one leaves it out.

    Args:
        vocab_size: rows of the embedding; every token id is below it.
        hidden_size: width of the residual stream, a multiple of `heads`.
        intermediate_size: width of a dense feed-forward layer.
        expert_size: width of one expert of a mixture, a multiple of 8.
        experts: experts per mixture, two of which run for a token.
        layers: decoder layers, at least 4; a family whose smallest whole pattern is longer takes more.
        heads: query heads, a multiple of `kv_heads`.
        kv_heads: key-value heads.
        head_dim: width of one head, a multiple of 8.
        window_tokens: a sliding-window layer sees this many tokens, itself included.
        chunk_tokens: tokens per chunk of chunked attention.
        state_size: width of a recurrent state (the state dimension of Mamba, the key width of a delta rule).
        scan_tokens: tokens per chunk of a recurrent layer's parallel form; speed only.
        max_positions: longest sequence in tokens.
    """

    vocab_size: int = 512
    hidden_size: int = 64
    intermediate_size: int = 96
    expert_size: int = 32
    experts: int = 4
    layers: int = 4
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 16
    window_tokens: int = 8
    chunk_tokens: int = 8
    state_size: int = 16
    scan_tokens: int = 16
    max_positions: int = 16384

    def __post_init__(self) -> None:
        for name, value in dataclasses.asdict(self).items():
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ConfigError(f"size '{name}' is {value!r}", hint="sizes are whole numbers from 1 up")
        for name, least, hint in (
            ("layers", 4, "the longest pattern of layer kinds has 4 layers"),
            ("experts", 2, "2 experts run for each token, so there must be at least 2"),
        ):
            if getattr(self, name) < least:
                raise ConfigError(f"size '{name}' is {getattr(self, name)}", hint=hint)
        _need_multiple("hidden_size", self.hidden_size, "heads", self.heads)
        _need_multiple("heads", self.heads, "kv_heads", self.kv_heads)
        for name in ("hidden_size", "head_dim", "state_size", "expert_size"):
            _need_multiple(name, getattr(self, name), "8", 8)

    def replace(self, overrides: Mapping[str, int]) -> Sizes:
        """These sizes with some of them changed.

        Raises:
            ConfigError: a name that is no size, or a value that cannot work.
        """
        names = [field.name for field in dataclasses.fields(self)]
        for name in overrides:
            if name not in names:
                close = difflib.get_close_matches(name, names, n=1)
                hint = f"did you mean '{close[0]}'?" if close else f"sizes are: {', '.join(names)}"
                raise ConfigError(f"no size is named '{name}'", hint=hint)
        return dataclasses.replace(self, **overrides)


def _need_multiple(name: str, value: int, of_name: str, of: int) -> None:
    if value % of:
        raise ConfigError(
            f"size '{name}' is {value}, not a multiple of {of_name} ({of})"
            if of_name != str(of)
            else f"size '{name}' is {value}, not a multiple of {of}",
            hint=f"take {value // of * of or of}, for example",
        )


TINY = Sizes()
"""For tests: a tenth of a second to build, states of a few hundred numbers."""

DEMO = Sizes(
    vocab_size=2048,
    hidden_size=256,
    intermediate_size=640,
    expert_size=128,
    experts=4,
    layers=8,
    heads=4,
    kv_heads=2,
    head_dim=64,
    window_tokens=128,
    chunk_tokens=128,
    state_size=32,
    scan_tokens=64,
    max_positions=16384,
)
"""For demonstrations: 6 to 10 million parameters in most families, quick on one CPU core."""

BENCH = Sizes(
    vocab_size=8192,
    hidden_size=512,
    intermediate_size=1536,
    expert_size=384,
    experts=4,
    layers=8,
    heads=8,
    kv_heads=2,
    head_dim=64,
    window_tokens=512,
    chunk_tokens=512,
    state_size=64,
    scan_tokens=64,
    max_positions=32768,
)
"""For benchmarks: 30 to 40 million parameters in most families."""

PRESETS: Mapping[str, Sizes] = {"tiny": TINY, "demo": DEMO, "bench": BENCH}


def preset(name: str) -> Sizes:
    """The sizes known under a name: `tiny`, `demo` or `bench`.

    Raises:
        ConfigError: there is no such preset.
    """
    if name not in PRESETS:
        raise ConfigError(f"no preset is named '{name}'", hint=f"presets are: {', '.join(PRESETS)}")
    return PRESETS[name]
