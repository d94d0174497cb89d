"""The spool: bounded, there again after a crash, and never in the way when the disk refuses."""

from __future__ import annotations

import gzip
import json
import os
import resource
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent.frames import CONFIG, FINGERPRINT, window
from contract.windows import WINDOW
from replaywatch.agent.enrich import Parcel
from replaywatch.agent.ledger import Ledger
from replaywatch.agent.segment import batch_body, whole_lines
from replaywatch.agent.spool import Spool
from replaywatch.agent.spool_folder import MAX_REJECTED, SpoolFolder
from replaywatch.contract.errors import ConfigurationError
from replaywatch.contract.window import Window
from replaywatch.contract.wire import Batch, decode

DROPPED = "replaywatch_agent_windows_dropped_total"


def parcel(*windows: Window) -> Parcel:
    return Parcel(windows=windows, fingerprints={FINGERPRINT.id: FINGERPRINT}, configs={CONFIG.id: CONFIG})


def spool_at(
    folder: Path | None,
    ledger: Ledger,
    disk: int = 1 << 20,
    memory: int = 1 << 20,
    clock: Callable[[], int] = time.time_ns,
) -> Spool:
    place = SpoolFolder(folder) if folder is not None else None
    return Spool(place, disk_bytes=disk, memory_bytes=memory, ledger=ledger, clock=clock)


def drain(spool: Spool) -> list[Batch]:
    """Everything that waits, as the collector would read it."""
    spool.seal_older(0)
    batches = []
    while segment := spool.next(0):
        batches.append(decode(gzip.decompress(batch_body(segment.key, segment.read(), 7))))
        spool.done(segment)
    return batches


