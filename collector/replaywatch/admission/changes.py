"""What is added to a labelled pod, as a JSON patch (RFC 6902)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final, TypeAlias

from replaywatch.admission.pod import Json, object_at, objects_at, text_at

Operation: TypeAlias = dict[str, object]
LABEL: Final = "replaywatch"
ENABLED: Final = "enabled"
# Which containers run the server, by name with commas; else those that ask for a GPU, else the first.
CONTAINERS: Final = "replaywatch/containers"
# A PYTHONPATH that the image sets. Nobody can see it from outside, and a pod's own replaces it.
IMAGE_PYTHONPATH: Final = "replaywatch/image-pythonpath"
PROBE_VOLUME: Final = "replaywatch-probe"
SOCKET_VOLUME: Final = "replaywatch-socket"
PROBE_FOLDER: Final = "/opt/replaywatch"
ENTRY: Final = f"{PROBE_FOLDER}/replaywatch/probe/entry"
SOCKET_FOLDER: Final = "/run/replaywatch"


@dataclass(frozen=True, slots=True)
class Additions:
    """What the cluster's own installation decides."""

    image: str
    pull_policy: str
    socket_folder: str
    socket_group: int


@dataclass(frozen=True, slots=True)
class Change:
    """The patch, none where the pod stays as it is, and what the person who made the pod should know."""

    operations: tuple[Operation, ...] = ()
    warnings: tuple[str, ...] = ()


def change_of(pod: Json, additions: Additions) -> Change:
    """What to do to a pod. One without the label, or with the probe's volume already, stays as it is."""
    spec = object_at(pod, "spec")
    if text_at(object_at(pod, "metadata", "labels"), LABEL) != ENABLED or _has_probe(spec):
        return Change()
    if text_at(object_at(spec, "os"), "name") == "windows":
        return Change(warnings=("replaywatch: the probe is for Linux; this pod is not watched",))
    operations: list[Operation] = []
    positions, warnings = _chosen(pod, spec)
    for position in positions:
        container = objects_at(spec, "containers")[position]
        if reason := _obstacle(container):
            warnings.append(f"replaywatch: {reason}; container {text_at(container, 'name')[:63]} is not watched")
        else:
            operations += _into(container, f"/spec/containers/{position}", _annotation(pod, IMAGE_PYTHONPATH))
    if operations:
        operations += _around(spec, additions)
    return Change(tuple(operations), tuple(warnings))


def _has_probe(spec: Json) -> bool:
    return any(text_at(volume, "name") == PROBE_VOLUME for volume in objects_at(spec, "volumes"))


def _annotation(pod: Json, name: str) -> str:
    return text_at(object_at(pod, "metadata", "annotations"), name)


def _chosen(pod: Json, spec: Json) -> tuple[list[int], list[str]]:
    """Positions of the containers that run the server, and names that were asked for and are not there."""
    named = {text_at(c, "name"): n for n, c in enumerate(objects_at(spec, "containers")) if text_at(c, "name")}
    if asked := [name.strip() for name in _annotation(pod, CONTAINERS).split(",") if name.strip()]:
        missing = [f"replaywatch: {CONTAINERS} names {n[:63]}, which is no container" for n in asked if n not in named]
        return [position for name, position in named.items() if name in asked], missing
    on_gpu = [position for position in named.values() if _asks_for_a_gpu(objects_at(spec, "containers")[position])]
    return on_gpu or list(named.values())[:1], []


def _asks_for_a_gpu(container: Json) -> bool:
    resources = object_at(container, "resources")
    names = [*object_at(resources, "limits"), *object_at(resources, "requests")]
    return any(name.startswith("nvidia.com/") for name in names) or bool(objects_at(resources, "claims"))


