"""A server tells why it reused what it did, and sessions that were closed are kept no longer than others."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest

from e2e.live import Graftline, Truth, prompt


def explain(url: str, request_id: str, *flags: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "graftline", "explain", "--url", url, "--request-id", request_id, *flags]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_request_is_explained(plain: Graftline, truth: Truth) -> None:
    text = prompt(1001)
    plain.ask(text)
    warm = plain.ask(text)
    plain.post("/cache/flush?tier=device")
    cold = plain.ask(text)
    assert warm.text == cold.text == truth(text)
    assert (warm.tiers["device"] > 0, cold.tiers["device"]) == (True, 0)

    told = explain(plain.url, warm.request_id, "--json")
    assert told.returncode == 0, told.stderr
    (story,) = json.loads(told.stdout)
    assert story["reused_tokens"] == warm.tiers["device"]
    assert [c["component"] for c in story["components"]] == ["full", "swa", "state"]

    told = explain(plain.url, cold.request_id)
    assert told.returncode == 0, told.stderr
    assert f"reused 0; the tree knew 0, and once {cold.cache['matched_tokens']:,};" in told.stdout
    assert (cold.cache["limited_by"], cold.cache["reason"]) == ("full", "cleared")
    assert "cleared" in told.stdout


@pytest.mark.parametrize("url", ["", "http://127.0.0.1:1"])
def test_what_cannot_be_explained_is_said(plain: Graftline, url: str) -> None:
    told = explain(url or plain.url, "nobody")
    assert (told.returncode, told.stdout) == (1, "")
    assert (url or "'nobody'") in told.stderr


def test_a_closed_session_makes_room_first(plain: Graftline, truth: Truth, numbers: Iterator[int]) -> None:
    """Of two conversations the older one would leave first, but the newer one was closed."""
    plain.post("/cache/flush?tier=device")
    open_text, closed_text = prompt(1002), prompt(1003)
    for name, text in (("open", open_text), ("closed", closed_text)):
        plain.ask(text, session_id=name)
    close = "/v1/sessions/closed/close"
    assert plain.post(close).json() == {"closed": True}
    assert plain.post(close).json() == {"closed": False}
    for _ in range(8):
        plain.ask(prompt(2000 + next(numbers)))
    kept, gone = plain.ask(open_text, session_id="open"), plain.ask(closed_text)
    assert (kept.text, gone.text) == (truth(open_text), truth(closed_text))
    assert kept.tiers["device"] > 0 == gone.tiers["device"]
    assert gone.cache["matched_tokens"] > 0 == gone.cache["reused_tokens"]  # it was known once
    assert gone.cache["limited_by"] == "full"
    assert plain.post("/v1/sessions/open/close").json() == {"closed": True}
