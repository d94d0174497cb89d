"""`OtherProcess`: what /proc tells of a process that is not this one. Nothing is asked of it or changed in it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from replaywatch.contract.errors import ProbeError


@dataclass(frozen=True, slots=True)
class OtherProcess:
    """A process, read once.

    Shape: `folder` its folder in /proc; `user` and `capabilities` the effective ones, `groups` all of them;
    `environment` that at the start of `environment_of`; `mapped` the files mapped into its memory; `sockets` inodes;
    `same_network` whether it shares the network namespace of this process; `children` all below it, with what they
    have mapped.
    """

    pid: int
    folder: Path
    command: tuple[str, ...]
    user: int
    groups: frozenset[int]
    capabilities: int
    environment: Mapping[str, str]
    environment_of: int
    mapped: frozenset[str]
    sockets: frozenset[int]
    same_network: bool
    children: Mapping[int, frozenset[str]]

    def maps(self, *beginnings: str) -> str | None:
        """A mapped file whose name begins so; None where there is none."""
        return first_named(self.mapped, *beginnings)

    def inside(self, path: str | Path) -> Path:
        """A path of the process, as it is reached from here."""
        return self.folder / ("root" if os.path.isabs(path) else "cwd") / str(path).lstrip("/")

    def site_folders(self) -> list[Path]:
        """Folders of Python packages that it has loaded libraries from, as they are reached from here."""
        found = {m.group(0) for path in self.mapped if (m := re.match(r".*/(?:site|dist)-packages(?=/)", path))}
        return [self.inside(folder) for folder in sorted(found)]


def first_named(paths: frozenset[str], *beginnings: str) -> str | None:
    """One of some files, by the beginning of its name; None where there is none."""
    return next((path for path in sorted(paths) if path.rpartition("/")[2].startswith(beginnings)), None)


def read(pid: int, proc: Path = Path("/proc")) -> OtherProcess:
    """What /proc tells of a process. Raises: ProbeError where there is none, or this user may not look into it."""
    folder = proc / str(pid)
    try:
        status = _status(folder)
        if status["State"].startswith(("Z", "X")):
            raise ProcessLookupError
        environment_of, environment = _environment(pid, proc)
        return OtherProcess(
            pid=pid,
            folder=folder,
            command=tuple(word for word in (folder / "cmdline").read_text(errors="replace").split("\0") if word),
            user=int(status["Uid"].split()[1]),
            groups=frozenset(map(int, [*status["Gid"].split(), *status["Groups"].split()])),
            capabilities=int(status["CapEff"], 16),
            environment=environment,
            environment_of=environment_of,
            mapped=_mapped(folder),
            sockets=frozenset(_sockets(folder / "fd")),
            same_network=os.readlink(folder / "ns/net") == os.readlink(proc / "self/ns/net"),
            children=dict(_children(folder)),
        )
    except (FileNotFoundError, ProcessLookupError):
        raise ProbeError(f"there is no process {pid} here; give its number as ps shows it on this side") from None
    except PermissionError:
        raise ProbeError(f"this user may not look into process {pid}; run the doctor as root or as its user") from None


def _status(folder: Path) -> dict[str, str]:
    return dict(line.split(":\t", 1) for line in (folder / "status").read_text().splitlines() if ":\t" in line)


def _environment(pid: int, proc: Path) -> tuple[int, dict[str, str]]:
    """The environment at the start of a process, and whose it is.

    Engines write titles for ps over their processes' environments (setproctitle), and zeros over the rest; then it is
    that of the nearest ancestor with one, which handed it down.
    """
    while True:
        text = (proc / str(pid) / "environ").read_bytes().decode(errors="replace")
        environment = dict(entry.split("=", 1) for entry in text.split("\0") if "=" in entry)
        parent = int(_status(proc / str(pid))["PPid"])
        if environment or not text or not parent:
            return pid, environment
        pid = parent


def _mapped(folder: Path) -> frozenset[str]:
    lines = [line.split(maxsplit=5) for line in (folder / "maps").read_text(errors="replace").splitlines()]
    return frozenset(line[5].removesuffix(" (deleted)") for line in lines if len(line) > 5 and line[5][0] == "/")


def _sockets(descriptors: Path) -> Iterator[int]:
    for name in os.listdir(descriptors):
        with suppress(FileNotFoundError):  # closed meanwhile
            link = os.readlink(descriptors / name)
            if link.startswith("socket:["):
                yield int(link[8:-1])


def _children(folder: Path) -> Iterator[tuple[int, frozenset[str]]]:
    for task in folder.glob("task/*/children"):
        for child in map(int, task.read_text().split()):
            place = folder.with_name(str(child))
            try:
                yield child, _mapped(place)
                yield from _children(place)
            except OSError:  # it has ended, or is another user's
                continue
