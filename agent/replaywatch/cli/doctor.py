"""`replaywatch doctor [-- COMMAND...]`"""

from __future__ import annotations

import argparse
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from replaywatch.cli.run import command_of
from replaywatch.contract.errors import ConfigurationError, ProbeError, WireError
from replaywatch.contract.window import Window, merge_windows
from replaywatch.contract.wire import decode
from replaywatch.probe import doctor, launch
from replaywatch.probe.settings import Value

MARKS: Final = {"ok": "ok   ", "blind": "blind", "bad": "BAD  "}
WINDOW_SECONDS: Final = 1.0
# How long each signal has until the next, harder one.
END_SECONDS: Final = 10.0
MAX_SECONDS: Final = 86_400.0
SILENCE: Final = "it used no CUDA, ended too soon, or starts Python in a way that loses the environment, as `python -I` does"
# Process (by what stands before the number in its frames' keys), component, phase.
Speaker = tuple[str, str, str]


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments."""
    parser.add_argument(
        "--seconds", type=float, default=30.0, help="how long to watch the command before it is ended (default: 30)"
    )
    parser.add_argument(
        "watched", nargs=argparse.REMAINDER, metavar="-- COMMAND", help="also run this, and say what was seen of it"
    )


def main(arguments: argparse.Namespace) -> int:
    """Exit status 1 when something has to be changed, 2 when a command was run and nothing was heard of it.

    Raises: ConfigurationError for a time that cannot be, ProbeError for a command that cannot be run.
    """
    if not 0 < arguments.seconds <= MAX_SECONDS:
        raise ConfigurationError(f"--seconds cannot be {arguments.seconds:g}: give more than 0, at most a day")
    command = command_of(arguments.watched)
    if command and shutil.which(command[0]) is None:
        raise ProbeError(f"the command {command[0]!r} was not found on PATH")
    checks = doctor.before()
    print("on this host")
    _print(checks)
    if not command:
        return _status(checks)
    print(f"\nin {' '.join(command)[:80]}, over at most {arguments.seconds:g} s", flush=True)
    heard, ended = _watch(command, arguments.seconds)
    seen = [
        *(doctor.Check("probe", "blind", warning) for warning in launch.warnings_for(command)),
        *doctor.after(heard.windows.values()),
        *(doctor.Check("frames", "bad", f"cannot be read: {reason}") for reason in heard.refused),
    ]
    if not heard.windows:
        seen.append(doctor.Check("probe", "bad", f"nothing was heard ({ended}); {SILENCE}"))
    _print(seen)
    return _status([*checks, *seen]) if heard.windows else 2


@dataclass(slots=True)
class Heard:
    """What processes said: for each of them, by component and phase, all windows as one; `refused` why frames were not.

    Counts are sums; what was blind is as the last window has it.
    """

    windows: dict[Speaker, Window] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)

    def take(self, frame: bytes) -> None:
        """Add one frame."""
        try:
            batch = decode(frame)
        except WireError as error:
            self.refused.add(str(error))
            return
        process = batch.key.rstrip("0123456789")
        for window in batch.windows:
            who = (process, window.workload.component or "", window.workload.phase or "")
            earlier = self.windows.get(who)
            merged = window if earlier is None else merge_windows(earlier, window)
            self.windows[who] = replace(merged, blind=window.blind)


def _watch(command: list[str], seconds: float) -> tuple[Heard, str]:
    """What the processes of a command said, and how it ended."""
    with tempfile.TemporaryDirectory(prefix="replaywatch-doctor-") as folder:
        path = Path(folder) / "agent.sock"
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as inlet:
            inlet.bind(str(path))
            options: dict[str, Value] = {"socket": str(path), "window_seconds": WINDOW_SECONDS}
            for number in (signal.SIGTERM, signal.SIGHUP):  # also then nothing of the command may stay
                signal.signal(number, lambda number, _: sys.exit(128 + number))
            child = subprocess.Popen(command, env=launch.environment_for(options), start_new_session=True)
            try:
                heard = _listen(inlet, lambda: _runs(child), time.monotonic() + seconds)
                status = child.poll()
            finally:
                _end(child)
    return heard, "it ran until it was ended" if status is None else f"it ended with status {status}"


def _listen(inlet: socket.socket, runs: Callable[[], bool], end_s: float) -> Heard:
    """Take frames until a time on the monotonic clock, or until nothing runs and nothing is left."""
    heard = Heard()
    while time.monotonic() < end_s:
        running = runs()  # asked first, so that what it said last is still taken
        if select.select([inlet], [], [], 0.2)[0]:
            heard.take(inlet.recv(1 << 20))
        elif not running:
            break
    return heard


def _end(child: subprocess.Popen[bytes]) -> None:
    """Ask all that the command started to end, then insist."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        end_s = time.monotonic() + END_SECONDS
        if _runs(child):
            with suppress(ProcessLookupError):
                os.killpg(child.pid, number)
        while _runs(child) and time.monotonic() < end_s:
            time.sleep(0.05)


def _runs(child: subprocess.Popen[bytes]) -> bool:
    """Whether a process of the command's group lives, be it the command itself or what it left behind."""
    return child.poll() is None or any(_group_of(folder) == child.pid for folder in Path("/proc").glob("[0-9]*"))


def _group_of(folder: Path) -> int | None:
    """The process group of a folder in /proc; None when the process has ended."""
    try:
        state, _parent, group = (folder / "stat").read_text().rpartition(")")[2].split()[:3]
    except OSError:
        return None
    return None if state in "ZX" else int(group)


def _print(checks: list[doctor.Check]) -> None:
    for check in checks:
        print(f"  {MARKS[check.state]} {check.name}: {check.sentence}")


def _status(checks: list[doctor.Check]) -> int:
    return 1 if any(check.state == "bad" for check in checks) else 0
