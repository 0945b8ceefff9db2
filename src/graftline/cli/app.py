"""The command `graftline`: its commands, and what errors become."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from cyclopts import App

from graftline import __version__
from graftline.cli import chat, config, env, explain, make_model, plan, replay, serve
from graftline.cli.output import note
from graftline.cli.sources import environment, from_file, origins
from graftline.errors import ConfigError, GraftlineError

EXIT_FAILURE, EXIT_USAGE, EXIT_INTERRUPT = 1, 2, 130

app = App(
    name="graftline",
    version=__version__,
    help="Serves hybrid language models with one prefix cache that is right for all their layers.",
    help_format="plaintext",
    config=[environment, from_file, origins],
    suppress_keyboard_interrupt=False,
)
app.command(serve.serve, help_epilogue=serve.EXAMPLES)
app.command(chat.chat, help_epilogue=chat.EXAMPLES)
app.command(make_model.make_model, help_epilogue=make_model.EXAMPLES)
app.command(replay.replay, help_epilogue=replay.EXAMPLES)
app.command(plan.plan, help_epilogue=plan.EXAMPLES)
app.command(explain.explain, help_epilogue=explain.EXAMPLES)
app.command(config.config)
app.command(env.env)


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command line and exits: 0 all went well, 1 it failed, 2 wrong usage, 130 interrupted."""
    try:
        app(arguments)
    except GraftlineError as error:
        note(f"error: {error.message}")
        if error.hint:
            note(f"hint: {error.hint}")
        sys.exit(EXIT_USAGE if isinstance(error, ConfigError) else EXIT_FAILURE)
    except ModuleNotFoundError as error:
        note(f"error: {error}")
        note("hint: pip install 'graftline[serve]'")
        sys.exit(EXIT_FAILURE)
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPT)
