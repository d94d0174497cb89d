"""Serving pods as people write them."""

from __future__ import annotations

import copy
from typing import Any

LABELLED = {"app": "vllm", "replaywatch": "enabled"}


def container(name: str = "server", **fields: Any) -> dict[str, Any]:
    """A container with its image."""
    return {"name": name, "image": f"registry.example.com/{name}:1", **copy.deepcopy(fields)}


def pod(*containers: dict[str, Any], labels: Any = LABELLED, annotations: Any = None, **spec: Any) -> dict[str, Any]:
    """A pod of these containers; one server on a GPU where none is given."""
    gpu = {"limits": {"nvidia.com/gpu": "1"}}
    metadata = {"generateName": "vllm-", "namespace": "inference", "labels": labels}
    if annotations is not None:
        metadata["annotations"] = annotations
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": copy.deepcopy(metadata),
        "spec": {"containers": [*containers] or [container(resources=gpu)], **copy.deepcopy(spec)},
    }


# Every way in which a list or a variable that is added to can be there already.
PODS = {
    "bare": pod(),
    "full": pod(
        container(
            resources={"limits": {"nvidia.com/gpu": "1"}},
            command=["python3", "-m", "sglang.launch_server"],
            env=[{"name": "HF_HOME", "value": "/cache"}, {"name": "PYTHONPATH", "value": "/app"}],
            volumeMounts=[{"name": "cache", "mountPath": "/cache"}],
        ),
        container("proxy"),
        volumes=[{"name": "cache", "emptyDir": {}}],
        initContainers=[container("fetch")],
        securityContext={"runAsUser": 1000, "supplementalGroups": [44]},
    ),
    "empty lists": pod(
        container(env=[], volumeMounts=[]), volumes=[], initContainers=[], securityContext={"supplementalGroups": []}
    ),
    "empty variable": pod(container(env=[{"name": "PYTHONPATH"}])),
    "no security": pod(container(), securityContext={}),
}
