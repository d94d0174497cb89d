"""Ways in: `run`, the .pth file, and what is not covered."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from probe.harness import ROOT, STAND_INS, Listener, Pump, pythons
from replaywatch.contract.errors import ProbeError
from replaywatch.probe import launch

PROGRAM = (
    "import torch\ntorch.cuda.init()\nmade = torch.cuda.CUDAGraph()\nwith torch.cuda.graph(made): pass\n"
    "for _ in range(5): made.replay()\n"
)


def watched(command: list[str], folder: Path, **extra: str) -> tuple[list[dict[str, object]], str]:
    """Run a command under the launcher; the windows it sent, and its output."""
    base = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "REPLAYWATCH_STAND_IN": "2.13",
        "PYTHONPATH": str(STAND_INS),
    }
    with Listener(folder / "agent.sock") as listener:
        pump = Pump(listener)
        done = subprocess.run(
            command,
            env=launch.environment_for({"socket": str(listener.path)}, base | extra),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        frames = pump.stop()
    assert done.returncode == 0, done.stderr
    return [json.loads(frame)["windows"][0] for frame in frames], done.stdout + done.stderr


def replays(windows: list[dict[str, object]]) -> int:
    return sum(window["dispatch"]["replays"] for window in windows)  # type: ignore[index]


@pytest.mark.parametrize("python", pythons() or [sys.executable])
def test_python_is_watched_though_it_has_no_replaywatch(python: str, tmp_path: Path) -> None:
    windows, output = watched([python, "-c", PROGRAM], tmp_path)
    assert replays(windows) == 5
    assert output == ""


def test_scripts_and_children_of_all_kinds_are_watched(tmp_path: Path) -> None:
    program = tmp_path / "serve"
    program.write_text(f"#!{sys.executable}\n{PROGRAM}")
    program.chmod(0o755)
    script = tmp_path / "start.sh"
    script.write_text(
        f"#!/bin/sh\n{program}\n{sys.executable} -c 'import subprocess; subprocess.run([\"{program}\"])'\n"
    )
    windows, _ = watched(["sh", str(script)], tmp_path)
    assert replays(windows) == 10
    assert len({window["workload"]["pid"] for window in windows}) == 2  # type: ignore[index]


def test_multiprocessing_children_are_watched(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import multiprocessing\n"
        f"def work():\n    exec({PROGRAM!r})\n"
        "if __name__ == '__main__':\n"
        "    for method in ('fork', 'spawn', 'forkserver'):\n"
        "        process = multiprocessing.get_context(method).Process(target=work)\n"
        "        process.start(); process.join(); assert process.exitcode == 0\n"
    )
    windows, _ = watched([sys.executable, str(program)], tmp_path)
    assert replays(windows) == 15


def test_a_sitecustomize_that_was_there_still_runs(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "sitecustomize.py").write_text("import sys; sys.stdout.write('own ' + __name__ + ' ')\n")
    code = "import sitecustomize, sys; print(sitecustomize.__file__, any('entry' in p for p in sys.path))"
    _, output = watched(
        [sys.executable, "-c", code], tmp_path, PYTHONPATH=os.pathsep.join([str(tmp_path / "own"), str(STAND_INS)])
    )
    assert output == f"own sitecustomize {tmp_path / 'own' / 'sitecustomize.py'} False\n"


def test_the_path_of_the_watched_process_holds_nothing_of_ours(tmp_path: Path) -> None:
    _, output = watched(
        [sys.executable, "-c", "import sys; print([p for p in sys.path if 'replaywatch' in p])"], tmp_path
    )
    assert output == "[]\n"


@pytest.mark.parametrize("flag", ["-I", "-E", "-S"])
def test_what_is_not_covered_is_said(flag: str, tmp_path: Path) -> None:
    assert flag in launch.warnings_for([sys.executable, flag, "-c", "pass"])[0]
    windows, _ = watched([sys.executable, flag, "-c", "pass"], tmp_path)
    assert windows == []


def test_flags_of_the_program_are_not_pythons() -> None:
    assert launch.warnings_for(["python", "-m", "vllm", "-E"]) == []
    assert launch.warnings_for(["vllm", "serve", "-S"]) == []
    assert launch.warnings_for(["python", "-uE", "x.py"])
    assert launch.warnings_for(["sudo", "python"])


def test_an_injection_that_is_set_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tracer = tmp_path / "tracer.so"
    tracer.touch()
    monkeypatch.setenv("REPLAYWATCH_TRACER_LIBRARY", str(tracer))
    changed = launch.environment_for({}, {"CUDA_INJECTION64_PATH": "/opt/other.so"}, inject=True)
    assert changed["CUDA_INJECTION64_PATH"] == str(tracer)
    assert changed["REPLAYWATCH_CHAIN_INJECTION"] == "/opt/other.so"
    again = launch.environment_for({}, changed, inject=True)
    assert again["REPLAYWATCH_CHAIN_INJECTION"] == "/opt/other.so"
    assert again["PYTHONPATH"] == str(launch.ENTRY)


def test_an_injection_that_keeps_kernels_from_being_traced_is_said() -> None:
    environment = {"CUDA_INJECTION64_PATH": "/opt/other.so"}
    (warning,) = launch.warnings_for(["server"], environment, inject=True)
    assert "/opt/other.so" in warning
    assert launch.warnings_for(["server"], environment) == []
    own = {"CUDA_INJECTION64_PATH": str(launch.find_library())}
    assert launch.warnings_for(["server"], own, inject=True) == []


def test_no_tracer_to_inject_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "find_library", lambda: None)
    with pytest.raises(ProbeError, match="no native tracer"):
        launch.environment_for({}, {}, inject=True)


def test_options_become_variables_and_unknown_ones_are_errors() -> None:
    changed = launch.environment_for({"window_seconds": 2.0, "kernels": False, "component": None}, {})
    assert changed["REPLAYWATCH_PROBE_WINDOW_SECONDS"] == "2.0"
    assert changed["REPLAYWATCH_PROBE_KERNELS"] == "false"
    assert "REPLAYWATCH_PROBE_COMPONENT" not in changed
    with pytest.raises(ProbeError, match="has no option 'speed'"):
        launch.environment_for({"speed": 1}, {})


def test_a_command_that_is_not_there_is_an_error() -> None:
    with pytest.raises(ProbeError, match="was not found"):
        launch.run(["no-such-command-anywhere"])
    with pytest.raises(ProbeError, match="no command was given"):
        launch.run([])


def test_run_becomes_the_command(tmp_path: Path) -> None:
    code = "from replaywatch.probe import launch; launch.run(['sh', '-c', 'echo $REPLAYWATCH_PROBE; exit 7'])"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(ROOT / "agent"), "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (7, "1\n")


def make_environment(folder: Path) -> Path:
    """A virtual environment with the .pth file, and the site-packages it is in."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    site = next(folder.glob("lib/python*/site-packages"))
    launch.install_pth(site)
    (site / "packages.pth").write_text(f"{ROOT / 'agent'}\n{STAND_INS}\n")
    return folder / "bin" / "python"


