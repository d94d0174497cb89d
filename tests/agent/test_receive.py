"""The socket: who may write, what is refused and counted, and whose socket is taken over."""

from __future__ import annotations

import json
import os
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from agent.conftest import StartAgent
from agent.frames import Probe, frame, wait_until, window
from replaywatch.agent.inlet import MAX_FRAME_BYTES, Inlet, Sender
from replaywatch.agent.serve import RunningAgent
from replaywatch.contract.errors import ConfigurationError
from replaywatch.contract.wire import WIRE_VERSION

OWN = (os.getpid(), os.geteuid())


def frames(agent: RunningAgent, outcome: str) -> float:
    return agent.agent.ledger.value("replaywatch_agent_frames_total", outcome)


def sends(probe: socket.socket, data: bytes) -> bool:
    try:
        return probe.send(data) == len(data)
    except BlockingIOError:
        return False


def send_from_another_process(agent: RunningAgent, data: bytes, before: str = "") -> int:
    """Send a frame from a process of its own, which runs some code once it is connected; its pid."""
    code = (
        "import os, socket, sys\n"
        "s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM); s.connect(sys.argv[1])\n"
        f"data = sys.stdin.buffer.read()\n{before}\ns.send(data)"
    )
    child = subprocess.Popen([sys.executable, "-c", code, str(agent.socket_path)], stdin=subprocess.PIPE)
    child.communicate(data, timeout=20)
    assert child.returncode == 0
    return child.pid


def test_the_socket_and_its_folder_are_private(short_path: Path) -> None:
    inlet = Inlet(short_path / "new" / "agent.sock")
    assert stat.S_IMODE(inlet.path.stat().st_mode) == 0o660
    assert stat.S_IMODE(inlet.path.parent.stat().st_mode) == 0o700
    inlet.close()
    assert not inlet.path.exists()


def test_a_group_may_be_let_in(short_path: Path) -> None:
    import grp

    group = grp.getgrgid(os.getegid())
    inlet = Inlet(short_path / "new" / "agent.sock", group.gr_name)
    assert inlet.path.stat().st_gid == group.gr_gid
    assert stat.S_IMODE(inlet.path.parent.stat().st_mode) == 0o710
    inlet.close()


