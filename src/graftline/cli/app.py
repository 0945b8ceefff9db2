"""The command `graftline`: its verbs, and what errors become."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import App, Parameter

from graftline import __version__
from graftline.cli.options import ServeConfig
from graftline.cli.sources import Origins, environment, from_file, warn_unknown_environment
from graftline.errors import ConfigError, GraftlineError

EXIT_FAILURE, EXIT_USAGE, EXIT_INTERRUPT = 1, 2, 130

origins = Origins()
app = App(
    name="graftline",
    version=__version__,
    help="Serves hybrid language models with one prefix cache that is right for all their layers.",
    help_format="plaintext",
    config=[environment, from_file, origins],
    suppress_keyboard_interrupt=False,
)

ConfigFile = Annotated[Path | None, Parameter(help="TOML file; its keys are the names of the flags.")]
Options = Annotated[ServeConfig, Parameter(name="*")]
Json = Annotated[bool, Parameter(help="Print JSON.", negative=())]
DEFAULTS = ServeConfig()

SERVE_EXAMPLES = """Examples:

  graftline serve ./my-model
  graftline serve ./my-model --port 0 --max-model-len 8192 --device-memory 4GiB
  graftline serve ./my-model --host 0.0.0.0 --api-key-file keys.txt
  GRAFTLINE_PAGE_SIZE=64 graftline serve ./my-model --config graftline.toml

Flags win over the environment, that over the file, and that over the defaults."""

CHAT_EXAMPLES = """Examples:

  graftline chat
  graftline chat "What is a radix tree?" --max-tokens 100
  graftline chat --url http://127.0.0.1:8001 --session-id me < questions.txt

/exit ends, /new forgets the conversation, Ctrl-C stops an answer."""

MAKE_EXAMPLES = """Examples:

  graftline make-model --list
  graftline make-model inkling ./tiny-inkling
  graftline make-model qwen3-next ./demo --preset demo --set layers=12 --set window_tokens=256"""


@app.command(help_epilogue=SERVE_EXAMPLES)
def serve(model: str, *, config: ConfigFile = None, options: Options = DEFAULTS) -> int:
    """Serves a model over an OpenAI-compatible HTTP interface.

    Args:
        model: local folder or hub name of a checkpoint.
    """
    del config  # read by `from_file`
    from graftline.cli.serving import run_server  # brings torch along; the other verbs don't wait for it

    _warn_environment()
    return run_server(model, options)


@app.command
def config(
    model: str = "", *, config: ConfigFile = None, options: Options = DEFAULTS, json: Json = False
) -> int:
    """Shows the settings that `graftline serve` would have with the same flags, and where each comes from.

    Args:
        model: as for serve.
    """
    del config
    from graftline.cli.listing import list_config

    _warn_environment()
    return list_config(model, options, origins.of, as_json=json)


@app.command(help_epilogue=CHAT_EXAMPLES)
def chat(
    prompt: str = "",
    *,
    url: str = "http://127.0.0.1:8000",
    api_key: str = "",
    model: str = "",
    system: str = "",
    session_id: str = "",
    max_tokens: Annotated[int, Parameter(help="Most tokens of an answer; 0 leaves it to the server.")] = 0,
    temperature: float = 1.0,
) -> int:
    """Chats with a running server; says after each answer how much of the prompt was reused.

    Args:
        prompt: one question; without it they are read from standard input, one a line.
        url: address of the server.
        api_key: key, if the server wants one.
        model: served name, if the server has several.
        system: system message.
        session_id: who is chatting; a new one if left out.
        temperature: 0 always takes the likeliest token.
    """
    from graftline.cli.talk import Client, Wishes, talk

    wishes = Wishes(model, system, session_id, max_tokens, temperature)
    with Client(url, api_key) as client:
        return talk(client, wishes, prompt)


@app.command(help_epilogue=MAKE_EXAMPLES)
def make_model(
    family: str = "",
    directory: Annotated[Path | None, Parameter(name=["DIRECTORY", "--directory"])] = None,
    *,
    preset: Literal["tiny", "demo", "bench"] = "tiny",
    seed: int = 0,
    dtype: Literal["float32", "bfloat16", "float16"] = "float32",
    set: Annotated[tuple[str, ...], Parameter(negative=())] = (),
    overwrite: Annotated[bool, Parameter(negative=())] = False,
    list: Annotated[bool, Parameter(negative=())] = False,
    json: Json = False,
) -> int:
    """Writes a small model with random weights, for tests and demonstrations.

    Args:
        family: name of the family; --list shows them.
        directory: where to.
        preset: how large.
        seed: chooses the weights.
        dtype: type of the weights.
        set: a size that differs from the preset, as NAME=NUMBER; may be repeated.
        overwrite: replace a model that is there.
        list: show the families and make nothing.
    """
    from graftline.cli.making import Order, list_families, make

    if list:
        return list_families(as_json=json)
    return make(Order(family, directory, preset, seed, dtype, set, overwrite), as_json=json)


@app.command
def env(*, json: Json = False) -> int:
    """Shows versions, processor, accelerator and tree core: what a report of a fault should have."""
    from graftline.cli.listing import list_environment

    return list_environment(as_json=json)


def _warn_environment() -> None:
    names = [
        argument.name
        for command in ("serve", "config", "chat", "make-model", "env")
        for argument in app[command].assemble_argument_collection()
        if argument.name.startswith("--")
    ]
    warn_unknown_environment(names, lambda line: print(f"warning: {line}", file=sys.stderr))  # noqa: T201


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command line and exits: 0 all went well, 1 it failed, 2 wrong usage, 130 interrupted."""
    try:
        app(arguments)
    except GraftlineError as error:
        print(f"error: {error.message}", file=sys.stderr)  # noqa: T201
        if error.hint:
            print(f"hint: {error.hint}", file=sys.stderr)  # noqa: T201
        sys.exit(EXIT_USAGE if isinstance(error, ConfigError) else EXIT_FAILURE)
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPT)