def _obstacle(container: Json) -> str | None:
    """Why nothing can be added to a container without taking something from it."""
    if any(text_at(e, "name") == "PYTHONPATH" and "valueFrom" in e for e in objects_at(container, "env")):
        return "its PYTHONPATH comes from elsewhere (valueFrom)"
    for mount in objects_at(container, "volumeMounts"):
        path = str(PurePosixPath(text_at(mount, "mountPath") or "."))
        if path in (PROBE_FOLDER, SOCKET_FOLDER):
            return f"something is mounted at {path} already"
    return None


def _into(container: Json, at: str, image_pythonpath: str) -> Iterator[Operation]:
    """The probe's folder before everything else on the path, what starts it, and both volumes."""
    variables = objects_at(container, "env")
    known = {text_at(variable, "name"): position for position, variable in enumerate(variables)}
    added: list[object] = []
    if (position := known.get("PYTHONPATH")) is None:
        added.append({"name": "PYTHONPATH", "value": _joined(ENTRY, image_pythonpath)})
    else:
        own = text_at(variables[position], "value")
        yield {"op": "add", "path": f"{at}/env/{position}/value", "value": _joined(ENTRY, own)}
    for name, value in (("REPLAYWATCH_PROBE", "1"), ("REPLAYWATCH_PROBE_SOCKET", f"{SOCKET_FOLDER}/agent.sock")):
        if name not in known:
            added.append({"name": name, "value": value})
    yield from _appended(container, at, "env", added)
    mounts: list[object] = [
        {"name": PROBE_VOLUME, "mountPath": PROBE_FOLDER, "readOnly": True},
        {"name": SOCKET_VOLUME, "mountPath": SOCKET_FOLDER, "readOnly": True},
    ]
    yield from _appended(container, at, "volumeMounts", mounts)


def _around(spec: Json, additions: Additions) -> Iterator[Operation]:
    """What the pod needs once: the volumes, the container that fills one, the group of the socket."""
    volumes: list[object] = [{"name": PROBE_VOLUME, "emptyDir": {}}]
    if not any(text_at(volume, "name") == SOCKET_VOLUME for volume in objects_at(spec, "volumes")):
        # Not `Directory`: a pod on a node without an agent must start too.
        place = {"path": additions.socket_folder, "type": "DirectoryOrCreate"}
        volumes.append({"name": SOCKET_VOLUME, "hostPath": place})
    yield from _appended(spec, "/spec", "volumes", volumes)
    if objects_at(spec, "initContainers"):
        yield {"op": "add", "path": "/spec/initContainers/0", "value": _filler(additions)}
    else:
        yield {"op": "add", "path": "/spec/initContainers", "value": [_filler(additions)]}
    security = spec.get("securityContext")
    if not isinstance(security, dict):
        yield {"op": "add", "path": "/spec/securityContext", "value": {"supplementalGroups": [additions.socket_group]}}
    elif not isinstance(groups := security.get("supplementalGroups"), list):
        path = "/spec/securityContext/supplementalGroups"
        yield {"op": "add", "path": path, "value": [additions.socket_group]}
    elif additions.socket_group not in groups:
        yield {"op": "add", "path": "/spec/securityContext/supplementalGroups/-", "value": additions.socket_group}


def _filler(additions: Additions) -> Json:
    """The container that fills the volume and ends. It has limits, because a quota may ask for them."""
    return {
        "name": PROBE_VOLUME,
        "image": additions.image,
        "imagePullPolicy": additions.pull_policy,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 65532,
            "runAsGroup": 65532,
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}, "limits": {"cpu": "200m", "memory": "32Mi"}},
        "volumeMounts": [{"name": PROBE_VOLUME, "mountPath": PROBE_FOLDER}],
    }


def _appended(thing: Json, at: str, key: str, values: list[object]) -> Iterator[Operation]:
    """Operations that put values behind those that a list has; a list that is not there is made."""
    if not values:
        return
    if not isinstance(thing.get(key), list):
        yield {"op": "add", "path": f"{at}/{key}", "value": values}
        return
    for value in values:
        yield {"op": "add", "path": f"{at}/{key}/-", "value": value}


def _joined(first: str, rest: str) -> str:
    return f"{first}:{rest}" if rest else first
