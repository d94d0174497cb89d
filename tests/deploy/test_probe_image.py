"""The probe image's content, filled into a volume as its init container does, starts in a Python that has nothing."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from admission.pods import container, pod
from admission.rules import patched, question
from deploy.programs import DEPLOY, output_of, program
from probe.harness import STAND_INS, Listener, Pump
from replaywatch.admission.changes import Additions
from replaywatch.admission.review import review
from replaywatch.probe.launch import PTH_NAME, PTH_TEXT

FILL = DEPLOY / "images" / "fill-volume.sh"
PLAIN_PYTHON = getattr(sys, "_base_executable", sys.executable)
PROGRAM = (
    "import torch\ntorch.cuda.init()\nmade = torch.cuda.CUDAGraph()\nwith torch.cuda.graph(made): pass\n"
    "for _ in range(5): made.replay()\n"
    "import replaywatch.probe; print(replaywatch.probe.__file__)\n"
)


def fill(probe: Path, volume: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", str(FILL), str(volume)],
        env={"PATH": os.environ["PATH"], "PROBE_SOURCE": str(probe)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def content(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.fixture
def volume(probe: Path, tmp_path: Path) -> Path:
    """A volume that the init container filled."""
    folder = tmp_path / "volume"
    folder.mkdir()
    done = fill(probe, folder)
    assert done.returncode == 0, done.stderr
    assert (folder / "VERSION").read_text().strip() in done.stdout
    return folder


def replays_sent(command: list[str], folder: Path, **environment: str) -> tuple[int, str]:
    """Replays in the windows that a command sent to a real socket, and what it printed."""
    base = {"PATH": os.environ["PATH"], "HOME": str(folder), "REPLAYWATCH_STAND_IN": "2.13"}
    with Listener(folder / "agent.sock") as listener:
        pump = Pump(listener)
        done = subprocess.run(
            command,
            env=base | {"REPLAYWATCH_PROBE_SOCKET": str(listener.path)} | environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        frames = pump.stop()
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return sum(json.loads(frame)["windows"][0]["dispatch"]["replays"] for frame in frames), done.stdout


def test_only_the_probe_and_the_contract_are_in_the_image(probe: Path) -> None:
    assert {p.name for p in probe.iterdir()} == {"replaywatch", PTH_NAME, "replaywatch-run", "VERSION"}
    assert {p.name for p in (probe / "replaywatch").iterdir()} == {"contract", "probe"}
    assert (probe / PTH_NAME).read_text() == PTH_TEXT
    assert not list(probe.rglob("__pycache__"))


def test_a_python_without_any_package_is_watched_from_the_volume(volume: Path, tmp_path: Path) -> None:
    entry = volume / "replaywatch" / "probe" / "entry"
    path = os.pathsep.join([str(entry), str(STAND_INS)])
    count, printed = replays_sent([PLAIN_PYTHON, "-c", PROGRAM], tmp_path, PYTHONPATH=path, REPLAYWATCH_PROBE="1")
    assert count == 5
    assert printed.strip() == str(volume / "replaywatch" / "probe" / "__init__.py")


def test_the_launcher_keeps_the_path_that_an_image_sets(volume: Path, tmp_path: Path) -> None:
    command = [str(volume / "replaywatch-run"), PLAIN_PYTHON, "-c", PROGRAM]
    count, printed = replays_sent(command, tmp_path, PYTHONPATH=str(STAND_INS))
    assert count == 5
    assert str(volume) in printed


def test_a_container_with_what_the_webhook_adds_is_watched(volume: Path, tmp_path: Path) -> None:
    """The environment is the patched pod's; its two folders are where this test mounted them."""
    sent = pod(container(env=[{"name": "PYTHONPATH", "value": str(STAND_INS)}]))
    additions = Additions("replaywatch/probe:0.1.0", "IfNotPresent", "/run/replaywatch", 65532)
    made = patched(sent, json.loads(review(json.dumps(question(sent)).encode(), additions).body))
    mounts = {m["mountPath"] for m in made["spec"]["containers"][0]["volumeMounts"]}
    assert mounts == {"/opt/replaywatch", "/run/replaywatch"}
    here = {"/opt/replaywatch": str(volume), "/run/replaywatch": str(tmp_path)}
    environment = {e["name"]: e["value"] for e in made["spec"]["containers"][0]["env"]}
    for mounted, folder in here.items():
        environment = {name: value.replace(mounted, folder) for name, value in environment.items()}
    count, printed = replays_sent([PLAIN_PYTHON, "-c", PROGRAM], tmp_path, **environment)
    assert count == 5
    assert printed.strip() == str(volume / "replaywatch" / "probe" / "__init__.py")


def test_the_launcher_without_a_command_says_what_to_give(volume: Path) -> None:
    done = subprocess.run([str(volume / "replaywatch-run")], capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode == 2
    assert "give a command" in done.stderr


def test_a_site_packages_folder_with_the_pth_file_starts_the_probe(probe: Path, tmp_path: Path) -> None:
    output_of([PLAIN_PYTHON, "-m", "venv", "--without-pip", str(tmp_path / "venv")])
    site = next((tmp_path / "venv" / "lib").glob("python3*/site-packages"))
    shutil.copytree(probe / "replaywatch", site / "replaywatch")
    shutil.copy(probe / PTH_NAME, site / PTH_NAME)
    python = str(tmp_path / "venv" / "bin" / "python")
    count, printed = replays_sent(
        [python, "-c", PROGRAM], tmp_path, PYTHONPATH=str(STAND_INS), REPLAYWATCH_PROBE="1"
    )  # fmt: skip
    assert count == 5
    assert printed.strip().startswith(str(site))


def test_a_second_run_of_the_init_container_leaves_the_same(probe: Path, volume: Path) -> None:
    before = content(volume)
    (volume / "replaywatch" / "probe" / "left_over_of_an_older_version.py").write_text("")
    assert fill(probe, volume).returncode == 0
    assert content(volume) == before


def test_a_volume_that_cannot_be_written_is_named(probe: Path, tmp_path: Path) -> None:
    done = fill(probe, tmp_path / "nothing")
    assert done.returncode == 1
    assert "mount a volume there" in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="chroot needs root")
def test_busybox_as_an_unprivileged_user_in_a_root_it_cannot_write_fills_the_volume(
    probe: Path, tmp_path: Path
) -> None:
    busybox = program("busybox", "busybox-static")
    root = tmp_path / "root"
    (root / "bin").mkdir(parents=True)
    shutil.copy(busybox, root / "bin" / "busybox")
    for name in ("sh", "cp", "mv", "rm", "mkdir", "cat", "id"):
        (root / "bin" / name).symlink_to("busybox")
    shutil.copytree(probe, root / "probe")
    shutil.copy(FILL, root / "fill-volume.sh")
    volume = root / "opt" / "replaywatch"
    volume.mkdir(parents=True)
    os.chown(volume, 65532, 65532)
    within = ["/bin/sh", "/fill-volume.sh", "/opt/replaywatch"]
    output_of([program("chroot", "coreutils"), "--userspec=65532:65532", "--groups=", str(root), *within])
    assert content(volume) == content(probe)
