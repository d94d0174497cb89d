"""`OtherProcess`: what /proc tells of a process that is not this one. Nothing is asked of it or changed in it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from replaywatch.contract.errors import ProbeError

_MAX_LINKS: Final = 40  # the kernel's own, of path_resolution(7)


@dataclass(frozen=True, slots=True)
class OtherProcess:
    """A process, read once.

    Shape: `folder` its folder in /proc; `user` and `capabilities` the effective ones, `groups` all of them;
    `environment` that at the start of `environment_of`, empty and nobody's where none can be read; `mapped` the files
    mapped into its memory; `sockets` inodes; `same_network` whether it shares the network namespace of this process;
    `children` all below it, with what they have mapped.
    """

    pid: int
    folder: Path
    command: tuple[str, ...]
    user: int
    groups: frozenset[int]
    capabilities: int
    environment: Mapping[str, str]
    environment_of: int | None
    mapped: frozenset[str]
    sockets: frozenset[int]
    same_network: bool
    children: Mapping[int, frozenset[str]]

    def maps(self, *beginnings: str) -> str | None:
        """A mapped file whose name begins so; None where there is none."""
        return first_named(self.mapped, *beginnings)

    def inside(self, path: str | Path) -> Path:
        """A path of the process, as it is reached from here, without links: those lead through its own file system.

        Raises: ProbeError where links lead in circles.
        """
        root = self.folder / "root"
        place = root if os.path.isabs(path) else self.folder / "cwd"
        ahead = _parts(path)
        links = 0
        while ahead:
            part = ahead.pop(0)
            if part == ".." and _same(place, root):
                continue
            try:
                link = os.readlink(place / part)
            except OSError:  # no link, or nothing there
                place = place / part
                continue
            if (links := links + 1) > _MAX_LINKS:
                raise ProbeError(f"the links in {path} of process {self.pid} lead in circles")
            place = root if os.path.isabs(link) else place
            ahead = [*_parts(link), *ahead]
        return place

    def site_folders(self) -> list[Path]:
        """Folders of Python packages that it has loaded libraries from, as they are reached from here."""
        found = {m.group(0) for path in self.mapped if (m := re.match(r".*/(?:site|dist)-packages(?=/)", path))}
        return [self.inside(folder) for folder in sorted(found)]


def _parts(path: str | Path) -> list[str]:
    return [part for part in str(path).split("/") if part not in ("", ".")]


def _same(one: Path, other: Path) -> bool:
    with suppress(OSError):
        return os.path.samefile(one, other)
    return False


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


def _environment(pid: int, proc: Path) -> tuple[int | None, dict[str, str]]:
    """The environment at the start of a process, and whose it is; nobody's where none can be read.

    Engines write titles for ps over their processes' environments (setproctitle), and zeros over the rest; then it is
    that of the nearest ancestor with one, which handed it down.
    """
    overwritten, environment, parent = _own_environment(proc / str(pid))
    while overwritten and parent:
        pid = parent
        try:
            overwritten, environment, parent = _own_environment(proc / str(pid))
        except OSError:  # another user's, or it has ended
            break
    return None if overwritten else pid, environment


def _own_environment(folder: Path) -> tuple[bool, dict[str, str], int]:
    """Whether a process's environment is overwritten, what is left of it, and the process's parent."""
    text = (folder / "environ").read_bytes().decode(errors="replace")
    environment = dict(entry.split("=", 1) for entry in text.split("\0") if "=" in entry)
    return bool(text and not environment), environment, int(_status(folder)["PPid"])


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
        with suppress(OSError):  # the thread has ended
            for child in map(int, task.read_text().split()):
                place = folder.with_name(str(child))
                with suppress(OSError):  # it has ended, or is another user's
                    yield child, _mapped(place)
                    yield from _children(place)
