"""The doctor says before and after what is seen, and why not."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from probe.harness import program_environment, until
from replaywatch.agent.socket_place import MAX_PATH_BYTES
from replaywatch.contract.window import BlindSpot, Dispatch, ProbeCost, Window, Workload
from replaywatch.probe import doctor
from replaywatch.probe.doctor import Check


def states(checks: list[Check]) -> dict[str, str]:
    return {check.name: check.state for check in checks}


def host(folder: Path) -> Path:
    """A /proc of a host with one GPU."""
    card = folder / "proc/driver/nvidia/gpus/0000:01:00.0"
    card.mkdir(parents=True)
    (card / "information").write_text("Model: \t\t NVIDIA H200\nIRQ:   \t\t 0\n")
    (folder / "proc/driver/nvidia/version").write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.159.04\n")
    (folder / "proc/driver/nvidia/params").write_text("RmProfilingAdminOnly: 1\n")
    return folder / "proc"


def site(folder: Path, version: str) -> Path:
    (folder / "site/torch").mkdir(parents=True)
    (folder / "site/torch/version.py").write_text(f"__version__: str = '{version}'\n")
    cupti = folder / "site/nvidia/cu13/lib"
    cupti.mkdir(parents=True)
    (cupti / "libcupti.so.13").touch()
    return folder / "site"


def test_a_host_with_everything_is_ok(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as agent:
        agent.bind(str(tmp_path / "agent.sock"))
        checks = doctor.before(
            {"REPLAYWATCH_PROBE_SOCKET": str(tmp_path / "agent.sock")}, [site(tmp_path, "2.11.0+cu130")], host(tmp_path)
        )
    found = states(checks)
    assert found.pop("tracer") in ("ok", "blind")
    assert set(found.values()) == {"ok"}, checks
    text = " ".join(check.sentence for check in checks)
    assert "NVIDIA H200" in text
    assert "580.159.04" in text
    assert "tracing does not need them" in text


def test_a_bare_host_is_blind_and_says_what_to_do(tmp_path: Path) -> None:
    checks = doctor.before({"REPLAYWATCH_PROBE_SOCKET": str(tmp_path / "none.sock")}, [tmp_path], tmp_path)
    assert states(checks)["gpu"] == "blind"
    assert states(checks)["torch"] == "blind"
    agent = next(check for check in checks if check.name == "agent")
    assert agent.state == "bad"
    assert "replaywatch agent" in agent.sentence


def test_versions_decide_how_graphs_are_seen(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    assert states(doctor.before({}, [site(old, "2.3.1")], tmp_path))["torch"] == "bad"
    check = next(c for c in doctor.before({}, [site(new, "2.14.1+cu130")], tmp_path) if c.name == "torch")
    assert "torch's own capture hook" in check.sentence


def test_what_stands_in_the_way_is_named(tmp_path: Path) -> None:
    checks = doctor.before(
        {"CUDA_INJECTION64_PATH": "/opt/x.so", "TORCH_COMPILE_DISABLE": "1", "KINETO_USE_DAEMON": "0",
         "CUDA_LAUNCH_BLOCKING": "0",
         "REPLAYWATCH_PROBE_WINDOW_SECONDS": "soon"},
        [tmp_path], tmp_path,
    )  # fmt: skip
    sentences = {check.name: check.sentence for check in checks}
    assert "/opt/x.so" in sentences["injection"]
    variables = " ".join(check.sentence for check in checks if check.name == "environment")
    assert "TORCH_COMPILE_DISABLE" in variables
    assert "KINETO_USE_DAEMON" in variables  # Kineto only asks whether it is there
    assert "CUDA_LAUNCH_BLOCKING" not in variables
    assert "soon" in sentences["options"]


@pytest.mark.parametrize(("effect", "state"), [("note", "ok"), ("refuse_graph_level", "ok"), ("refuse", "blind")])
def test_what_is_known_of_a_cupti_is_said(
    effect: str, state: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cupti = tmp_path / "nvidia/cu13/lib/libcupti.so.13"
    cupti.parent.mkdir(parents=True)
    cupti.touch()
    note = {"effect": effect, "text": "known to be so", "source": "somewhere"}
    monkeypatch.setattr(doctor, "version_notes", lambda path: [note] if path == cupti else [])
    check = next(c for c in doctor.before({}, [tmp_path], tmp_path) if c.name == "cupti")
    assert (check.state, check.sentence.endswith("; known to be so")) == (state, True)


def test_a_file_in_the_place_of_the_socket_is_named(tmp_path: Path) -> None:
    (tmp_path / "agent.sock").touch()
    checks = doctor.before({"REPLAYWATCH_PROBE_SOCKET": str(tmp_path / "agent.sock")}, [], tmp_path)
    assert "is no datagram socket" in next(c for c in checks if c.name == "agent").sentence


def test_a_socket_that_nobody_listens_at_any_more_is_named(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as gone:
        gone.bind(str(tmp_path / "agent.sock"))
    checks = doctor.before({"REPLAYWATCH_PROBE_SOCKET": str(tmp_path / "agent.sock")}, [], tmp_path)
    assert "no agent listens" in next(c for c in checks if c.name == "agent").sentence


def test_a_path_that_the_agent_would_refuse_is_named(tmp_path: Path) -> None:
    path = f"/tmp/{'a' * (MAX_PATH_BYTES - 4)}"
    assert len(path) == doctor.MAX_SOCKET_PATH_BYTES + 1 == MAX_PATH_BYTES + 1
    agent = next(c for c in doctor.before({"REPLAYWATCH_PROBE_SOCKET": path}, [], tmp_path) if c.name == "agent")
    assert (agent.state, "has 101 bytes" in agent.sentence, "start it" in agent.sentence) == ("bad", True, False)
    shorter = doctor.before({"REPLAYWATCH_PROBE_SOCKET": path[:-1]}, [], tmp_path)
    assert "start it" in next(c for c in shorter if c.name == "agent").sentence


def test_after_repeats_what_the_process_cannot_see() -> None:
    window = Window(
        workload=Workload(pid=7, model_name="m"), start_ns=0, end_ns=2 * 10**9, origin="probe",
        dispatch=Dispatch(replays=9, live_graphs=2, steps={"full": 9, "eager": 1}),
        blind=(BlindSpot("kernels", "no tracer"),), cost=ProbeCost(errors=1, frames_dropped=2),
    )  # fmt: skip
    checks = doctor.after([window])
    assert [(c.name, c.state) for c in checks] == [
        ("graphs", "ok"), ("steps", "ok"), ("kernels", "blind"), ("probe", "bad")
    ]  # fmt: skip
    assert checks[0].sentence == "m, pid 7: 2 graphs alive, 9 replays in 2.0 s"
    assert checks[1].sentence == "m, pid 7: 9 full, 1 eager"


def watch(
    program: str, folder: Path, seconds: float = 30, command: tuple[str, ...] = (sys.executable, "-c")
) -> subprocess.Popen[str]:
    """`replaywatch doctor` at work on a program, which finds the stand-in torch."""
    return subprocess.Popen(
        [sys.executable, "-m", "replaywatch.cli.main", "doctor", "--seconds", str(seconds), "--", *command, program],
        env=program_environment(folder / "none.sock", "2.13"),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


SERVES = """
import sys, time, replaywatch.probe, torch
replaywatch.probe.start()
torch.cuda.init()
made = torch.cuda.CUDAGraph()
with torch.cuda.graph(made): pass
end = time.monotonic() + {seconds}
while time.monotonic() < end:
    made.replay()
    replaywatch.probe.record_step("full", batch=4)
    replaywatch.probe.record_step("eager", batch=1, phase="prefill")
    time.sleep(0.01)
