"""Where the socket lies: made private, put in place at once, and taken over only from an agent that is gone."""

from __future__ import annotations

import fcntl
import grp
import os
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from replaywatch.contract.errors import ConfigurationError

SOCKET_MODE: Final = 0o660
# sockaddr_un holds 108 bytes with the final zero; the name that is bound first is longer by a suffix.
MAX_PATH_BYTES: Final = 100


@dataclass(frozen=True, slots=True)
class Claim:
    """A socket in its place. `lock` is the descriptor whose lock says that an agent lives here."""

    path: Path
    inode: int
    lock: int


def claim(listener: socket.socket, path: Path, group: str | None) -> Claim:
    """Bind a socket at a path, with mode 0660 and the group given, in a folder of mode 0700 (0710 with a group).

    The socket is bound under another name, made private, and renamed into place, so that nobody meets it half made.
    A folder that exists already is used as it is. Raises: ConfigurationError where another agent listens, or the
    place cannot be used.
    """
    if len(os.fsencode(path)) > MAX_PATH_BYTES:
        raise ConfigurationError(f"the socket path {path} is longer than {MAX_PATH_BYTES} bytes; give a shorter one")
    try:
        group_id = grp.getgrnam(group).gr_gid if group else -1
        _make_folder(path.parent, group_id)
        lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            _lock_or_refuse(lock, path)
            return Claim(path, _put_in_place(listener, path, group_id), lock)
        except BaseException:
            os.close(lock)
            raise
    except KeyError:
        raise ConfigurationError(f"there is no group {group!r} for the socket; name one of /etc/group") from None
    except OSError as error:
        raise ConfigurationError(
            f"the socket {path} cannot be made ({error.strerror}); give a path that this user may write with --socket"
        ) from None


def release(place: Claim) -> None:
    """Remove the socket if it is still the one that was claimed, and let others claim its place."""
    try:
        if os.lstat(place.path).st_ino == place.inode:
            os.unlink(place.path)
    except FileNotFoundError:
        pass
    os.close(place.lock)


def _make_folder(folder: Path, group_id: int) -> None:
    if folder.is_dir():
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.mkdir(mode=0o700)
    if group_id >= 0:
        os.chown(folder, -1, group_id)
        folder.chmod(0o710)


def _lock_or_refuse(lock: int, path: Path) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise _taken(path) from None
    if path.exists() and not path.is_socket():
        raise ConfigurationError(f"{path} exists and is no socket; remove it or give another path with --socket")
    if _somebody_listens(path):
        raise _taken(path)


def _taken(path: Path) -> ConfigurationError:
    return ConfigurationError(f"another agent listens at {path}; stop it or give another path with --socket")


def _somebody_listens(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as knock:
        try:
            knock.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        return True


def _put_in_place(listener: socket.socket, path: Path, group_id: int) -> int:
    unfinished = f"{path}.{os.getpid()}"
    try:
        listener.bind(unfinished)
        if group_id >= 0:
            os.chown(unfinished, -1, group_id)
        os.chmod(unfinished, SOCKET_MODE)
        os.rename(unfinished, path)
    except OSError:
        if os.path.lexists(unfinished):
            os.unlink(unfinished)
        raise
    return os.lstat(path).st_ino
