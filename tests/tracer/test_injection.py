"""The tracer in a process without Python, loaded as the CUDA driver loads it."""

from __future__ import annotations

import ctypes
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from replaywatch.contract.wire import decode
from tracer.builds import ROOT, build


def test_frames_are_in_the_wire_form_and_survive_a_dead_agent(tmp_path: Path) -> None:
    done = subprocess.run(
        [str(build("plain") / "drill"), "agent", str(tmp_path / "agent.sock")],
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    batch = decode(done.stdout.strip())
    window = batch.windows[0]
    assert window.workload.pid is not None
    assert window.workload.name == "drill"
    assert window.workload.gpu_index == 0
    assert window.end_ns > window.start_ns
    assert window.traced is not None
    assert window.traced.method == "cupti"
    assert window.traced.total_kernels > 0
    assert window.timing.replay is not None
    assert window.cost is not None
    assert window.cost.traced_windows >= 1
    assert batch.key.startswith(f"{window.workload.node}:{window.workload.pid}:")


def _inject(environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """A process without CUPTI that is injected and lives for a moment."""
    tracer = build("plain") / "libreplaywatch_tracer.so"
    program = f"import ctypes; t = ctypes.CDLL({str(tracer)!r}); print(t.InitializeInjection())"
    clean = {k: v for k, v in os.environ.items() if "INJECTION" not in k and "KINETO" not in k}
    return subprocess.run(
        [sys.executable, "-c", program],
        env={**clean, **environment},
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )


def _has_cupti() -> bool:
    for soname in ("libcupti.so.13", "libcupti.so.12", "libcupti.so"):
        find = [sys.executable, "-c", f"import ctypes; ctypes.CDLL({soname!r})"]
        if subprocess.run(find, capture_output=True, check=False).returncode == 0:
            return True
    return False


def _receive(listener: socket.socket) -> str:
    listener.settimeout(10)
    (window,) = decode(listener.recv(1 << 16)).windows
    (spot,) = window.blind
    return spot.reason


@pytest.fixture
def agent(tmp_path: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    listener.bind(str(tmp_path / "agent.sock"))
    return listener


@pytest.mark.skipif(_has_cupti(), reason="the library path of this machine has a CUPTI")
def test_a_process_without_cupti_says_so_once(agent: socket.socket, tmp_path: Path) -> None:
    with agent:
        done = _inject({"REPLAYWATCH_SOCKET": str(tmp_path / "agent.sock")})
        assert (done.returncode, done.stdout) == (0, "1\n")
        assert "no libcupti in this process" in _receive(agent)


def test_another_injection_in_the_process_keeps_windows_away(agent: socket.socket, tmp_path: Path) -> None:
    with agent:
        done = _inject({"REPLAYWATCH_SOCKET": str(tmp_path / "agent.sock"), "CUDA_INJECTION64_PATH": "/opt/other.so"})
        assert (done.returncode, done.stdout) == (0, "1\n")
        assert "/opt/other.so" in _receive(agent)


def test_without_a_socket_nothing_starts() -> None:
    done = _inject({})
    assert (done.returncode, done.stdout, done.stderr) == (0, "1\n", "")


def test_the_injection_that_stood_there_before_is_called(tmp_path: Path) -> None:
    source, library, witness = tmp_path / "other.c", tmp_path / "other.so", tmp_path / "called"
    source.write_text(
        '#include <stdio.h>\nint InitializeInjection(void) { FILE *f = fopen("'
        + str(witness)
        + '", "w"); fclose(f); return 1; }\n'
    )
    subprocess.run(["c++", "-shared", "-fPIC", "-x", "c", str(source), "-o", str(library)], check=True)
    done = _inject({"REPLAYWATCH_CHAIN_INJECTION": str(library)})
    assert done.returncode == 0
    assert witness.exists()


def test_a_chained_injection_that_is_missing_stops_nothing() -> None:
    done = _inject({"REPLAYWATCH_CHAIN_INJECTION": "/nowhere/other.so"})
    assert (done.returncode, done.stdout) == (0, "1\n")


def test_only_the_border_is_exported() -> None:
    library = ctypes.CDLL(str(build("plain") / "libreplaywatch_tracer.so"))
    listed = subprocess.run(
        ["nm", "-D", "--defined-only", str(build("plain") / "libreplaywatch_tracer.so")],
        capture_output=True,
        text=True,
        check=True,
    )
    names = {line.split()[-1] for line in listed.stdout.splitlines()}
    assert names >= {"InitializeInjection", "rw_tracer_open"}
    assert all(name == "InitializeInjection" or name.startswith("rw_tracer_") for name in names)
    assert library.rw_tracer_abi_version() == 1
