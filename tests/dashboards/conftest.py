"""One stage for all tests that look at a running Prometheus."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dashboards.stage import Stage, stage


@pytest.fixture(scope="session")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with stage(tmp_path_factory.mktemp("stage")) as it:
        yield it
