"""What the downward API says about the agent's own pod and node: environment variables, or files in /etc/podinfo."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

PODINFO: Final = Path("/etc/podinfo")
MAX_NAME: Final = 253


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """The agent's own surroundings; None where nothing says."""

    node: str | None = None
    namespace: str | None = None
    pod: str | None = None
    container: str | None = None
    pod_uid: str | None = None


def read_surroundings(
    environment: Mapping[str, str], folder: Path = PODINFO, hostname: str | None = None
) -> Surroundings:
    """The surroundings from variables such as POD_NAME, else from files such as ``podname`` or ``name``.

    `hostname` stands in for the node's name outside a pod only: inside, it is the pod's. A container's name counts
    only with a pod's: CONTAINER_NAME alone is set by tools that mean something else.
    """
    pod = _read(environment, "POD_NAME", folder, ("podname", "pod_name", "name"))
    return Surroundings(
        node=_read(environment, "NODE_NAME", folder, ("nodename", "node_name"))
        or (None if pod or "KUBERNETES_SERVICE_HOST" in environment else hostname),
        namespace=_read(environment, "POD_NAMESPACE", folder, ("namespace",)),
        pod=pod,
        container=_read(environment, "CONTAINER_NAME", folder, ("containername", "container_name")) if pod else None,
        pod_uid=_read(environment, "POD_UID", folder, ("uid", "pod_uid")),
    )


def _read(environment: Mapping[str, str], variable: str, folder: Path, names: tuple[str, ...]) -> str | None:
    if value := environment.get(variable, "").strip():
        return value[:MAX_NAME]
    texts = (_text(folder / name) for name in names)
    return next((text[:MAX_NAME] for text in texts if text), None)


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""
