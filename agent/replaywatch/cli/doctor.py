"""`replaywatch doctor [--pid N [--listen]] [-- COMMAND...]`"""

from __future__ import annotations

import argparse
import os
import select
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from replaywatch.cli.run import command_of
from replaywatch.contract.errors import ConfigurationError, ProbeError, WireError
from replaywatch.contract.window import Window, merge_windows
from replaywatch.contract.wire import decode
from replaywatch.probe import doctor, launch, other_process
from replaywatch.probe.other_process import OtherProcess
from replaywatch.probe.outside import outside
from replaywatch.probe.settings import Value, settle

MARKS: Final = {"ok": "ok   ", "blind": "blind", "bad": "BAD  "}
WINDOW_SECONDS: Final = 1.0
# How long each signal has until the next, harder one.
END_SECONDS: Final = 10.0
MAX_SECONDS: Final = 86_400.0
SILENCE: Final = "it used no CUDA, ended too soon, or starts Python so that the environment is lost, as python -I does"
# Process (by what stands before the number in its frames' keys), component, phase.
Speaker = tuple[str, str, str]


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments."""
    parser.add_argument(
        "--pid", type=int, metavar="N", help="say of a process that runs already what can be seen from outside"
    )
    parser.add_argument(
        "--listen",
        action="store_true",
        help="with --pid, where no agent listens: hear what the process says, in the agent's place; an agent can start "
        "only afterwards, and misses what was heard",
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=30.0,
        help="how long to listen, and to watch the command before it is ended (default: 30)",
    )
    parser.add_argument(
        "watched", nargs=argparse.REMAINDER, metavar="-- COMMAND", help="also run this, and say what was seen of it"
    )


def main(arguments: argparse.Namespace) -> int:
    """Exit status 1 when something has to be changed, 2 when somebody was listened to and nothing was heard.

    Raises: ConfigurationError for arguments that cannot be, ProbeError for a command or process that cannot be watched.
    """
    if not 0 < arguments.seconds <= MAX_SECONDS:
        raise ConfigurationError(f"--seconds cannot be {arguments.seconds:g}: give more than 0, at most a day")
    command = command_of(arguments.watched)
    if arguments.pid is not None:
        if command:
            raise ConfigurationError("--pid looks at a process that runs already: give it or a command, not both")
        return _look_at(arguments.pid, arguments.seconds if arguments.listen else None)
    if arguments.listen:
        raise ConfigurationError("--listen needs the process to listen to: give its number with --pid")
    checks = doctor.before()
    print("on this host")
    _print(checks)
    if not command:
        return _status(checks)
    print(f"\nin {' '.join(command)[:80]}, over at most {arguments.seconds:g} s", flush=True)
    _print([doctor.Check("probe", "blind", warning) for warning in launch.warnings_for(command)])
    heard, ended = _watch(command, arguments.seconds)
    return _tell(heard, checks, f"nothing was heard ({ended}); {SILENCE}")


def _look_at(pid: int, listen_s: float | None) -> int:
    """What is seen of a process that runs already; with a time, also what it says."""
    process = other_process.read(pid)
    checks = outside(process)
    print(f"of process {pid}, from outside")
    _print(checks)
    if listen_s is None:
        return _status(checks)
    asked = _asked_to_end()
    with _in_place_of_agent(process) as inlet:
        print(f"\nfrom the process itself, over {listen_s:g} s", flush=True)
        heard = _listen(inlet, lambda: process.folder.exists() and not asked, time.monotonic() + listen_s)
    return _tell(heard, checks, "nothing was heard; no probe is in it, or it has not used CUDA so far")


@contextmanager
def _in_place_of_agent(process: OtherProcess) -> Iterator[socket.socket]:
    """A socket where a process looks for its agent. Raises: ProbeError where there is one, or none can be made."""
    path = settle({}, process.environment).socket
    place = process.inside(path)
    if doctor.unreachable(path, place) is None:
        raise ProbeError(
            f"an agent listens at {path} already, so --listen cannot; the collector's page shows what it hears"
        )
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as inlet, ExitStack() as undo:
        try:
            _bind(inlet, place, process.user, undo)
        except OSError as error:
            raise ProbeError(f"{path} cannot be listened at for process {process.pid}: {error}") from None
        yield inlet


def _bind(inlet: socket.socket, place: Path, user: int, undo: ExitStack) -> None:
    """Bind a socket for a user to write to; `undo` takes it away, and its folder where there was none.

    All by folders' descriptors: paths through a process end with it, and may be too long for a socket.
    Raises: OSError where it cannot be, or where another socket is in use.
    """
    folder = _folder(place.parent, user, undo)
    at = f"/proc/self/fd/{folder}/{place.name}"
    if place.is_socket():
        try:
            inlet.connect(at)
        except ConnectionRefusedError:  # of an agent that is gone; any other error tells of somebody who lives
            os.unlink(place.name, dir_fd=folder)
    inlet.bind(at)
    undo.callback(_remove, os.unlink, place.name, folder)
    os.chown(place.name, user, -1, dir_fd=folder, follow_symlinks=False)


def _folder(path: Path, user: int, undo: ExitStack) -> int:
    """A folder's descriptor; the folder is made for a user, and taken away by `undo`, where there is none."""
    if path.exists():
        return _opened(path, None, undo)
    above = _opened(path.parent, None, undo)
    os.mkdir(path.name, 0o700, dir_fd=above)
    undo.callback(_remove, os.rmdir, path.name, above)
    os.chown(path.name, user, -1, dir_fd=above, follow_symlinks=False)
    return _opened(path.name, above, undo)


