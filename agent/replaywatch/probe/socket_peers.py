"""Which unix sockets other processes hold connections to, as the kernel tells anybody (sock_diag(7), unix_diag.h)."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterable
from typing import Final

_NETLINK_SOCK_DIAG: Final = 4
_SOCK_DIAG_BY_FAMILY: Final = 20
_REQUEST: Final = 1
_SHOW_FILE, _SHOW_PEER = 2, 4
_FILE, _PEER = 1, 2  # attributes of the answer
_HEADER: Final = struct.Struct("=IHHII")
_QUERY: Final = struct.Struct("=BBHIIIII")
_ATTRIBUTE: Final = struct.Struct("=HH")
_ANSWER_BYTES: Final = 16  # of unix_diag_msg, before the attributes
_ANY: Final = 0xFFFFFFFF


def connected_to(inodes: Iterable[int], file: os.stat_result) -> bool:
    """Whether one of some sockets is connected to the one that is bound to a file.

    Shape: `inodes` as in /proc/PID/fd (``socket:[INODE]``), all of this process's network namespace.
    Raises: OSError where the kernel does not tell.
    """
    bound = (file.st_ino & _ANY, os.major(file.st_dev) << 20 | os.minor(file.st_dev))
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as link:
        link.settimeout(1.0)
        for inode in inodes:
            peer = _ask(link, inode, _SHOW_PEER).get(_PEER)
            if peer is None:
                continue
            place = _ask(link, struct.unpack("=I", peer)[0], _SHOW_FILE).get(_FILE)
            if place is not None and struct.unpack("=II", place) == bound:
                return True
    return False


def _ask(link: socket.socket, inode: int, show: int) -> dict[int, bytes]:
    """Attributes of one socket; none where it is no unix socket or gone."""
    query = _QUERY.pack(socket.AF_UNIX, 0, 0, _ANY, inode, show, _ANY, _ANY)
    link.send(_HEADER.pack(_HEADER.size + len(query), _SOCK_DIAG_BY_FAMILY, _REQUEST, 0, 0) + query)
    answer = link.recv(8192)
    length, kind, *_ = _HEADER.unpack_from(answer)
    found: dict[int, bytes] = {}
    position = _HEADER.size + _ANSWER_BYTES
    while kind == _SOCK_DIAG_BY_FAMILY and position < length:
        size, attribute = _ATTRIBUTE.unpack_from(answer, position)
        found[attribute] = answer[position + _ATTRIBUTE.size : position + size]
        position += (size + 3) & ~3
    return found