"""


def test_a_process_with_a_window_for_each_phase_is_told_whole(tmp_path: Path) -> None:
    output, _ = watch(SERVES.format(seconds=2.5), tmp_path).communicate(timeout=60)
    replays = re.search(r"graphs: pid (\d+): 1 graphs alive, (\d+) replays in", output)
    assert replays, output
    assert int(replays[2]) > 30  # of all windows, not of the last one
    assert re.search(rf"steps: pid {replays[1]}: {replays[2]} full\n", output), output
    assert re.search(rf"steps: pid {replays[1]} \(prefill\): {replays[2]} eager\n", output), output
    assert "blind graph nodes: " in output


def ended(pid: int) -> bool:
    state = Path(f"/proc/{pid}/stat")
    return not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z"


@pytest.mark.parametrize("then", ["", "time.sleep(100)"])
def test_nothing_of_the_command_stays(then: str, tmp_path: Path) -> None:
    leaves = f"import subprocess, time; print(subprocess.Popen(['sleep', '100']).pid, flush=True); {then}"
    output, _ = watch(leaves, tmp_path, 1).communicate(timeout=60)
    left = int(re.findall(r"^(\d+)$", output, re.MULTILINE)[0])
    assert until(lambda: ended(left))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_nothing_of_the_command_stays_when_the_doctor_is_ended(number: signal.Signals, tmp_path: Path) -> None:
    ends = watch("echo $$; exec sleep 100", tmp_path, command=("bash", "-c"))
    assert ends.stdout
    left = next(int(line) for line in ends.stdout if line.strip().isdigit())
    ends.send_signal(number)
    assert "nothing was heard" in ends.communicate(timeout=60)[0]  # and what was heard so far is told
    assert until(lambda: ended(left))


def test_what_a_command_left_behind_is_heard(tmp_path: Path) -> None:
    (tmp_path / "serves.py").write_text(SERVES.format(seconds=1.5))
    script = f"{sys.executable} {tmp_path / 'serves.py'} &"
    output, _ = watch(script, tmp_path, command=("bash", "-c")).communicate(timeout=60)
    assert "1 graphs alive" in output


def test_a_frame_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    program = (
        "import os, socket\ns = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)\n"
        "s.connect(os.environ['REPLAYWATCH_PROBE_SOCKET'])\ns.send(b'{\"v\": 99}')"
    )
    output, _ = watch(program, tmp_path).communicate(timeout=60)
    assert "BAD   frames: cannot be read: wire version 99" in output


def test_what_cannot_be_watched_is_one_sentence(tmp_path: Path) -> None:
    done = watch("x", tmp_path, command=("no-such-command",))
    assert "cannot be started: No such file" in done.communicate(timeout=60)[0]
    assert done.returncode == 2
    done = watch("pass", tmp_path, seconds=float("nan"))
    assert done.communicate(timeout=60)[0].startswith("replaywatch: --seconds cannot be nan")
    output, _ = watch("pass", tmp_path, command=(sys.executable, "-I", "-c")).communicate(timeout=60)
    assert "-I ignores PYTHONPATH" in output
    assert "nothing was heard (it ended with status 0)" in output