@contextmanager
def no_more_disk(at_bytes: int) -> Iterator[None]:
    """No file of this process grows beyond a size: the same OSError path as a full disk, without one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (at_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_what_goes_in_comes_out_in_order(tmp_path: Path) -> None:
    spool = spool_at(tmp_path, Ledger())
    for n in range(5):
        spool.append(parcel(window(n)))
        if n == 2:
            spool.seal_older(0)
    first, second = drain(spool)
    assert [w for b in (first, second) for w in b.windows] == [window(n) for n in range(5)]
    assert first.fingerprints == second.fingerprints == {FINGERPRINT.id: FINGERPRINT}
    assert second.configs == {CONFIG.id: CONFIG}
    assert first.sent_ns == 7
    assert first.key != second.key
    assert spool.size_bytes == spool.queued_windows == 0
    spool.close()


@given(st.lists(WINDOW, min_size=1, max_size=4))
@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
def test_any_windows_survive_the_way_through_lines(windows: list[Window]) -> None:
    spool = spool_at(None, Ledger())
    spool.append(parcel(*windows))
    (batch,) = drain(spool)
    assert batch.windows == tuple(windows)


@given(st.binary(max_size=200))
def test_any_bytes_on_disk_are_lines_that_make_a_batch_or_are_left_out(content: bytes) -> None:
    body = gzip.decompress(batch_body("k", whole_lines(content), 0))
    assert isinstance(json.loads(body), dict)


@pytest.mark.parametrize("cut", [1, 2, 50, 300])
def test_a_torn_tail_costs_the_torn_window_alone(tmp_path: Path, cut: int) -> None:
    spool = spool_at(tmp_path, Ledger())
    for n in range(3):
        spool.append(parcel(window(n)))
    (path,) = tmp_path.glob("*.open")
    os.truncate(path, path.stat().st_size - cut)
    del spool
    again = Spool(_unlocked(tmp_path), disk_bytes=1 << 20, memory_bytes=1, ledger=Ledger(), clock=time.time_ns)
    (batch,) = drain(again)
    assert batch.windows == (window(0), window(1))
    assert batch.key in path.name


def _unlocked(folder: Path) -> SpoolFolder:
    """The folder as a new process would open it after the old one was killed, which frees its lock."""
    (folder / "lock").unlink()
    return SpoolFolder(folder)


def test_sealed_batches_keep_their_keys_over_a_restart(tmp_path: Path) -> None:
    spool = spool_at(tmp_path, Ledger())
    spool.append(parcel(window(0)))
    spool.seal_older(0)
    segment = spool.next(0)
    assert segment is not None
    spool.close()
    (batch,) = drain(spool_at(tmp_path, Ledger()))
    assert batch.key == segment.key


def test_the_oldest_is_dropped_beyond_the_bound_and_counted(tmp_path: Path) -> None:
    ledger = Ledger()
    spool = spool_at(tmp_path, ledger, disk=20_000)
    for n in range(100):
        spool.append(parcel(window(n)))
        spool.seal_older(0)
        assert spool.size_bytes <= 20_000
    on_disk = sum(p.stat().st_size for p in tmp_path.glob("*.batch"))
    assert on_disk == spool.size_bytes
    left = [w for b in drain(spool) for w in b.windows]
    assert left == [window(n) for n in range(100 - len(left), 100)]
    assert ledger.value(DROPPED) == 100 - len(left) > 0
    spool.close()


def test_the_batch_being_sent_is_not_dropped(tmp_path: Path) -> None:
    spool = spool_at(tmp_path, Ledger(), disk=10_000)
    spool.append(parcel(window(0)))
    spool.seal_older(0)
    in_flight = spool.next(0)
    assert in_flight is not None
    for n in range(1, 40):
        spool.append(parcel(window(n)))
        spool.seal_older(0)
    assert in_flight.read()
    assert drain(spool)[0].windows == (window(0),)
    spool.close()


def test_a_full_disk_moves_to_memory_within_its_bound_and_back(tmp_path: Path) -> None:
    ledger = Ledger()
    spool = spool_at(tmp_path, ledger, memory=12_000)
    spool.append(parcel(window(0)))
    with no_more_disk(at_bytes=10):
        for n in range(1, 60):
            spool.append(parcel(window(n)))
            spool.seal_older(0)
            assert spool.size_bytes <= 12_000 + 4_000
    spool.append(parcel(window(60)))
    assert list(tmp_path.glob("*.open"))
    windows = [w for b in drain(spool) for w in b.windows]
    assert windows[0] == window(0)
    assert windows[-1] == window(60)
    assert windows == sorted(windows, key=lambda w: w.start_ns)
    assert ledger.value(DROPPED) == 61 - len(windows) > 0
    assert ledger.value("replaywatch_agent_spool_errors_total") > 0
    spool.close()


def test_a_write_that_half_fits_leaves_no_half_line(tmp_path: Path) -> None:
    spool = spool_at(tmp_path, Ledger())
    spool.append(parcel(window(0)))
    size = next(tmp_path.glob("*.open")).stat().st_size
    with no_more_disk(at_bytes=size + 100):
        spool.append(parcel(window(1)))
    assert [w for b in drain(spool) for w in b.windows] == [window(0), window(1)]
    spool.close()


def test_a_folder_that_is_taken_away_loses_nothing_new(tmp_path: Path) -> None:
    folder = tmp_path / "spool"
    spool = spool_at(folder, Ledger())
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    spool.append(parcel(window(0)))
    assert [w for b in drain(spool) for w in b.windows] == [window(0)]


def test_two_agents_do_not_share_a_spool(tmp_path: Path) -> None:
    first = SpoolFolder(tmp_path)
    with pytest.raises(ConfigurationError, match="another agent uses"):
        SpoolFolder(tmp_path)
    first.close()
    SpoolFolder(tmp_path).close()


def test_a_folder_that_cannot_be_used_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match="--spool-dir"):
        SpoolFolder(tmp_path / "file")


def test_foreign_files_in_the_folder_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "1-zz.batch").write_text("mine")
    spool = spool_at(tmp_path, Ledger())
    assert spool.queued_windows == 0
    assert (tmp_path / "notes.txt").read_text() == (tmp_path / "1-zz.batch").read_text() == "mine"
    spool.close()


def test_rejected_batches_are_kept_but_not_without_end(tmp_path: Path) -> None:
    spool = spool_at(tmp_path, Ledger())
    for n in range(MAX_REJECTED + 5):
        spool.append(parcel(window(n)))
        spool.seal_older(0)
        segment = spool.next(0)
        assert segment is not None
        spool.reject(segment)
    assert len(list((tmp_path / "rejected").iterdir())) == MAX_REJECTED
    assert spool.queued_windows == 0
    spool.close()


def test_a_split_repeated_after_a_crash_makes_the_same_keys(tmp_path: Path) -> None:
    spool = spool_at(tmp_path, Ledger())
    spool.append(parcel(window(0), window(1), window(2)))
    spool.seal_older(0)
    segment = spool.next(0)
    assert segment is not None
    assert segment.path is not None
    content = segment.path.read_bytes()
    spool.split(segment, segment.read())
    spool.close()
    segment.path.write_bytes(content)  # as if the agent was killed before it deleted the whole
    again = spool_at(tmp_path, Ledger())
    whole = again.next(0)
    assert whole is not None
    assert whole.key == segment.key
    again.split(whole, whole.read())
    keys = [b.key for b in drain(again)]
    assert set(keys) == {f"{segment.key}-0", f"{segment.key}-1"}


def test_a_long_queue_makes_larger_batches(tmp_path: Path) -> None:
    now = [10**18]
    spool = spool_at(tmp_path, Ledger(), disk=1 << 30, clock=lambda: now[0])
    for n in range(200):
        now[0] += 10**9
        spool.append(parcel(window(n)))
        spool.seal_older(10**9)
    assert 13 <= len(list(tmp_path.glob("*.batch"))) < 40
    assert len([w for b in drain(spool) for w in b.windows]) == 200
    spool.close()