def _opened(path: Path | str, above: int | None, undo: ExitStack) -> int:
    descriptor = os.open(path, os.O_PATH | os.O_DIRECTORY, dir_fd=above)
    undo.callback(os.close, descriptor)
    return descriptor


def _remove(how: Callable[..., None], name: str, folder: int) -> None:
    with suppress(OSError):  # gone already, or an agent that tried to start left its lock there
        how(name, dir_fd=folder)


def _tell(heard: Heard, checks: list[doctor.Check], silence: str) -> int:
    """Print what was heard; the exit status, of all checks."""
    seen = doctor.after(heard.windows.values())
    seen += [doctor.Check("frames", "bad", f"cannot be read: {reason}") for reason in sorted(heard.refused)]
    _print(seen or [doctor.Check("probe", "bad", silence)])
    return _status([*checks, *seen]) if seen else 2


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
    asked = _asked_to_end()
    with tempfile.TemporaryDirectory(prefix="replaywatch-doctor-") as folder:
        path = Path(folder) / "agent.sock"
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as inlet:
            inlet.bind(str(path))
            options: dict[str, Value] = {"socket": str(path), "window_seconds": WINDOW_SECONDS}
            try:
                child = subprocess.Popen(command, env=launch.environment_for(options), start_new_session=True)
            except OSError as error:
                raise ProbeError(f"the command {command[0]!r} cannot be started: {error.strerror}") from None
            try:
                heard = _listen(inlet, lambda: _runs(child) and not asked, time.monotonic() + seconds)
                status = child.poll()
            finally:
                _end(child)
    return heard, "it ran until it was ended" if status is None else f"it ended with status {status}"


def _asked_to_end() -> list[int]:
    """Signals to end, as they come; they interrupt nothing, so that neither command nor socket can stay behind."""
    asked: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: asked.append(number))
    return asked


def _listen(inlet: socket.socket, speaking: Callable[[], bool], end_s: float) -> Heard:
    """Take frames until a time on the monotonic clock, or until nobody speaks any more and nothing is left."""
    heard = Heard()
    while time.monotonic() < end_s:
        on = speaking()  # asked first, so that what it said last is still taken
        if select.select([inlet], [], [], 0.2)[0]:
            heard.take(inlet.recv(1 << 20))
        elif not on:
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
