"""Random requests made from the server's own OpenAPI document: no crash, and answers as documented."""

from __future__ import annotations

from typing import Any

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
from server_support import Live

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    negative_data_rejection,
    unsupported_method,
]
KEY = {"Authorization": "Bearer key-admin"}


@pytest.fixture
def document(keyed: Live) -> Any:
    return schemathesis.openapi.from_url(f"{keyed.url}/openapi.json")


schema = schemathesis.pytest.from_fixture("document")


@schema.parametrize()
@settings(max_examples=12, suppress_health_check=list(HealthCheck))
def test_answers_are_as_documented(case: schemathesis.Case) -> None:
    if isinstance(case.body, dict):
        # Generated numbers may be anything; what is computed here has an end all the same.
        for name, most in (("max_tokens", 4), ("max_completion_tokens", 4), ("n", 2)):
            if isinstance(case.body.get(name), int):
                case.body[name] = min(case.body[name], most)
    case.call_and_validate(headers=KEY, checks=CHECKS)
