"""What the tick feeds detectors beside windows: peers of the same fingerprint, and what windows taught one by one."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from collector.material import MS, PRINT, SECOND, healthy_window, times, workload
from collector.rig import Rig
from replaywatch.contract.window import Timing, Window
from replaywatch.detectors.evidence import Evidence
from replaywatch.detectors.judge import judge
from replaywatch.detectors.levels import WARM_WINDOWS
from replaywatch.detectors.sudden import Sudden


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig(f"sqlite:///{tmp_path / 'store.db'}")
    yield made
    made.stop()


def send(rig: Rig, windows: list[Window]) -> None:
    """Five seconds pass, one batch comes with its fingerprint, a tick runs."""
    rig.clock.advance(5)
    now = rig.clock()
    rig.feed(*(replace(w, start_ns=now - 5 * SECOND, end_ns=now) for w in windows), prints={PRINT.id: PRINT})
    rig.detection.tick()


def fleet(n: int, seed: int = 1, odd_ms: float | None = None) -> list[Window]:
    rng = random.Random(seed)
    windows = [healthy_window(0, rng, workload(f"pod-{i}")) for i in range(n)]
    if odd_ms is not None:
        slow = Timing(step_period=times(rng, odd_ms * MS, 1500))
        windows[0] = replace(windows[0], timing=slow)
    return windows


def last_evidence(rig: Rig, pod: str) -> Evidence:
    return next(e for e in reversed(rig.judge.seen) if e.workload.pod == pod)


def test_replicas_know_their_peers_in_the_tick_in_which_they_come(rig: Rig) -> None:
    send(rig, fleet(8, odd_ms=9.0))
    peers = last_evidence(rig, "pod-3").peers
    assert peers is not None
    assert peers.n == 8
    finding = next(f for f in judge(last_evidence(rig, "pod-0")).findings if f.detector == "odd_one_out")
    assert "step time" in finding.title


def test_a_silent_replica_is_no_peer_any_more(rig: Rig) -> None:
    send(rig, fleet(8))
    for _ in range(14):
        send(rig, fleet(6))
    peers = last_evidence(rig, "pod-3").peers
    assert peers is not None
    assert peers.n == 6


def test_a_workload_without_a_fingerprint_has_no_peers(rig: Rig) -> None:
    windows = fleet(6)
    windows[2] = replace(windows[2], fingerprint_id=None)
    send(rig, windows)
    assert last_evidence(rig, "pod-2").peers is None
    kept = last_evidence(rig, "pod-1").peers
    assert kept is not None
    assert kept.n == 5


def test_what_windows_taught_survives_a_restart_with_and_without_a_last_checkpoint(rig: Rig) -> None:
    for i in range(WARM_WINDOWS + 4):
        send(rig, fleet(1, seed=i))
    before = last_evidence(rig, "pod-0").sudden
    assert before is not None
    assert before.windows == WARM_WINDOWS + 4
    for cleanly in (True, False):
        rig.restart(cleanly=cleanly)
        rig.judge.seen.clear()
        rig.detection.tick()
        after = last_evidence(rig, "pod-0").sudden
        assert after == before


def test_a_sudden_change_after_a_restart_is_found_from_what_was_learnt_before_it(rig: Rig) -> None:
    for i in range(WARM_WINDOWS + 6):
        send(rig, fleet(1, seed=i))
    rig.restart(cleanly=True)
    for i in range(2):
        send(rig, fleet(1, seed=100 + i, odd_ms=7.0))
    verdict = Sudden().judge(last_evidence(rig, "pod-0"))
    assert "step time went from" in getattr(verdict, "title", "")


def test_the_fingerprint_before_a_change_is_at_hand(rig: Rig) -> None:
    send(rig, fleet(1))
    newer = replace(PRINT, driver="590")
    rig.clock.advance(5)
    now = rig.clock()
    changed = replace(fleet(1)[0], start_ns=now - 5 * SECOND, end_ns=now, fingerprint_id=newer.id)
    rig.feed(changed, prints={newer.id: newer})
    rig.detection.tick()
    evidence = last_evidence(rig, "pod-0")
    assert evidence.previous_fingerprint == PRINT
    assert evidence.fingerprint == newer


def test_a_batch_that_comes_twice_teaches_once(rig: Rig) -> None:
    rig.clock.advance(5)
    window = replace(fleet(1)[0], start_ns=rig.clock() - 5 * SECOND, end_ns=rig.clock())
    rig.feed(window, key="same")
    rig.feed(window, key="other")
    rig.detection.tick()
    sudden = last_evidence(rig, "pod-0").sudden
    assert sudden is not None
    assert sudden.windows == 1
