"""Reading test logs as a file and as a stream."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import pytest

from replaywatch.contract.window import Observation, Window, merge_windows
from replaywatch.sources.logs import LogReader, read_log
from replaywatch.sources.recording import Recording

ROOT = Path(__file__).resolve().parents[3]
LINES = ROOT / "tests" / "data" / "logs"
PUBLIC = ROOT.parent / "shared" / "data" / "logs"
# 2026-11-29 18:00:00 UTC: when every test log counts as written.
WRITTEN_NS = 1_795_975_200 * 1_000_000_000
NOW_NS = WRITTEN_NS + 86_400_000_000_000


def ours(name: str) -> str:
    return (LINES / name).read_text(encoding="utf-8")


def public(name: str) -> Path:
    path = PUBLIC / name
    if not path.exists():
        pytest.skip(f"shared/data/logs/{name} is not beside the checkout")
    return path


def read_text(text: str | Iterable[str], name: str = "test.log") -> Recording:
    reader = LogReader(name)
    for chunk in [text] if isinstance(text, str) else text:
        reader.feed(chunk, WRITTEN_NS)
    reader.finish(WRITTEN_NS)
    return reader.take()


def read_file(path: Path, tmp_path: Path) -> Recording:
    """A copy of a file with a fixed time of last writing, because stamps without a year depend on it."""
    copy = tmp_path / path.name
    copy.write_bytes(path.read_bytes())
    os.utime(copy, ns=(WRITTEN_NS, WRITTEN_NS))
    return read_log(copy, now_ns=NOW_NS)


def whole(recording: Recording, *, phase: str | None = None, component: str | None = None) -> Window:
    """All windows of the one workload with this phase and component as one window."""
    chosen = [w for w in recording.windows if w.workload.phase == phase and w.workload.component == component]
    assert chosen, [w.workload for w in recording.windows]
    assert len({w.workload.key for w in chosen}) == 1, [w.workload for w in chosen]
    total = chosen[0]
    for window in chosen[1:]:
        total = merge_windows(total, window)
    return total


def seen(window: Window, kind: str) -> list[Observation]:
    return [o for o in window.observations if o.kind == kind]


def kinds(recording: Recording) -> set[str]:
    return {o.kind for w in recording.windows for o in w.observations}
