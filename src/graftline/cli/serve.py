"""`graftline serve`."""

from __future__ import annotations

from graftline.cli.options import DEFAULTS, ConfigFile, Options
from graftline.cli.sources import warn_unknown_environment

EXAMPLES = """Examples:

  graftline serve ./my-model
  graftline serve ./my-model --port 0 --max-model-len 8192 --device-memory 4GiB
  graftline serve ./my-model --host 0.0.0.0 --api-key-file keys.txt
  GRAFTLINE_PAGE_SIZE=64 graftline serve ./my-model --config graftline.toml

Flags win over the environment, that over the file, and that over the defaults."""


def serve(model: str, *, config: ConfigFile = None, options: Options = DEFAULTS) -> int:
    """Serves a model over an OpenAI-compatible HTTP interface.

    Args:
        model: Local folder or hub name of a checkpoint.
    """
    del config  # read by `sources.from_file`
    from graftline.cli.serving import run_server  # noqa: PLC0415  loads torch; --help need not wait for it

    warn_unknown_environment()
    return run_server(model, options)
