"""The programs of the images, installed by the Dockerfile's own steps, start and answer; the tracer is really built."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import urllib.request
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from deploy.conftest import run_step
from deploy.programs import DEPLOY

pytestmark = pytest.mark.slow


@contextmanager
def running(prefix: Path, folder: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """The installed program, as an image starts it, with a home that holds nothing."""
    site = next((prefix / "lib").glob("python3*/site-packages"))
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "PYTHONPATH": str(site)}
    environment["PYTHONDONTWRITEBYTECODE"] = "1"
    command = [getattr(sys, "_base_executable", sys.executable), str(prefix / "bin" / "replaywatch"), *arguments]
    process = subprocess.Popen(command, env=environment, cwd=folder, stderr=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=20)


def installed(context: Path, wheels: Path, extra: str, prefix: Path) -> Path:
    run_step(context, "install-program.sh", wheels, extra, DEPLOY / "images" / "constraints.txt", prefix)
    return prefix


def address_in(process: subprocess.Popen[str]) -> str:
    """The first http address that a server's log names."""
    assert process.stderr is not None
    said = []
    for line in process.stderr:
        said.append(line)
        words = [word for word in line.split() if word.startswith("http://")]
        if words:
            return words[0].rstrip(",")
    raise AssertionError("the server ended without an address:\n" + "".join(said))


def test_the_collector_image_holds_a_collector_that_serves(context: Path, wheels: Path, tmp_path: Path) -> None:
    prefix = installed(context, wheels, "server,postgres,bus", tmp_path / "install")
    with running(prefix, tmp_path, "collector", "--port", "0", "--store", f"sqlite:///{tmp_path}/a.db") as process:
        url = address_in(process)
        deadline = time.monotonic() + 30
        while True:
            try:
                with urllib.request.urlopen(f"{url}/healthz", timeout=5) as answer:
                    assert answer.status == 200
                break
            except OSError:
                assert time.monotonic() < deadline
    assert process.returncode == 0
    with running(prefix, tmp_path, "admission") as webhook:
        assert "--tls-certificate is missing" in webhook.communicate(timeout=20)[1]


def test_the_agent_image_holds_an_agent_that_follows_engine_logs(context: Path, wheels: Path, tmp_path: Path) -> None:
    prefix = installed(context, wheels, "agent", tmp_path / "install")
    log = tmp_path / "engine.log"
    log.write_text("INFO 11-29 17:27:45 [gpu_model_runner.py:6244] Graph capturing finished in 3 secs, took 0.42 GiB\n")
    options = ["--socket", str(tmp_path / "agent.sock"), "--listen", "127.0.0.1:0", "--engine-log", str(log)]
    with (
        running(prefix, tmp_path, "agent", *options) as process,
        urllib.request.urlopen(address_in(process), timeout=5) as answer,
    ):
        assert b"replaywatch_" in answer.read()
    assert process.returncode == 0


def test_a_wheel_with_a_compiler_holds_the_native_tracer(context: Path, tmp_path: Path) -> None:
    run_step(context, "build-wheel.sh", tmp_path)
    wheel = next(tmp_path.glob("*.whl"))
    assert "replaywatch/probe/libreplaywatch_tracer.so" in zipfile.ZipFile(wheel).namelist()
    assert wheel.name.endswith("py3-none-linux_x86_64.whl")


def test_an_image_is_not_built_without_the_tracer_by_accident(context: Path, tmp_path: Path) -> None:
    environment = os.environ | {"PYTHON": sys.executable, "CXX": "/bin/false", "CC": "/bin/false"}
    script = str(DEPLOY / "images" / "build-wheel.sh")
    done = subprocess.run(
        ["sh", script, str(tmp_path)],
        cwd=context,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 1
    assert "has no native tracer" in done.stderr
