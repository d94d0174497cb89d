"""The tracer in a process without Python, loaded as the CUDA driver loads it."""

from __future__ import annotations

import ctypes
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from replaywatch.contract.wire import decode
from replaywatch.probe.launch import ENTRY, INJECTION
from replaywatch.probe.tracer import ABI_VERSION
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


# A process without Python. Its arguments are done in turn: a library is loaded, a number is slept in milliseconds, and
# "inject" does what the CUDA driver does with the tracer, whose path comes first.
_HOST = """
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int main(int count, char **words) {
  void *tracer = dlopen(words[1], RTLD_NOW);
  for (int i = 2; i < count; ++i) {
    if (strcmp(words[i], "inject") == 0) printf("%d\\n", ((int (*)(void))dlsym(tracer, "InitializeInjection"))());
    else if (words[i][0] == '/') { if (dlopen(words[i], RTLD_NOW | RTLD_GLOBAL) == NULL) return 3; }
    else usleep(1000 * atoi(words[i]));
  }
  return 0;
}
"""


def _compile(source: str, to: Path, *flags: str) -> Path:
    subprocess.run(["c++", *flags, "-x", "c++", "-", "-o", str(to), "-ldl"], input=source, text=True, check=True)
    return to


@pytest.fixture(scope="session")
def host(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _compile(_HOST, tmp_path_factory.mktemp("host") / "host")


def _tracer() -> str:
    return str(build("plain") / "libreplaywatch_tracer.so")


def _run(command: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("REPLAYWATCH", "CUDA_INJ", "NVTX", "KINETO"))}
    return subprocess.run(
        command, env={**clean, **environment}, capture_output=True, text=True, check=False, cwd=ROOT, timeout=60
    )


def _inject(host: Path, environment: dict[str, str], *then: str) -> subprocess.CompletedProcess[str]:
    """A process without Python that is injected and lives for a moment."""
    return _run([str(host), _tracer(), "inject", *then], environment)


def _inject_python(environment: dict[str, str], *flags: str, first: str = "") -> subprocess.CompletedProcess[str]:
    """A Python process with a CUPTI that is injected; how often its CUPTI was touched."""
    program = (
        f"{first}\nimport ctypes, time\n"
        f"c = ctypes.CDLL({str(build('plain') / 'libcupti.so.13')!r}, ctypes.RTLD_GLOBAL)\n"
        f"t = ctypes.CDLL({_tracer()!r}); assert t.InitializeInjection() == 1; time.sleep(0.2)\n"
        "print(c.fake_count(b'registrations'), c.fake_count(b'enabled'))"
    )
    often = {"REPLAYWATCH_TRACE_FIRST_MS": "1", "REPLAYWATCH_TRACE_PERIOD_MS": "10", "REPLAYWATCH_TRACE_WINDOW_MS": "5"}
    return _run([sys.executable, *flags, "-c", program], {**often, **environment})


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
def test_a_process_without_cupti_says_so_once(agent: socket.socket, tmp_path: Path, host: Path) -> None:
    with agent:
        done = _inject(host, {"REPLAYWATCH_SOCKET": str(tmp_path / "agent.sock")})
        assert (done.returncode, done.stdout) == (0, "1\n")
        assert "no libcupti in this process" in _receive(agent)


@pytest.mark.parametrize("name", ["CUDA_INJECTION64_PATH", "REPLAYWATCH_CHAIN_INJECTION"])
def test_another_injection_in_the_process_keeps_windows_away(
    agent: socket.socket, tmp_path: Path, host: Path, name: str
) -> None:
    with agent:
        done = _inject(host, {"REPLAYWATCH_SOCKET": str(tmp_path / "agent.sock"), name: "/opt/other.so"})
        assert (done.returncode, done.stdout) == (0, "1\n")
        assert f"{name}=/opt/other.so" in _receive(agent)


def _watched(tmp_path: Path) -> dict[str, str]:
    """The environment of `replaywatch run --inject`, with the stand-in for torch."""
    sites = os.pathsep.join([str(ENTRY), str(ROOT / "tests/probe/stand_ins")])
    socket_path = str(tmp_path / "agent.sock")
    return {
        "REPLAYWATCH_SOCKET": socket_path, "REPLAYWATCH_PROBE_SOCKET": socket_path, "REPLAYWATCH_PROBE": "1",
        "PYTHONPATH": sites, "REPLAYWATCH_STAND_IN": "2.13", INJECTION: _tracer(),
    }  # fmt: skip


