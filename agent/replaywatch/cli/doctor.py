"""`replaywatch doctor [-- COMMAND...]`"""

from __future__ import annotations

import argparse
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from replaywatch.cli.run import command_of
from replaywatch.contract.errors import WireError
from replaywatch.contract.wire import Batch, decode
from replaywatch.probe import doctor, launch
from replaywatch.probe.settings import Value

MARKS = {"ok": "ok   ", "blind": "blind", "bad": "BAD  "}
WINDOW_SECONDS = 1.0
END_SECONDS = 10.0


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments."""
    parser.add_argument(
        "--seconds", type=float, default=30.0, help="how long to watch the command before it is ended (default: 30)"
    )
    parser.add_argument(
        "watched", nargs=argparse.REMAINDER, metavar="-- COMMAND", help="also run this, and say what was seen of it"
    )


def main(arguments: argparse.Namespace) -> int:
    """Exit status 1 when something has to be changed, 2 when a command was run and nothing was heard of it."""
    checks = doctor.before()
    print("on this host")
    _print(checks)
    command = command_of(arguments.watched)
    if not command:
        return _status(checks)
    print(f"\nin {' '.join(command)[:80]}, over at most {arguments.seconds:g} s")
    heard = _watch(command, arguments.seconds)
    if not heard:
        print("  BAD   probe: nothing was heard; the command ended too soon, or starts Python in a way that loses the")
        print("        environment (see `replaywatch run --help`)")
        return 2
    for _pid, batch in sorted(heard.items()):
        seen = doctor.after(batch)
        _print(seen)
        checks += seen
    return _status(checks)


def _watch(command: list[str], seconds: float) -> dict[int, Batch]:
    """The last frame of every process below a command, by process id."""
    with tempfile.TemporaryDirectory(prefix="replaywatch-doctor-") as folder:
        path = Path(folder) / "agent.sock"
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as inlet:
            inlet.bind(str(path))
            options: dict[str, Value] = {"socket": str(path), "window_seconds": WINDOW_SECONDS}
            child = subprocess.Popen(command, env=launch.environment_for(options), start_new_session=True)
            try:
                return _listen(inlet, child, time.monotonic() + seconds)
            finally:
                _end(child)


def _listen(inlet: socket.socket, child: subprocess.Popen[bytes], end_s: float) -> dict[int, Batch]:
    heard: dict[int, Batch] = {}
    while time.monotonic() < end_s:
        ready = select.select([inlet], [], [], 0.2)[0]
        if ready:
            with suppress(WireError):
                batch = decode(inlet.recv(1 << 20))
                if batch.windows:
                    heard[batch.windows[0].workload.pid or 0] = batch
        elif child.poll() is not None:
            break
    return heard


def _end(child: subprocess.Popen[bytes]) -> None:
    """Ask the command's process group to end, then insist."""
    for number in (signal.SIGINT, signal.SIGKILL):
        if child.poll() is None:
            with suppress(ProcessLookupError):
                child.send_signal(number)
            with suppress(subprocess.TimeoutExpired):
                child.wait(END_SECONDS)


def _print(checks: list[doctor.Check]) -> None:
    for check in checks:
        print(f"  {MARKS[check.state]} {check.name}: {check.sentence}", file=sys.stdout)


def _status(checks: list[doctor.Check]) -> int:
    return 1 if any(check.state == "bad" for check in checks) else 0
