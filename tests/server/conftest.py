"""One small model with all three components, and servers on it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from server_support import ENGINE, Live, load, pools_are_whole, running, until, with_keys

from graftline.zoo.make import make_model


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    return make_model("inkling", tmp_path_factory.mktemp("models") / "tiny").path


@pytest.fixture(scope="session")
def shared(model: Path) -> Iterator[Live]:
    with running(lambda: load(model, ENGINE)) as live:
        yield live


@pytest.fixture
def live(shared: Live) -> Iterator[Live]:
    """The server that most tests use; none of them may leave anything running on it."""
    yield shared
    until(lambda: pools_are_whole(shared), "pools whole at the end of a test")


@pytest.fixture(scope="session")
def keyed(model: Path) -> Iterator[Live]:
    """A server with two keys and an admin key."""
    with running(lambda: load(model, ENGINE), with_keys("key-one", "key-two", admin="key-admin")) as live:
        yield live
