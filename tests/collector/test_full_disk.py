from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import func, select

from collector import web
from collector.conftest import Start
from collector.disks import MIB, NoDisk, SmallDisk
from collector.material import HEADERS, SECOND, body, healthy_window, workload
from collector.polling import until
from replaywatch.collector.serve import CollectorHandle
from replaywatch.collector.tables import BatchRow, WindowRow

WINDOWS = 40


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    try:
        with SmallDisk(tmp_path / "disk", 6 * MIB) as it:
            yield it
    except NoDisk as error:
        pytest.skip(str(error))


def batch(number: int) -> bytes:
    rng = random.Random(number)
    now = time.time_ns()
    pods = [workload(f"pod-{number % 5}-{i}") for i in range(WINDOWS)]
    return body([healthy_window(now - 5 * SECOND, rng, pod) for pod in pods], f"batch-{number}")


def post(handle: CollectorHandle, content: bytes) -> tuple[int, str]:
    answer = web.post(f"{handle.url}/v1/batches", content=content, headers=HEADERS)
    return answer.status_code, "" if answer.status_code == 200 else answer.json()["error"]["code"]


def test_a_full_disk_refuses_for_a_while_and_loses_nothing(start: Start, disk: SmallDisk) -> None:
    handle = start(store=f"sqlite:///{disk.path}/replaywatch.db", checkpoint_seconds=0.2)
    acknowledged, number = 0, 0
    while (answer := post(handle, content := batch(number)))[0] == 200:
        acknowledged, number = acknowledged + 1, number + 1
        assert number < 2000, "the disk did not fill"
    assert answer == (503, "store_failed")
    assert acknowledged > 3
    for _ in range(5):  # it stays so, and what was there stays readable
        assert post(handle, content)[0] == 503
        assert web.get(f"{handle.url}/v1/workloads").status_code == 200
    assert web.get(f"{handle.url}/healthz").status_code == 200
    disk.grow(64 * MIB)
    until(lambda: post(handle, content)[0] == 200, 20)
    for later in range(number + 1, number + 6):
        assert post(handle, batch(later))[0] == 200
    until(lambda: web.get(f"{handle.url}/readyz").status_code == 200, 20)
    with handle.collector.store.session() as session:
        assert session.scalar(select(func.count()).select_from(BatchRow)) == acknowledged + 6
        assert session.scalar(select(func.count()).select_from(WindowRow)) == (acknowledged + 6) * WINDOWS
    until(lambda: judged_steps(handle) == (acknowledged + 6) * WINDOWS * 1500, 20)


def judged_steps(handle: CollectorHandle) -> int:
    steps = [w.lifetime.dispatch.steps or {} for w in handle.collector.detection.view.workloads]
    return sum(s["full"] + s["piecewise"] for s in steps)
