"""The doctor looks at a process that runs already: through /proc, at its socket, and in the agent's place."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from probe.harness import ROOT, Listener, program_environment, until
from replaywatch.agent.socket_place import MAX_PATH_BYTES
from replaywatch.contract.errors import ProbeError
from replaywatch.probe.doctor import Check
from replaywatch.probe.other_process import read
from replaywatch.probe.outside import TOOLS, outside

SITE = "/venv/lib/python3.12/site-packages"
PYTHON = "/venv/bin/python3.12"
SERVES = """
import time, replaywatch.probe, torch
replaywatch.probe.start()
torch.cuda.init()
made = torch.cuda.CUDAGraph()
with torch.cuda.graph(made): pass
while True:
    made.replay()
    time.sleep(0.01)
"""


def process(
    proc: Path,
    pid: int = 4711,
    command: str = "python3 serve.py",
    mapped: tuple[str, ...] = (PYTHON,),
    environment: dict[str, str] | None = None,
    environ: bytes | None = None,
    parent: int = 0,
    user: int = 1000,
    state: str = "S (sleeping)",
    children: str = "",
) -> Path:
    """A process in a /proc, with a file system of its own."""
    folder = proc / str(pid)
    for part in ("fd", "ns", f"task/{pid}", "root/run/replaywatch"):
        (folder / part).mkdir(parents=True)
    (folder / "status").write_text(
        f"Name:\tx\nState:\t{state}\nPPid:\t{parent}\nUid:\t{user}\t{user}\t{user}\t{user}\n"
        f"Gid:\t{user}\t{user}\t{user}\t{user}\nGroups:\t44 \nCapEff:\t0000000000000000\n"
    )
    lines = [f"7f00-7f01 r-xp 00000000 08:01 {n}   {path}" for n, path in enumerate(mapped)]
    (folder / "maps").write_text("\n".join([*lines, "7ff0-7ff1 rw-p 00000000 00:00 0   [stack]"]))
    entries = [f"{name}={value}" for name, value in (environment or {"PATH": "/bin"}).items()]
    (folder / "environ").write_bytes("\0".join(entries).encode() if environ is None else environ)
    (folder / "cmdline").write_text("\0".join(command.split()) + "\0")
    (folder / f"task/{pid}/children").write_text(children)
    (folder / "fd/3").symlink_to("socket:[99]")
    for owner in (folder, proc / "self"):
        (owner / "ns").mkdir(parents=True, exist_ok=True)
        if not (owner / "ns/net").is_symlink():
            (owner / "ns/net").symlink_to("net:[1]")
    return proc


def check(name: str, proc: Path, pid: int = 4711) -> Check:
    return next(c for c in outside(read(pid, proc)) if c.name == name)


def test_what_is_loaded_is_told(tmp_path: Path) -> None:
    mapped = (
        PYTHON,
        "/usr/lib/libcuda.so.580.1",
        f"{SITE}/torch/lib/libtorch_cuda.so",
        f"{SITE}/replaywatch/probe/libreplaywatch_tracer.so",
        f"{SITE}/nvidia/cu13/lib/libcupti.so.13 (deleted)",
    )
    proc = process(tmp_path, mapped=mapped)
    version = proc / f"4711/root{SITE}/torch/version.py"
    version.parent.mkdir(parents=True)
    version.write_text("__version__ = '2.11.0+cu130'\n")
    assert "/usr/lib/libcuda.so.580.1" in check("gpu", proc).sentence
    assert "torch 2.11.0+cu130" in check("torch", proc).sentence
    assert f"CUPTI {SITE}/nvidia/cu13/lib/libcupti.so.13" in check("tracer", proc).sentence
    assert {c.state for c in outside(read(4711, proc)) if c.name in ("gpu", "torch", "tracer")} == {"ok"}


def test_what_is_not_loaded_is_told(tmp_path: Path) -> None:
    proc = process(tmp_path, environment={"REPLAYWATCH_PROBE_KERNELS": "1"})
    assert {c.name for c in outside(read(4711, proc)) if c.state == "blind"} >= {"gpu", "torch", "tracer"}


def test_what_cannot_be_known_from_outside_is_always_said(tmp_path: Path) -> None:
    last = outside(read(4711, process(tmp_path)))[-1]
    assert last.state == "blind"
    assert "known to the process alone" in last.sentence


def test_files_that_it_closes_meanwhile_do_not_matter(tmp_path: Path) -> None:
    stop = threading.Event()

    def open_and_close() -> None:
        while not stop.is_set():
            os.close(os.open(tmp_path, os.O_RDONLY))

    busy = threading.Thread(target=open_and_close)
    busy.start()
    try:
        assert all(read(os.getpid()).pid == os.getpid() for _ in range(200))
    finally:
        stop.set()
        busy.join()


def test_the_children_that_use_the_gpu_are_named(tmp_path: Path) -> None:
    process(tmp_path, 4711, children="4712 4799 ")  # one of them has ended
    process(tmp_path, 4712, children="4713 4714 ")
    process(tmp_path, 4713, mapped=(PYTHON, "/usr/lib/libcuda.so.1"))
    process(tmp_path, 4714)
    assert "of the processes below it 4713 have" in check("gpu", tmp_path).sentence


def test_a_thread_that_ends_meanwhile_does_not_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    process(tmp_path, 4711, children="4712 ")
    process(tmp_path, 4712, mapped=(PYTHON, "/usr/lib/libcuda.so.1"))
    gone = tmp_path / "4711/task/4700/children"
    gone.parent.mkdir()
    gone.touch()
    read_text = Path.read_text

    def with_one_gone(path: Path, encoding: str | None = None, errors: str | None = None) -> str:
        if path == gone:
            raise ProcessLookupError
        return read_text(path, encoding, errors)

    monkeypatch.setattr(Path, "read_text", with_one_gone)
    assert "of the processes below it 4712 have" in check("gpu", tmp_path).sentence


@pytest.mark.parametrize("part", TOOLS)
def test_another_tool_in_it_is_named(part: str, tmp_path: Path) -> None:
    tools = check("tools", process(tmp_path, mapped=(PYTHON, f"/opt/{part}.so")))
    assert (tools.state, TOOLS[part] in tools.sentence) == ("blind", True)


def test_the_tools_are_those_of_the_tracer() -> None:
    text = (ROOT / "agent/cupti-tracer/src/neighbours.cpp").read_text()
    table = text[text.index("kInjectors[]") : text.index("};", text.index("kInjectors[]"))]
    assert dict(re.findall(r'\{"([^"]+)", "([^"]+)"\}', table)) == TOOLS


@pytest.mark.parametrize(
    ("environment", "command", "installed", "state", "says"),
    [
        ({"REPLAYWATCH_PROBE": "0"}, "vllm serve m", "replaywatch-1.dist-info", "bad", "keeps the probe out"),
        ({"REPLAYWATCH_PROBE": "1", "PYTHONPATH": "/x:/r/replaywatch/probe/entry"}, "x", None, "ok", "replaywatch run"),
        ({"REPLAYWATCH_PROBE": "1", "PYTHONPATH": "/gone/replaywatch/probe/entry"}, "x", None, "blind", "its code may"),
        ({"REPLAYWATCH_PROBE": "1"}, "serve", "replaywatch.pth", "ok", "replaywatch.pth"),
        ({}, "/venv/bin/python3 /venv/bin/vllm serve m", "replaywatch-1.dist-info", "ok", "vllm loads"),
        ({"REPLAYWATCH_PROBE": "1"}, "vllm serve m", "replaywatch-1.dist-info", "ok", "vllm loads"),
        ({}, "VLLM::EngineCore", "replaywatch-1.dist-info", "ok", "vllm loads"),
        ({"VLLM_PLUGINS": "lora"}, "vllm serve m", "replaywatch-1.dist-info", "bad", "VLLM_PLUGINS=lora"),
        ({"VLLM_PLUGINS": "lora,replaywatch"}, "vllm serve m", "replaywatch-1.dist-info", "ok", "vllm loads"),
        ({}, "vllm serve m", None, "blind", "its code may"),
        ({}, "python3 train.py", "replaywatch-1.dist-info", "blind", "its code may"),
    ],
)  # fmt: skip
def test_what_starts_the_probe_is_told(
    environment: dict[str, str], command: str, installed: str | None, state: str, says: str, tmp_path: Path
) -> None:
    proc = process(
        tmp_path, command=command, mapped=(PYTHON, f"{SITE}/x.so"), environment={"PATH": "/bin", **environment}
    )
    entry = proc / "4711/root/r/replaywatch/probe/entry/sitecustomize.py"
    entry.parent.mkdir(parents=True)
    entry.touch()
    if installed:
        (proc / f"4711/root{SITE}" / installed).mkdir(parents=True)
    found = check("probe", proc)
    assert (found.state, says in found.sentence) == (state, True), found


def test_a_process_without_python_needs_the_tracer(tmp_path: Path) -> None:
    assert "run --inject" in check("probe", process(tmp_path / "a", mapped=("/bin/llama-server",))).sentence
    mapped = ("/bin/llama-server", "/opt/libreplaywatch_tracer.so")
    assert check("probe", process(tmp_path / "b", mapped=mapped)).state == "ok"


def test_options_and_conflicts_are_those_of_its_environment(tmp_path: Path) -> None:
    proc = process(tmp_path, environment={"REPLAYWATCH_PROBE_TRACE_MS": "soon", "CUDA_LAUNCH_BLOCKING": "1"})
    assert "soon" in check("options", proc).sentence
    assert "CUDA_LAUNCH_BLOCKING" in check("environment", proc).sentence


def test_an_environment_under_a_title_is_taken_from_the_parent(tmp_path: Path) -> None:
    process(tmp_path, 4700, environment={"REPLAYWATCH_PROBE": "0"})
    process(tmp_path, 4711, command="VLLM::EngineCore", environ=b"\0" * 900, parent=4700)
    checks = outside(read(4711, tmp_path))
    assert "ancestor 4700" in next(c for c in checks if c.name == "environment").sentence
    assert "keeps the probe out" in next(c for c in checks if c.name == "probe").sentence


@pytest.mark.parametrize("parent", [4700, 4701, 0])  # of another user, ended, none
def test_an_environment_that_no_ancestor_shows_is_told(
    parent: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process(tmp_path, 4700, environment={"REPLAYWATCH_PROBE": "0"})
    process(tmp_path, 4711, command="VLLM::EngineCore", environ=b"\0" * 900, parent=parent)
    read_bytes = Path.read_bytes

    def of_another_user(path: Path) -> bytes:
        if path == tmp_path / "4700/environ":
            raise PermissionError
        return read_bytes(path)

    monkeypatch.setattr(Path, "read_bytes", of_another_user)
    told = check("environment", tmp_path)
    assert (told.state, "takes every variable as unset" in told.sentence) == ("blind", True)


def test_an_empty_environment_is_not_an_overwritten_one(tmp_path: Path) -> None:
    process(tmp_path, environ=b"")
    assert all(c.name != "environment" for c in outside(read(4711, tmp_path)))


def test_a_process_that_is_not_there_or_not_ours_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ProbeError, match="no process 4712"):
        read(4712, process(tmp_path))
    process(tmp_path, 4713, state="Z (zombie)")
    with pytest.raises(ProbeError, match="no process 4713"):
        read(4713, tmp_path)
    tmp_path.chmod(0o600)
    user = os.geteuid()
    try:
        if user == 0:
            os.seteuid(65534)
        with pytest.raises(ProbeError, match="may not look into process 4711"):
            read(4711, tmp_path)
    finally:
        os.seteuid(user)
        tmp_path.chmod(0o700)


@contextmanager
def agent_in(proc: Path, mode: int = 0o666, folder_mode: int = 0o755) -> Iterator[Path]:
    """An agent's socket in a process's file system."""
    place = proc / "4711/root/run/replaywatch/agent.sock"
    with Listener(place):
        place.chmod(mode)
        place.parent.chmod(folder_mode)
        yield place


def test_the_socket_is_looked_for_in_its_own_file_system(tmp_path: Path) -> None:
    proc = process(tmp_path)
    assert check("agent", proc).state == "bad"
    with agent_in(proc):
        assert check("agent", proc).state == "ok"
    assert "no agent listens at /run/replaywatch/agent.sock" in check("agent", proc).sentence


@pytest.mark.parametrize(
    ("link", "target"),
    [("var/run", "/run"), ("var/run", "../../../run"), ("data", "/var/tmp/../../run"), ("l", "/srv/run")],
)
def test_links_lead_through_its_own_file_system(link: str, target: str, tmp_path: Path) -> None:
    proc = process(tmp_path)
    root = tmp_path / "4711/root"
    (root / "var/tmp").mkdir(parents=True)
    for name, leads_to in (("srv", "/"), (link, target)):
        (root / name).symlink_to(leads_to)
    reached = read(4711, proc).inside(f"/{link}/replaywatch")
    assert reached.samefile(root / "run/replaywatch")


def test_a_relative_path_begins_in_its_folder_and_stays_below_its_root(tmp_path: Path) -> None:
    proc = process(tmp_path)
    (tmp_path / "4711/cwd").symlink_to("root/run")
    for path in ("replaywatch", "../run/replaywatch", "../../../run/replaywatch"):
        assert read(4711, proc).inside(path).samefile(tmp_path / "4711/root/run/replaywatch")


def test_links_in_circles_are_one_sentence(tmp_path: Path) -> None:
    proc = process(tmp_path)
    (tmp_path / "4711/root/a").symlink_to("/a/b")
    with pytest.raises(ProbeError, match="the links in /a/x of process 4711 lead in circles"):
        read(4711, proc).inside("/a/x")


@pytest.mark.parametrize(("mode", "folder_mode"), [(0o660, 0o755), (0o666, 0o700)])
def test_a_socket_that_its_user_may_not_write_to_is_told(mode: int, folder_mode: int, tmp_path: Path) -> None:
    proc = process(tmp_path, user=os.geteuid() + 1000)
    with agent_in(proc, mode, folder_mode):
        assert "--socket-group" in check("agent", proc).sentence


def test_a_user_whom_the_agent_may_not_hear_is_told(tmp_path: Path) -> None:
    user = os.geteuid() + 1000
    proc = process(tmp_path, user=user)
    with agent_in(proc):
        told = [c.sentence for c in outside(read(4711, proc)) if c.name == "agent"]
    assert any(f"--allow-uids {user}" in sentence for sentence in told), told


@contextmanager
def serving(path: Path, probe: bool = True) -> Iterator[subprocess.Popen[str]]:
    """A process that replays, watched or not."""
    code = SERVES if probe else "import time; print('started', flush=True); time.sleep(60)"
    with subprocess.Popen(
        [sys.executable, "-c", code], env=program_environment(path, "2.13"), stdout=subprocess.PIPE, text=True
    ) as served:
        try:
            yield served
        finally:
            served.kill()


def connection(pid: int) -> str:
    return next((c.state for c in outside(read(pid)) if c.name == "connection"), "")


def test_a_probe_that_has_connected_is_seen(tmp_path: Path) -> None:
    with Listener(tmp_path / "agent.sock") as listener, serving(listener.path) as served:
        assert until(lambda: connection(served.pid) == "ok")


def test_a_process_without_a_probe_has_not_connected(tmp_path: Path) -> None:
    with Listener(tmp_path / "agent.sock") as listener, serving(listener.path, probe=False) as served:
        assert served.stdout
        assert served.stdout.readline() == "started\n"
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ours:
            ours.connect(str(listener.path))  # somebody else is connected
            assert connection(served.pid) == "blind"


def doctor(*arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "replaywatch.cli.main", "doctor", *map(str, arguments)],
        env=program_environment(Path("/none"), None),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_a_process_is_heard_in_the_place_of_its_agent(tmp_path: Path) -> None:
    path = tmp_path / "run/agent.sock"
    with serving(path) as served:
        done = doctor("--pid", served.pid, "--listen", "--seconds", 2)
        output = done.communicate(timeout=60)[0]
    assert f"pid {served.pid}: 1 graphs alive" in output
    assert f"blind graph nodes: pid {served.pid}" in output
    assert not path.parent.exists()


def test_the_place_is_left_when_the_doctor_is_ended(tmp_path: Path) -> None:
    path = tmp_path / "agent.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as gone:
        gone.bind(str(path))
    with serving(path, probe=False) as served:
        listens = doctor("--pid", served.pid, "--listen")
        assert listens.stdout
        assert any("from the process itself" in line for line in listens.stdout)
        listens.send_signal(signal.SIGTERM)
        listens.communicate(timeout=60)
    assert not path.exists()


def test_an_agent_is_never_driven_away(tmp_path: Path) -> None:
    with Listener(tmp_path / "agent.sock") as listener, serving(listener.path) as served:
        done = doctor("--pid", served.pid, "--listen")
        assert "an agent listens at" in done.communicate(timeout=60)[0]
        assert done.returncode == 2
        assert until(lambda: bool(listener.frames(0.1)))


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_SEQPACKET])
def test_a_socket_of_another_service_stays(kind: socket.SocketKind, tmp_path: Path) -> None:
    path = tmp_path / "other.sock"
    with socket.socket(socket.AF_UNIX, kind) as other, serving(path, probe=False) as served:
        other.bind(str(path))
        other.listen()
        done = doctor("--pid", served.pid, "--listen", "--seconds", 1)
        assert "cannot be listened at" in done.communicate(timeout=60)[0]
        assert done.returncode == 2
        with socket.socket(socket.AF_UNIX, kind) as client:
            client.connect(str(path))


def test_a_path_as_long_as_an_agent_takes_is_listened_at() -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        path = Path(folder) / ("x" * (MAX_PATH_BYTES - len(folder) - len("//a.sock"))) / "a.sock"
        assert len(str(path)) == MAX_PATH_BYTES
        with serving(path) as served:
            done = doctor("--pid", served.pid, "--listen", "--seconds", 2)
            assert f"pid {served.pid}: 1 graphs alive" in done.communicate(timeout=60)[0]
        assert os.listdir(folder) == []


def test_a_folder_that_was_made_in_vain_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "run" / ("x" * 200)
    with serving(path, probe=False) as served:
        done = doctor("--pid", served.pid, "--listen", "--seconds", 1)
        assert "cannot be listened at" in done.communicate(timeout=60)[0]
    assert os.listdir(tmp_path) == []


def test_silence_ends_with_the_process_and_is_told(tmp_path: Path) -> None:
    with serving(tmp_path / "run/agent.sock", probe=False) as served:
        listens = doctor("--pid", served.pid, "--listen", "--seconds", 50)
        assert listens.stdout
        assert any("from the process itself" in line for line in listens.stdout)
        served.kill()
        served.wait()
        begin_s = time.monotonic()
        assert "nothing was heard" in listens.communicate(timeout=60)[0]
        assert time.monotonic() - begin_s < 20
        assert listens.returncode == 2
    assert os.listdir(tmp_path) == []  # though no path through the process leads there any more


@pytest.mark.parametrize("wrong", [("--listen",), ("--pid", 1, "--", "true")])
def test_arguments_that_do_not_go_together_are_one_sentence(wrong: tuple[object, ...]) -> None:
    done = doctor(*wrong)
    assert done.communicate(timeout=60)[0].startswith("replaywatch: --")
    assert done.returncode == 2
