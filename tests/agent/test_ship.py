"""Shipping: every window that was taken arrives, once by key, whatever the collector does meanwhile."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from agent.conftest import StartAgent
from agent.frames import CONFIG, FINGERPRINT, Probe, frame, wait_until, window
from agent.receiver import Fault, Receiver, at_most, hang, refuse_pod, reset, slow, status, trickle
from replaywatch.agent.serve import RunningAgent


def send(agent: RunningAgent, count: int, first: int = 0) -> None:
    with Probe(agent.socket_path) as probe:
        for n in range(first, first + count):
            probe.send(frame(f"frame-{n}", window(n)))


def arrived(receiver: Receiver) -> list[int]:
    return sorted(w.start_ns for w in receiver.windows)


def expected(count: int, first: int = 0) -> list[int]:
    return [window(n).start_ns for n in range(first, first + count)]


def batches(agent: RunningAgent, outcome: str) -> float:
    return agent.agent.ledger.value("replaywatch_agent_batches_total", outcome)


def test_windows_arrive_whole_with_what_they_point_to(start_agent: StartAgent, receiver: Receiver) -> None:
    agent = start_agent(collector_url=receiver.url, token="s3cret")
    send(agent, 3)
    wait_until(lambda: len(receiver.windows) == 3)
    assert arrived(receiver) == expected(3)
    first = receiver.windows[0]
    assert first.dispatch == window(0).dispatch
    assert first.timing == window(0).timing
    (batch, *_) = receiver.stored.values()
    assert batch.configs[CONFIG.id] == CONFIG
    assert batch.fingerprints[first.fingerprint_id or ""].torch == FINGERPRINT.torch
    headers = receiver.headers[0]
    assert headers["path"] == "/v1/batches"
    assert headers["content-encoding"] == "gzip"
    assert headers["authorization"] == "Bearer s3cret"
    assert headers["idempotency-key"] in receiver.stored


@pytest.mark.parametrize(
    "faults",
    [
        [status(500), status(503), status(502)],
        [reset, reset],
        [hang, hang],
        [trickle],
        [slow(0.3)],
        [status(429, Retry_After="0")],
        [status(401), status(403), status(404), status(302, Location="http://192.0.2.1/")],
        [status(500), reset, hang, status(429), reset, status(503)],
    ],
    ids=["errors", "reset", "hang", "trickle", "slow", "throttled", "misconfigured", "all"],
)
def test_nothing_is_lost_or_doubled_by_faults(start_agent: StartAgent, receiver: Receiver, faults: list[Fault]) -> None:
    receiver.faults = list(faults)
    agent = start_agent(collector_url=receiver.url, request_seconds=0.3)
    send(agent, 20)
    wait_until(lambda: agent.agent.spool is not None and agent.agent.spool.queued_windows == 0)
    send(agent, 5, first=20)
    wait_until(lambda: len(receiver.windows) >= 25)
    assert arrived(receiver) == expected(25)
    assert agent.agent.ledger.value("replaywatch_agent_windows_dropped_total") == 0
    wait_until(lambda: not list((agent.socket_path.parent / "spool").glob("*.batch")))


def test_a_repeated_batch_keeps_its_key(start_agent: StartAgent, receiver: Receiver) -> None:
    receiver.faults = [reset, reset, reset]
    agent = start_agent(collector_url=receiver.url)
    send(agent, 1)
    wait_until(lambda: batches(agent, "delivered") == 1)
    assert list(receiver.posts.values()) == [4]
    assert len(receiver.stored) == 1


def test_a_batch_that_is_too_large_is_halved(start_agent: StartAgent, receiver: Receiver) -> None:
    receiver.standing = at_most(3)
    agent = start_agent(collector_url=receiver.url, batch_seconds=0.4)
    send(agent, 20)
    wait_until(lambda: len(receiver.windows) == 20)
    assert arrived(receiver) == expected(20)
    assert batches(agent, "split") >= 1
    assert max(len(b.windows) for b in receiver.stored.values()) <= 3


def test_one_poisoned_window_does_not_take_the_others_along(start_agent: StartAgent, receiver: Receiver) -> None:
    receiver.standing = refuse_pod("poison")
    agent = start_agent(collector_url=receiver.url, batch_seconds=0.4)
    with Probe(agent.socket_path) as probe:
        probe.send(frame("bad", window(100, pod="poison")))
    send(agent, 9)
    wait_until(lambda: len(receiver.windows) == 9 and batches(agent, "rejected") == 1)
    assert arrived(receiver) == expected(9)
    assert len(list((agent.socket_path.parent / "spool" / "rejected").iterdir())) == 1


def test_a_collector_that_refuses_everything_is_not_asked_for_every_window(
    start_agent: StartAgent, receiver: Receiver
) -> None:
    receiver.standing = status(400)
    agent = start_agent(collector_url=receiver.url, batch_seconds=0.5)
    send(agent, 200)
    wait_until(lambda: agent.agent.spool is not None and agent.agent.spool.queued_windows == 0)
    assert sum(receiver.posts.values()) < 60


def test_windows_that_an_older_collector_cannot_read_wait_for_its_upgrade(
    start_agent: StartAgent, receiver: Receiver
) -> None:
    receiver.standing = status(409)
    agent = start_agent(collector_url=receiver.url)
    send(agent, 5)
    wait_until(lambda: sum(receiver.posts.values()) >= 3)
    assert not receiver.stored
    assert batches(agent, "rejected") == 0
    receiver.standing = None
    wait_until(lambda: len(receiver.windows) == 5)
    assert arrived(receiver) == expected(5)


def test_retry_after_is_honoured(start_agent: StartAgent, receiver: Receiver) -> None:
    receiver.faults = [status(429, Retry_After="1")]
    agent = start_agent(collector_url=receiver.url)
    send(agent, 1)
    wait_until(lambda: sum(receiver.posts.values()) == 1)
    first = time.monotonic()
    wait_until(lambda: len(receiver.stored) == 1)
    assert time.monotonic() - first >= 0.9


def test_a_collector_that_is_away_for_a_while_gets_everything(start_agent: StartAgent, short_path: Path) -> None:
    with Receiver() as early:
        port = early.port
    agent = start_agent(collector_url=f"http://127.0.0.1:{port}")
    send(agent, 10)
    wait_until(lambda: agent.agent.ledger.value("replaywatch_agent_retries_total", "unreachable") >= 2)
    with Receiver(port) as late:
        wait_until(lambda: len(late.windows) == 10)
        assert arrived(late) == expected(10)
        agent.stop()


def test_a_new_token_is_read_from_its_file(start_agent: StartAgent, receiver: Receiver, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("old\n")
    agent = start_agent(collector_url=receiver.url, token_file=token)
    send(agent, 1)
    wait_until(lambda: len(receiver.stored) == 1)
    token.write_text("new\n")
    os.utime(token, ns=(1, 1))
    send(agent, 1, first=1)
    wait_until(lambda: len(receiver.stored) == 2)
    assert [h["authorization"] for h in receiver.headers] == ["Bearer old", "Bearer new"]


@pytest.mark.parametrize("fault", [hang, trickle, status(503)], ids=["hang", "trickle", "503"])
def test_a_stop_takes_less_than_two_seconds_and_keeps_what_was_not_sent(
    start_agent: StartAgent, receiver: Receiver, fault: Fault
) -> None:
    receiver.standing = fault
    agent = start_agent(collector_url=receiver.url)
    send(agent, 4)
    wait_until(lambda: sum(receiver.posts.values()) >= 1)
    started = time.monotonic()
    agent.stop()
    assert time.monotonic() - started < 2
    receiver.standing = None
    receiver.released.set()
    again = start_agent(collector_url=receiver.url)
    wait_until(lambda: len(receiver.windows) == 4)
    assert arrived(receiver) == expected(4)
    assert again.agent.ledger.value("replaywatch_agent_windows_dropped_total") == 0


def test_without_a_collector_metrics_work_and_nothing_is_spooled(start_agent: StartAgent) -> None:
    agent = start_agent()
    send(agent, 1)
    wait_until(lambda: agent.agent.ledger.value("replaywatch_agent_frames_total", "accepted") == 1)
    assert not (agent.socket_path.parent / "spool").exists()
