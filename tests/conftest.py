"""Hypothesis profiles, chosen by the environment variable `GRAFTLINE_PROFILE`.

`ci` (the default) draws the same examples in every run; `deep` draws many more, new ones each time.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, Phase, settings

CALM = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]

settings.register_profile(
    "ci",
    report_multiple_bugs=False,
    max_examples=60,
    stateful_step_count=40,
    derandomize=True,
    deadline=None,
    suppress_health_check=CALM,
)
settings.register_profile(
    "deep",
    report_multiple_bugs=False,
    max_examples=1000,
    stateful_step_count=60,
    deadline=None,
    suppress_health_check=CALM,
    phases=[Phase.reuse, Phase.generate, Phase.shrink],
)
settings.load_profile(os.environ.get("GRAFTLINE_PROFILE", "ci"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--core",
        choices=("share", "rust", "python", "both"),
        default="share",
        help="tree core of the engine tests; share: all on rust, and some on python too",
    )
