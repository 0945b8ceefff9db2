"""Log lines for people, or as JSON."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime

START = "graftline.start"
"""Logger of what is said at start, whatever the level: programs wait for the line with the address."""


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, logger, message, and the trace of an exception."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        fields = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            fields["trace"] = self.formatException(record.exc_info)
        return json.dumps(fields, ensure_ascii=False)


def set_up(level: str, *, as_json: bool) -> None:
    """Sends the log of graftline and its server to stderr; what others log, from warnings up."""
    handler = logging.StreamHandler(sys.stderr)
    plain = logging.Formatter("%(asctime)s %(levelname)-7s %(message)s")
    handler.setFormatter(JsonFormatter() if as_json else plain)
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("graftline").setLevel(level.upper())
    logging.getLogger(START).setLevel(logging.INFO)
