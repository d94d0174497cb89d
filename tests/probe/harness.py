"""Runs small programs under the probe in processes of their own, and hears what they send to a real unix socket."""

from __future__ import annotations

import os
import select
import shutil
import socket
import subprocess
import sys
import textwrap
import time
from pathlib import Path

from replaywatch.contract.window import Window, merge_windows
from replaywatch.contract.wire import Batch, decode

ROOT = Path(__file__).resolve().parents[2]
STAND_INS = Path(__file__).parent / "stand_ins"
GENERATIONS = ("2.4", "2.7", "2.9", "2.11", "2.13", "2.14")


class Listener:
    """The agent's end of the socket."""

    def __init__(self, path: Path, buffer_bytes: int | None = None) -> None:
        self.path = path
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        if buffer_bytes:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_bytes)
        self.socket.bind(str(path))

    def frames(self, wait_s: float = 0.0) -> list[bytes]:
        """All frames that are there, waiting for the first."""
        found = []
        while select.select([self.socket], [], [], 0 if found else wait_s)[0]:
            found.append(self.socket.recv(1 << 20))
        return found

    def batches(self, wait_s: float = 0.0) -> list[Batch]:
        """The same, decoded with the contract."""
        return [decode(frame) for frame in self.frames(wait_s)]

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Listener:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def program_environment(listener: Listener | Path, torch: str | None, **extra: str) -> dict[str, str]:
    """The environment of a program under the probe, with a stand-in for a torch where one is named."""
    path = listener if isinstance(listener, Path) else listener.path
    parts = [str(ROOT / "agent"), *([str(STAND_INS)] if torch else [])]
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("REPLAYWATCH", "PYTHONPATH"))}
    return kept | {
        "PYTHONPATH": os.pathsep.join(parts),
        "PYTHONWARNINGS": "error",
        "REPLAYWATCH_PROBE_SOCKET": str(path),
        "REPLAYWATCH_PROBE_WINDOW_SECONDS": "0.1",
        "REPLAYWATCH_PROBE_KERNELS": "1",
        **({"REPLAYWATCH_STAND_IN": torch} if torch else {}),
        **extra,
    }


def run(
    code: str, listener: Listener | Path, torch: str | None = "2.13", python: str = sys.executable, **extra: str
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end; it must leave with status 0 and write nothing to its error output."""
    done = subprocess.run(
        [python, "-c", textwrap.dedent(code)],
        env=program_environment(listener, torch, **extra),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done


def merged(batches: list[Batch]) -> Window:
    """All windows of a program as one."""
    windows = [window for batch in batches for window in batch.windows]
    assert windows, "no window arrived"
    whole = windows[0]
    for window in windows[1:]:
        whole = merge_windows(whole, window)
    return whole


def seen(code: str, folder: Path, torch: str | None = "2.13", **extra: str) -> Window:
    """Run a program, and all that its probe said as one window."""
    with Listener(folder / "agent.sock") as listener:
        pump = Pump(listener)
        try:
            run(code, listener, torch, **extra)
        finally:
            frames = pump.stop()
        return merged([decode(frame) for frame in frames])


class Pump:
    """Takes frames while a program runs: the kernel keeps only ten."""

    def __init__(self, listener: Listener) -> None:
        import threading

        self._listener, self._frames, self._on = listener, [], True
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while self._on:
            self._frames += self._listener.frames(0.02)

    def stop(self) -> list[bytes]:
        self._on = False
        self._thread.join()
        return self._frames + self._listener.frames()


def until(condition: object, timeout_s: float = 5.0) -> bool:
    """Poll a condition for a while."""
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        if condition():  # type: ignore[operator]
            return True
        time.sleep(0.01)
    return False


def pythons() -> list[str]:
    """The interpreters 3.10 to 3.13 that are on PATH or under ~/.pyenv."""
    found = []
    for version in ("3.10", "3.11", "3.12", "3.13"):
        own = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python{version}"))
        path = str(own[-1]) if own else shutil.which(f"python{version}")
        if path:
            found.append(path)
    return found
