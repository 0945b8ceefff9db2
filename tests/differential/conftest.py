"""Tells at the end of a run how many operations the walks did."""

from __future__ import annotations

import pytest

from differential.harness import OPERATIONS


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One line, when there was a walk."""
    passed = terminalreporter.getreports("passed")
    counts = [value for report in passed for name, value in report.user_properties if name == OPERATIONS]
    if counts:
        terminalreporter.write_line(f"{sum(counts):,} operations in {len(counts)} walks, each on every core")
