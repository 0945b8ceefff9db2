"""Random requests made from the server's own OpenAPI document: no crash, and answers as documented."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)
from server_support import ENGINE, Live, load, running, with_keys

from graftline.server.app import create_app
from graftline.server.schemas import MAX_CHOICES
from graftline.server.state import Backend, State

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    negative_data_rejection,
    unsupported_method,
]
KEY = {"Authorization": "Bearer key-admin"}


@pytest.fixture(scope="module")
def short(model: Path) -> Iterator[Live]:
    """A server for short sequences: a request without a limit of its own ends soon."""
    engine = replace(ENGINE, max_model_tokens=64)
    with running(lambda: load(model, engine), with_keys("key-one", admin="key-admin")) as live:
        yield live


def nothing() -> Backend:
    raise AssertionError("only the document is wanted of this application")


# Made without a server, so that there is a test for each operation at collection.
schema = schemathesis.openapi.from_dict(create_app(State(with_keys("k", admin="a")), nothing).openapi())


@schema.parametrize()
@settings(max_examples=8, suppress_health_check=list(HealthCheck))
def test_answers_are_as_documented(short: Live, case: schemathesis.Case) -> None:
    if (
        isinstance(case.body, dict)
        and isinstance(case.body.get("n"), int)
        and 2 < case.body["n"] <= MAX_CHOICES
    ):
        case.body["n"] = 2  # more would compute more and show nothing new
    case.call_and_validate(base_url=short.url, headers=KEY, checks=CHECKS)
