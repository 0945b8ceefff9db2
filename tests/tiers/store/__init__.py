"""Tests of the stores."""

import pytest

pytest.register_assert_rewrite("tiers.store.conformance")
