from __future__ import annotations

from collections.abc import Iterator

import pytest

from tracer.builds import build
from tracer.fake_world import World


@pytest.fixture(scope="session")
def world() -> Iterator[World]:
    """A process with a fake CUPTI 13.0 and the tracer."""
    with World(build("plain"), 130001) as made:
        yield made


@pytest.fixture
def fresh_world() -> Iterator[World]:
    """The same, for one test that spoils it."""
    with World(build("plain"), 130001) as made:
        yield made
