"""Which container and pod a process belongs to, from its `/proc/<pid>/cgroup`.

Source: the names that containerd, CRI-O, Docker and Podman give, with the systemd and the cgroupfs driver, cgroup v1
and v2. The kubelet writes a pod's uid with underscores under systemd.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_CONTAINER: Final = re.compile(r"(?:^|[-:/])([0-9a-f]{64})(?:\.scope)?$")
_POD: Final = re.compile(
    r"(?:^|[/-])pod([0-9a-f]{8}[-_](?:[0-9a-f]{4}[-_]){3}[0-9a-f]{12}|[0-9a-f]{32})(?:\.slice)?(?=/|$)"
)
# The kubelet's links to log files name everything: <pod>_<namespace>_<container>-<container id>.log
_LOG_LINK: Final = re.compile(r"^([^_/]+)_([^_/]+)_([^_/]+)-([0-9a-f]{64})\.log$")
CONTAINER_LOGS: Final = Path("/var/log/containers")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a process runs. Shape: `pod_uid` with dashes, `container_id` 64 hexadecimal digits."""

    pod_uid: str | None = None
    container_id: str | None = None


@dataclass(frozen=True, slots=True)
class ContainerName:
    """A container's names, as people know them."""

    pod: str
    namespace: str
    container: str


def parse_cgroup(text: str) -> Place:
    """The place that a cgroup file names; empty where it names none, as inside a cgroup namespace of its own."""
    pod_uid = container_id = None
    for line in text.splitlines():
        path = line.split(":", 2)[-1]
        for part in path.split("/"):
            if match := _CONTAINER.search(part):
                container_id = match[1]
        if match := _POD.search(path):
            pod_uid = match[1].replace("_", "-")
    return Place(pod_uid, container_id)


def place_of(pid: int | str, proc: Path = Path("/proc")) -> Place:
    """The place of a process; empty where the process or its file cannot be seen."""
    try:
        return parse_cgroup((proc / str(pid) / "cgroup").read_text(errors="replace"))
    except OSError:
        return Place()


def name_of(container_id: str, folder: Path = CONTAINER_LOGS) -> ContainerName | None:
    """The names of a container by its id, from the kubelet's links to its logs; None where they are not mounted."""
    try:
        names = [entry.name for entry in folder.iterdir() if entry.name.endswith(f"-{container_id}.log")]
    except OSError:
        return None
    match = _LOG_LINK.match(names[0]) if names else None
    return ContainerName(match[1], match[2], match[3]) if match else None
