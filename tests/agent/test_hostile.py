"""Whatever bytes come, each stage gives a named outcome, and what passes is fit for the later ones."""

from __future__ import annotations

import gzip

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest

from agent.frames import FINGERPRINT, frame
from contract.windows import WINDOW
from replaywatch.agent.admission import Admission, Admitted, Allowance
from replaywatch.agent.board import Board
from replaywatch.agent.cgroup import Place
from replaywatch.agent.devices import DeviceTable
from replaywatch.agent.downward import Surroundings
from replaywatch.agent.enrich import Enricher
from replaywatch.agent.exposition import Exposition
from replaywatch.agent.inlet import Frame, Sender
from replaywatch.agent.ledger import KNOWN, Ledger
from replaywatch.agent.processes import Processes
from replaywatch.agent.segment import batch_body
from replaywatch.agent.spool import Spool
from replaywatch.contract.window import Window
from replaywatch.contract.wire import Batch, decode, encode

OUTCOMES = {labels[0] for labels in KNOWN["replaywatch_agent_frames_total"]} - {"accepted"}
GOOD = frame("key")
MUTATED = st.builds(
    lambda at, cut, put: GOOD[: at % len(GOOD)] + put + GOOD[at % len(GOOD) + cut :],
    st.integers(0, 1 << 16),
    st.integers(0, 40),
    st.binary(max_size=20) | st.sampled_from([b"-1", b"1e400", b"null", b'"\\ud800"', b"[]", b"{", b"9" * 30, b"true"]),
)


def admission(processes: Processes) -> Admission:
    return Admission(processes, None, 1e6)


def whole_way(data: bytes) -> str:
    """A frame through every stage; the outcome."""
    processes, ledger = Processes(10**9), Ledger()
    admitted = admission(processes).admit(Frame(data, Sender(None, 0)), 0)
    if not isinstance(admitted, Admitted):
        return admitted
    enricher = Enricher(Surroundings(node="n"), "auto", Place(), DeviceTable)
    parcel = enricher.complete(admitted, processes.takes_place)
    board = Board(4, 10**9, ledger)
    board.add(parcel.windows, "p", 0)
    registry = CollectorRegistry()
    registry.register(Exposition(board, ledger, {}))
    assert generate_latest(registry)
    spool = Spool(None, disk_bytes=1, memory_bytes=1 << 20, ledger=ledger, clock=lambda: 0)
    spool.append(parcel)
    spool.seal_older(0)
    if segment := spool.next(0):
        batch = decode(gzip.decompress(batch_body(segment.key, segment.read(), 0)))
        assert batch.windows == parcel.windows
    return "accepted"


@given(st.binary(max_size=300))
def test_any_bytes_are_refused_by_name(data: bytes) -> None:
    assert whole_way(data) in OUTCOMES


@given(MUTATED)
@settings(max_examples=400, suppress_health_check=[HealthCheck.too_slow])
def test_any_damage_to_a_frame_is_refused_by_name_or_passes_whole(data: bytes) -> None:
    assert whole_way(data) in OUTCOMES | {"accepted"}


@given(st.lists(WINDOW, max_size=3), st.text(st.characters(blacklist_categories=("Cs",)), max_size=80))
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_any_windows_pass_every_stage_or_are_refused(windows: list[Window], key: str) -> None:
    batch = Batch(key=key, sent_ns=0, windows=tuple(windows), fingerprints={"not its id": FINGERPRINT})
    assert whole_way(encode(batch)) in OUTCOMES | {"accepted"}


def test_a_senders_allowance_refills_with_time_and_is_its_own() -> None:
    allowance = Allowance(per_second=2)
    one, other = Sender(1, 0), Sender(2, 0)
    assert [allowance.take(one, 0) for _ in range(5)] == [True] * 4 + [False]
    assert allowance.take(other, 0)
    assert not allowance.take(one, 4 * 10**8)
    assert allowance.take(one, 10**9)


def test_many_senders_do_not_fill_the_memory() -> None:
    allowance, processes = Allowance(1), Processes(10**18)
    for pid in range(5000):
        allowance.take(Sender(None, pid), 0)
        processes.sender(Sender(None, pid), "k", None, 0)
    assert len(allowance._left) <= 2048
    assert len(processes) <= 1024
    processes.close()
