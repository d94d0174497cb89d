"""The doctor says before and after what is seen, and why not."""

from __future__ import annotations

import socket
from pathlib import Path

from replaywatch.contract.window import BlindSpot, Dispatch, ProbeCost, Window, Workload
from replaywatch.contract.wire import Batch
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
         "REPLAYWATCH_PROBE_WINDOW_SECONDS": "soon"},
        [tmp_path], tmp_path,
    )  # fmt: skip
    sentences = {check.name: check.sentence for check in checks}
    assert "/opt/x.so" in sentences["injection"]
    assert "TORCH_COMPILE_DISABLE" in sentences["environment"]
    assert "KINETO_USE_DAEMON" not in sentences["environment"]
    assert "soon" in sentences["options"]


def test_a_file_in_the_place_of_the_socket_is_named(tmp_path: Path) -> None:
    (tmp_path / "agent.sock").touch()
    checks = doctor.before({"REPLAYWATCH_PROBE_SOCKET": str(tmp_path / "agent.sock")}, [], tmp_path)
    assert "is no socket" in next(c for c in checks if c.name == "agent").sentence


def test_after_repeats_what_the_process_cannot_see() -> None:
    window = Window(
        workload=Workload(pid=7), start_ns=0, end_ns=1, origin="probe",
        dispatch=Dispatch(replays=9, live_graphs=2), blind=(BlindSpot("kernels", "no tracer"),),
        cost=ProbeCost(errors=1, frames_dropped=2),
    )  # fmt: skip
    checks = doctor.after(Batch(key="k", sent_ns=0, windows=(window,)))
    assert [(c.name, c.state) for c in checks] == [("graphs", "ok"), ("kernels", "blind"), ("probe", "bad")]
    assert "2 graphs alive, 9 replays" in checks[0].sentence
