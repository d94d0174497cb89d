"""The same window under every CUPTI that is supported, and none under the others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from replaywatch.probe.tracer import TracerUnavailable, version_notes
from tracer import fake_world
from tracer.builds import build
from tracer.fake_world import World
from tracer.workloads import graph_steps


def _window() -> Any:
    return fake_world.play(graph_steps(8))


def _notes(driver: int = 13000) -> list[dict[str, str]]:
    fake_world.cuda().fake_cuda_set(b"driver_version", driver)
    folder = build("plain")
    return version_notes(folder / "libcupti.so.13", folder / "libreplaywatch_tracer.so")


# cuptiGetVersion of 12.4, 12.6, 12.8, 12.9 update 1, 13.0 update 1, 13.1 to 13.5: each with its own kernel record.
@pytest.mark.parametrize("version", [22, 24, 26, 28, 130001, 130101, 130201, 130301, 130400, 130500])
def test_records_of_every_version_are_read_alike(version: int) -> None:
    with World(build("plain"), version) as world:
        found = world.call(_window)
        notes = world.call(_notes)
    assert found["traced"]["total_graph_kernels"] == 6 * 50
    assert found["traced"]["input_copies"] == 2 * found["traced"]["steps"]
    assert all(note["text"] and note["source"] for note in notes)
    wrong_ids = [note for note in notes if "correlation ids" in note["text"]]
    assert bool(wrong_ids) == (version <= 130100)


def test_notes_on_a_pair_ask_for_the_driver_of_the_process() -> None:
    with World(build("plain"), 130300) as world:
        newer = [any("newer than the driver" in note["text"] for note in world.call(_notes, d)) for d in (13000, 13030)]
    assert newer == [True, False]


def test_notes_need_a_libcupti(tmp_path: Path) -> None:
    with pytest.raises(TracerUnavailable, match="is no libcupti"):
        version_notes(tmp_path / "libcupti.so.13", build("plain") / "libreplaywatch_tracer.so")


def _refusal() -> str:
    try:
        fake_world.tracer()
    except RuntimeError as error:
        return str(error)
    return ""


def test_an_older_cupti_is_refused_with_a_sentence() -> None:
    with World(build("plain"), 21) as world:
        assert "older than 12.4" in world.call(_refusal)
