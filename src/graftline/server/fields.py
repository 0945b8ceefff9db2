"""Request fields that are not ours: those that would change the answer are refused, the rest is told back."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from typing import Any

from graftline.server.errors import bad_request

logger = logging.getLogger(__name__)

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
MAX_NAMED = 32

Harmless = Callable[[Any], bool]


def _off(value: Any) -> bool:
    return value is None or value is False or value == 0 or value in ([], {}, "")


def _is(*values: Any) -> Harmless:
    return lambda value: value is None or (type(value), value) in [(type(v), v) for v in values]


def _text_format(value: Any) -> bool:
    return value is None or (isinstance(value, Mapping) and value.get("type") == "text")


def _text_only(value: Any) -> bool:
    return value is None or value == ["text"]


UNSUPPORTED: Mapping[str, Harmless] = {
    "response_format": _text_format,
    "modalities": _text_only,
    "repetition_penalty": _is(1, 1.0),
    "length_penalty": _is(1, 1.0),
    "skip_special_tokens": _is(True),
    "spaces_between_special_tokens": _is(True),
    "best_of": _is(1),
    **dict.fromkeys(
        (
            "presence_penalty",
            "frequency_penalty",
            "logit_bias",
            "audio",
            "functions",
            "function_call",
            "suffix",
            "web_search_options",
            "guided_json",
            "guided_regex",
            "guided_choice",
            "guided_grammar",
            "structured_outputs",
            "regex",
            "ebnf",
            "json_schema",
            "use_beam_search",
            "min_tokens",
            "bad_words",
            "allowed_token_ids",
            "logits_processors",
            "prompt_logprobs",
            "truncate_prompt_tokens",
            "continue_final_message",
            "include_stop_str_in_output",
            "chat_template",
            "documents",
        ),
        _off,
    ),
}
"""Fields that change what is generated, with the values at which they do not."""


class Fields:
    """Looks after unknown fields for one server; each name is logged once."""

    def __init__(self) -> None:
        self._logged: set[str] = set()

    def check(self, extra: Mapping[str, Any] | None, *, n: int = 1) -> dict[str, str]:
        """Headers that name the fields without effect; empty when there are none.

        Args:
            extra: fields that the schema does not know.
            n: how many answers are wanted; `best_of` may be that.

        Raises:
            ApiError: a field that would change the answer.
        """
        ignored = []
        for name, value in (extra or {}).items():
            harmless = UNSUPPORTED.get(name)
            if harmless is None:
                ignored.append(name if _NAME.fullmatch(name) else "?")
            elif not harmless(value) and not (name == "best_of" and value == n):
                raise bad_request(
                    f"'{name}' is not supported with this value; leave it out", name, "unsupported_parameter"
                )
        self._log(ignored)
        return {"X-Ignored-Fields": ", ".join(sorted(set(ignored))[:MAX_NAMED])} if ignored else {}

    def _log(self, names: list[str]) -> None:
        for name in names:
            if name not in self._logged and len(self._logged) < 1000:
                self._logged.add(name)
                logger.warning("request field '%s' has no effect; said once", name)