def test_an_unknown_group_is_a_configuration_error(short_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no group"):
        Inlet(short_path / "agent.sock", "no-such-group-here")


def test_the_socket_of_a_dead_agent_is_replaced(short_path: Path) -> None:
    path = short_path / "agent.sock"
    dead = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    dead.bind(str(path))
    dead.close()
    inlet = Inlet(path)
    with Probe(path) as probe:
        probe.send(b"x")
    assert [f.data for f in inlet.frames(5)] == [b"x"]
    inlet.close()


def test_the_socket_of_a_living_agent_is_left_alone(short_path: Path) -> None:
    first = Inlet(short_path / "agent.sock")
    with pytest.raises(ConfigurationError, match="another agent listens"):
        Inlet(short_path / "agent.sock")
    with Probe(first.path) as probe:
        probe.send(b"still mine")
    assert [f.data for f in first.frames(5)] == [b"still mine"]
    first.close()


def test_a_foreign_listener_without_a_lock_is_left_alone_too(short_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
        other.bind(str(short_path / "agent.sock"))
        with pytest.raises(ConfigurationError, match="another agent listens"):
            Inlet(short_path / "agent.sock")


def test_a_file_in_the_way_is_not_deleted(short_path: Path) -> None:
    (short_path / "agent.sock").write_text("mine")
    with pytest.raises(ConfigurationError, match="no socket"):
        Inlet(short_path / "agent.sock")
    assert (short_path / "agent.sock").read_text() == "mine"


def test_a_path_too_long_for_a_socket_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="longer than"):
        Inlet(tmp_path / ("x" * 120) / "agent.sock")


def test_the_kernel_says_who_sends(short_path: Path) -> None:
    inlet = Inlet(short_path / "agent.sock")
    with Probe(inlet.path) as probe:
        probe.send(b"own")
    code = "import socket,sys; s=socket.socket(socket.AF_UNIX,socket.SOCK_DGRAM); s.sendto(b'child', sys.argv[1])"
    child = subprocess.Popen([sys.executable, "-c", code, str(inlet.path)])
    assert child.wait(20) == 0
    assert [(f.data, f.sender) for f in inlet.frames(5)] == [
        (b"own", Sender(*OWN)),
        (b"child", Sender(child.pid, os.geteuid())),
    ]
    inlet.close()


def test_a_sender_is_never_blocked(start_agent: StartAgent) -> None:
    agent = start_agent()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
        probe.setblocking(False)
        probe.connect(str(agent.socket_path))
        data, started = frame("k"), time.monotonic()
        dropped = sum(not sends(probe, data) for _ in range(2000))
        assert time.monotonic() - started < 5
    wait_until(lambda: frames(agent, "accepted") + frames(agent, "duplicate") == 2000 - dropped)


def test_bad_frames_are_counted_by_outcome_and_harm_nothing(start_agent: StartAgent) -> None:
    agent = start_agent()
    bad = [
        b"",
        b"\xff\xfe",
        b"[]",
        b"[" * 100_000,
        b'{"v":1,"key":"k","sent_ns":1e999,"windows":[]}',
        json.dumps({"v": WIRE_VERSION, "key": "k", "sent_ns": 0, "windows": [{"start_ns": 1}]}).encode(),
        frame("nul").replace(b"pod-a", b"pod\\u0000"),
        frame("surrogate").replace(b"pod-a", b"pod\\ud800"),
        frame("backwards").replace(b'"end_ns":1', b'"end_ns":-1'),
    ]
    with Probe(agent.socket_path) as probe:
        for data in bad:
            probe.send(data)
        probe.send(b'{"v":99}')
        probe.send(frame("good"))
        probe.send(frame("good"))
    wait_until(lambda: frames(agent, "duplicate"))
    assert [frames(agent, o) for o in ("malformed", "other_version", "accepted", "duplicate")] == [len(bad), 1, 1, 1]


def test_a_frame_that_is_too_large_is_counted(short_path: Path) -> None:
    inlet = Inlet(short_path / "agent.sock")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8 << 20)
        try:
            probe.sendto(b"x" * (MAX_FRAME_BYTES + 1), str(inlet.path))
        except OSError:
            inlet.close()
            pytest.skip("this kernel lets nobody send a datagram above the limit")
    (only,) = inlet.frames(5)
    assert only.truncated
    inlet.close()


def test_one_process_cannot_crowd_out_the_others(start_agent: StartAgent) -> None:
    agent = start_agent(frames_per_second=5.0)
    with Probe(agent.socket_path) as probe:
        for n in range(50):
            probe.send(frame(f"k{n}"))
        wait_until(lambda: frames(agent, "accepted") + frames(agent, "limited") == 50)
        assert 10 <= frames(agent, "accepted") <= 15
        send_from_another_process(agent, frame("other"))
    wait_until(lambda: frames(agent, "accepted") + frames(agent, "limited") == 51)
    assert frames(agent, "limited") <= 40


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can send as another user")
def test_frames_of_other_users_are_refused_unless_allowed(start_agent: StartAgent, short_path: Path) -> None:
    refusing = start_agent()
    send_from_another_process(refusing, frame("a"), "os.setuid(12345)")
    wait_until(lambda: frames(refusing, "foreign_user") == 1)
    refusing.stop()
    allowing = start_agent(allow_uids="12345")
    send_from_another_process(allowing, frame("a"), "os.setuid(12345)")
    wait_until(lambda: frames(allowing, "accepted") == 1)


def test_many_processes_are_heard(start_agent: StartAgent) -> None:
    agent = start_agent()
    code = (
        "import socket, sys\n"
        "s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM); s.connect(sys.argv[1])\n"
        "data = sys.stdin.buffer.read()\n"
        "for n in range(20): s.send(data.replace(b'KEY', b'%s-%d' % (sys.argv[2].encode(), n)))"
    )
    senders = [
        subprocess.Popen([sys.executable, "-c", code, str(agent.socket_path), str(n)], stdin=subprocess.PIPE)
        for n in range(6)
    ]
    for n, sender in enumerate(senders):
        assert sender.stdin is not None
        sender.stdin.write(frame("KEY", window(rank=n)))
        sender.stdin.close()
    assert [s.wait(20) for s in senders] == [0] * 6
    wait_until(lambda: frames(agent, "accepted") == 120)
