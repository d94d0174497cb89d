"""Prometheus' and Alertmanager's programs where they are installed, and servers of them on loopback."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

PROMTOOL = shutil.which("promtool")
PROMETHEUS = shutil.which("prometheus")
ALERTMANAGER = shutil.which("prometheus-alertmanager") or shutil.which("alertmanager")
AMTOOL = shutil.which("amtool")

needs_amtool = pytest.mark.skipif(AMTOOL is None, reason="amtool is not installed (Debian: prometheus-alertmanager)")
needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed (Debian: prometheus)")
needs_servers = pytest.mark.skipif(
    PROMETHEUS is None or ALERTMANAGER is None,
    reason="Prometheus or Alertmanager is not installed (Debian: prometheus, prometheus-alertmanager)",
)
needs_prometheus = pytest.mark.skipif(PROMETHEUS is None, reason="Prometheus is not installed (Debian: prometheus)")


def promtool(*arguments: str | Path) -> str:
    """What promtool says. Raises: AssertionError with its words when it is not content."""
    done = subprocess.run([str(PROMTOOL), *map(str, arguments)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def free_port() -> int:
    """A port that nobody has now."""
    with socket.create_server(("127.0.0.1", 0)) as one:
        port: int = one.getsockname()[1]
        return port


@contextmanager
def server(command: list[str], ready_url: str, log: Path) -> Iterator[None]:
    """A program that runs until the block ends. Raises: AssertionError with its log when it does not get ready."""
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out)
        try:
            end = time.monotonic() + 30
            while not _answers(ready_url):
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < end, log.read_text()
                time.sleep(0.05)
            yield
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


class Prometheus:
    """A running Prometheus."""

    def __init__(self, url: str) -> None:
        self.url = url

    def query(self, expr: str, at: float | None = None) -> list[dict[str, Any]]:
        """Samples of an instant query. Raises: AssertionError for an expression that it refuses."""
        given = {"query": expr} | ({"time": str(at)} if at is not None else {})
        found: list[dict[str, Any]] = self._get("/api/v1/query", given)["result"]
        return found

    def exemplars(self, expr: str) -> list[dict[str, Any]]:
        """Exemplars of the last hour of the series that an expression reads, with the series' labels."""
        now = time.time()
        found: list[dict[str, Any]] = self._get(
            "/api/v1/query_exemplars", {"query": expr, "start": str(now - 3600), "end": str(now + 60)}
        )
        return found

    def alerts(self) -> list[dict[str, Any]]:
        """Alerts that are pending or firing."""
        found: list[dict[str, Any]] = self._get("/api/v1/alerts", {})["alerts"]
        return found

    def targets(self) -> list[dict[str, Any]]:
        """Scraped targets."""
        found: list[dict[str, Any]] = self._get("/api/v1/targets", {})["activeTargets"]
        return found

    def _get(self, path: str, given: Mapping[str, str]) -> Any:
        try:
            with urllib.request.urlopen(f"{self.url}{path}?{urllib.parse.urlencode(given)}", timeout=20) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{given}: {error.read().decode()}") from None


@contextmanager
def prometheus(folder: Path, config: str) -> Iterator[Prometheus]:
    """A Prometheus with a configuration, on a free port and in a folder of its own."""
    file = folder / "prometheus.yml"
    file.write_text(config)
    url = f"http://127.0.0.1:{free_port()}"
    command = [
        str(PROMETHEUS),
        f"--config.file={file}",
        f"--storage.tsdb.path={folder / 'tsdb'}",
        f"--web.listen-address={url.removeprefix('http://')}",
        "--enable-feature=exemplar-storage",
        "--log.level=warn",
    ]
    with server(command, f"{url}/-/ready", folder / "prometheus.log"):
        yield Prometheus(url)


@contextmanager
def alertmanager(folder: Path, config: str) -> Iterator[str]:
    """An Alertmanager with a configuration; its address."""
    file = folder / "alertmanager.yml"
    file.write_text(config)
    url = f"http://127.0.0.1:{free_port()}"
    command = [
        str(ALERTMANAGER),
        f"--config.file={file}",
        f"--storage.path={folder / 'alertmanager'}",
        f"--web.listen-address={url.removeprefix('http://')}",
        "--cluster.listen-address=",
        "--log.level=warn",
    ]
    with server(command, f"{url}/-/ready", folder / "alertmanager.log"):
        yield url


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:
            return bool(answer.status == 200)
    except (OSError, urllib.error.HTTPError):
        return False
