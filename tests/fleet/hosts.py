"""Hosts with cables between them: network namespaces of this process's own, joined by a bridge in its own namespace.

Nothing outside is touched: `isolate` puts this process into a new namespace first, and everything goes with its end.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from pathlib import Path

CLONE_NEWNET = 0x40000000
NETWORK = "10.213.0"
HUB = 250


class NoNamespaces(Exception):
    """Network namespaces cannot be made here; the text says why."""


def isolate() -> None:
    """Move this process into a network of its own, with a bridge for hosts. Before any thread. Raises: NoNamespaces."""
    if shutil.which("ip") is None or shutil.which("nsenter") is None:
        raise NoNamespaces("ip and nsenter are not here; install the packages iproute2 and util-linux")
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNET):
        raise NoNamespaces(f"unshare refused ({os.strerror(ctypes.get_errno())}); it takes root")
    try:
        ip("link", "set", "lo", "up")
        ip("link", "add", "br0", "type", "bridge")
        ip("addr", "add", f"{NETWORK}.{HUB}/24", "dev", "br0")
        ip("link", "set", "br0", "up")
    except subprocess.CalledProcessError as error:
        raise NoNamespaces(f"no bridge can be made here ({error.stderr.strip()})") from None


def ip(*arguments: str) -> None:
    """Run `ip`."""
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


class Host:
    """A network namespace at the end of a cable."""

    def __init__(self, number: int) -> None:
        self.address = f"{NETWORK}.{number}"
        self._cable = f"cable{number}"
        # The namespace lives as long as this process.
        self._keeper = subprocess.Popen(["unshare", "--net", "sleep", "infinity"])
        mine = Path("/proc/self/ns/net").readlink()
        while Path(f"/proc/{self._keeper.pid}/ns/net").readlink() == mine:
            if self._keeper.poll() is not None:
                raise NoNamespaces("unshare ended at once")
        self.prefix = ("nsenter", f"--net=/proc/{self._keeper.pid}/ns/net")
        ip("link", "add", self._cable, "type", "veth", "peer", "name", "eth0", "netns", str(self._keeper.pid))
        ip("link", "set", self._cable, "master", "br0", "up")
        for command in (
            ("link", "set", "lo", "up"),
            ("addr", "add", f"{self.address}/24", "dev", "eth0"),
            ("link", "set", "eth0", "up"),
        ):
            subprocess.run([*self.prefix, "ip", *command], check=True, capture_output=True)

    def cut(self) -> None:
        """Pull the cable: packets vanish, nobody is told."""
        ip("link", "set", self._cable, "nomaster")

    def mend(self) -> None:
        """Plug the cable in again."""
        ip("link", "set", self._cable, "master", "br0")

    def remove(self) -> None:
        """Take the host away."""
        self._keeper.kill()
        self._keeper.wait()
