from __future__ import annotations

from pathlib import Path

import pytest

from agent.conftest import StartAgent
from agent.frames import Probe, frame, wait_until, window
from agent.receiver import Receiver
from agent.test_crash import free_port
from collector.disks import NoDisk, SmallDisk

WINDOWS = 3000


def test_a_full_disk_costs_only_windows_that_are_counted(
    start_agent: StartAgent, short_path: Path, tmp_path: Path
) -> None:
    port = free_port()
    try:
        with SmallDisk(tmp_path / "disk", 400 << 10) as disk:
            agent = start_agent(
                collector_url=f"http://127.0.0.1:{port}", spool_dir=disk.path / "spool", memory_bytes=1 << 16
            )
            ledger = agent.agent.ledger
            with Probe(agent.socket_path) as probe:
                for n in range(WINDOWS):
                    probe.send(frame(f"f{n}", window(n)))
            wait_until(lambda: ledger.value("replaywatch_agent_frames_total", "accepted") == WINDOWS)
            assert ledger.value("replaywatch_agent_spool_errors_total") > 0
            with Receiver(port) as receiver:
                wait_until(lambda: agent.agent.spool is not None and agent.agent.spool.queued_windows == 0)
                arrived = [w.start_ns for w in receiver.windows]
            dropped = ledger.value("replaywatch_agent_windows_dropped_total")
            assert len(arrived) == len(set(arrived)) == WINDOWS - dropped
            assert 0 < dropped < WINDOWS
            agent.stop()
    except NoDisk as error:
        pytest.skip(str(error))