def test_the_pth_starts_only_when_asked_and_costs_nothing_else(tmp_path: Path) -> None:
    python = make_environment(tmp_path / "venv")
    code = "import sys; print('replaywatch.probe' in sys.modules)"
    for value, started in (("1", "True"), ("0", "False"), ("", "False")):
        done = subprocess.run([python, "-c", code], env={"REPLAYWATCH_PROBE": value}, capture_output=True, text=True)
        assert (done.stdout.strip(), done.stderr) == (started, "")
    begin = time.perf_counter()
    for _ in range(1000):
        exec(launch.PTH_TEXT)
    assert (time.perf_counter() - begin) / 1000 < 0.001


def test_the_pth_watches_a_process(tmp_path: Path) -> None:
    python = make_environment(tmp_path / "venv")
    with Listener(tmp_path / "agent.sock") as listener:
        subprocess.run(
            [python, "-c", PROGRAM],
            env={
                "REPLAYWATCH_PROBE": "1",
                "REPLAYWATCH_PROBE_SOCKET": str(listener.path),
                "REPLAYWATCH_STAND_IN": "2.9",
            },
            check=True,
        )
        assert replays([json.loads(frame)["windows"][0] for frame in listener.frames()]) == 5


def test_a_broken_installation_does_not_stop_python(tmp_path: Path) -> None:
    python = make_environment(tmp_path / "venv")
    site = next((tmp_path / "venv").glob("lib/python*/site-packages"))
    (site / "packages.pth").unlink()
    done = subprocess.run([python, "-c", "print(1)"], env={"REPLAYWATCH_PROBE": "1"}, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "1\n", "")


def test_a_folder_that_is_none_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ProbeError, match="is no folder"):
        launch.install_pth(tmp_path / "absent")