@pytest.mark.parametrize(
    "first",
    [
        "import torch.cuda",
        "import torch.cuda, os\nchild = os.fork()\nif child: os.waitpid(child, 0), os._exit(0)",
    ],
    ids=["itself", "forked"],
)
def test_a_python_process_is_left_to_its_probe(agent: socket.socket, tmp_path: Path, first: str) -> None:
    with agent:
        done = _inject_python(_watched(tmp_path), first=first)
        assert (done.returncode, done.stdout) == (0, "0 0\n"), done.stderr
        agent.settimeout(0.1)
        with pytest.raises(TimeoutError):  # what is not seen is said by the probe, once
            agent.recv(1 << 16)


@pytest.mark.parametrize("flag", ["-I", "-E", "-S"])
def test_a_python_process_that_starts_no_probe_is_told(agent: socket.socket, tmp_path: Path, flag: str) -> None:
    with agent:
        done = _inject_python(_watched(tmp_path), flag)
        assert (done.returncode, done.stdout) == (0, "0 0\n"), done.stderr
        assert "python -I, -E and -S start none" in _receive(agent)


def test_a_python_process_without_a_probe_says_why_it_is_not_traced(agent: socket.socket, tmp_path: Path) -> None:
    with agent:
        done = _inject_python({"REPLAYWATCH_SOCKET": str(tmp_path / "agent.sock")})
        assert (done.returncode, done.stdout) == (0, "0 0\n"), done.stderr
        assert "REPLAYWATCH_PROBE_KERNELS=1" in _receive(agent)


def test_windows_end_when_python_comes_into_the_process(agent: socket.socket, tmp_path: Path, host: Path) -> None:
    python = _compile('extern "C" int Py_IsInitialized() { return 1; }', tmp_path / "libpython.so", "-shared", "-fPIC")
    cupti = str(build("plain") / "libcupti.so.13")
    often = {"REPLAYWATCH_TRACE_FIRST_MS": "1", "REPLAYWATCH_TRACE_PERIOD_MS": "60", "REPLAYWATCH_TRACE_WINDOW_MS": "5"}
    with agent:
        command = [str(host), _tracer(), cupti, "inject", "100", str(python), "200"]
        done = _run(command, {**often, "REPLAYWATCH_SOCKET": str(tmp_path / "agent.sock")})
        assert (done.returncode, done.stdout) == (0, "1\n")
        agent.settimeout(10)
        windows = [decode(agent.recv(1 << 16)).windows[0] for _ in range(4)]
    assert windows[0].blind == ()
    assert windows[0].cost is not None
    assert windows[0].cost.traced_windows == 1
    assert "Python runs in this process" in windows[-1].blind[0].reason


def test_without_a_socket_nothing_starts(host: Path) -> None:
    done = _inject(host, {})
    assert (done.returncode, done.stdout, done.stderr) == (0, "1\n", "")


def test_the_injection_that_stood_there_before_is_called(tmp_path: Path, host: Path) -> None:
    witness = tmp_path / "called"
    source = (
        f'#include <stdio.h>\nextern "C" int InitializeInjection() {{ fclose(fopen("{witness}", "w")); return 1; }}\n'
    )
    library = _compile(source, tmp_path / "other.so", "-shared", "-fPIC")
    done = _inject(host, {"REPLAYWATCH_CHAIN_INJECTION": str(library)})
    assert done.returncode == 0
    assert witness.exists()


def test_a_chained_injection_that_is_missing_stops_nothing(host: Path) -> None:
    done = _inject(host, {"REPLAYWATCH_CHAIN_INJECTION": "/nowhere/other.so"})
    assert (done.returncode, done.stdout) == (0, "1\n")


def test_the_options_page_names_every_variable_that_the_tracer_reads() -> None:
    page = (ROOT / "docs/options.md").read_text()
    sources = "".join(path.read_text() for path in (ROOT / "agent/cupti-tracer/src").glob("*.cpp"))
    names = set(re.findall(r'"(REPLAYWATCH_[A-Z0-9_]+)"', sources))
    assert len(names) >= 6
    assert [name for name in sorted(names) if f"| `{name}` |" not in page] == []


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
    assert library.rw_tracer_abi_version() == ABI_VERSION
