"""Renders the chart with Helm's own engine, and checks objects against the schemas that Kubernetes publishes."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.programs import DEPLOY, ROOT, output_of

helm_python = pytest.importorskip("helm_python", reason="Helm's engine is not installed (package helm-python-sdk)")
kubernetes_validate = pytest.importorskip("kubernetes_validate", reason="package kubernetes-validate is missing")
# Models of the objects of the Prometheus operator and cert-manager. They bring a pytest plugin along that breaks
# pytest, so they live apart:
# pip install --target build/operator-models cloudcoil-models-prometheus-operator cloudcoil-models-cert-manager
OPERATOR_MODELS = ROOT / "build" / "operator-models"
CHART = DEPLOY / "helm" / "replaywatch"
NAMESPACE = "gpu-monitoring"
KUBERNETES = ("1.31", "1.37")
Object = dict[str, Any]


def render(values: Object | None = None, name: str = "replaywatch") -> list[Object]:
    """The objects that `helm install` would send. Raises what Helm raises."""
    with helm_python.Chart.load(CHART) as chart:
        chart.validate_schema(values or {})
        files = chart.render(values or {}, name=name, namespace=NAMESPACE)
    texts = [text for path, text in sorted(files.items()) if not path.endswith("NOTES.txt")]
    return [found for text in texts for found in yaml.safe_load_all(text) if found]


def notes(values: Object) -> str:
    """What Helm tells the person who installs."""
    with helm_python.Chart.load(CHART) as chart:
        return str(chart.render(values, name="replaywatch", namespace=NAMESPACE)["replaywatch/templates/NOTES.txt"])


def of_kind(objects: list[Object], kind: str, part: str | None = None) -> Object:
    """The one object of a kind, and of a part of the release where one is named."""
    found = [o for o in objects if o["kind"] == kind and (part is None or o["metadata"]["name"].endswith(f"-{part}"))]
    assert len(found) == 1, f"{len(found)} objects of kind {kind} for {part}"
    return found[0]


def check(objects: list[Object]) -> None:
    """Fail where an object has a field that Kubernetes or the operator it is for does not know, or lacks one."""
    operator = [o for o in objects if o["apiVersion"] in ("monitoring.coreos.com/v1", "cert-manager.io/v1")]
    for thing in objects:
        if thing not in operator:
            for version in KUBERNETES:
                kubernetes_validate.validate(thing, version, strict=True)
    if operator and OPERATOR_MODELS.is_dir():
        script = Path(__file__).with_name("check_operator_objects.py")
        output_of([sys.executable, str(script), str(OPERATOR_MODELS)], input=json.dumps(operator))


def pod_spec(thing: Object) -> Object:
    """The pod's spec of a workload."""
    spec: Object = thing["spec"]["template"]["spec"]
    return spec


def containers(thing: Object) -> Iterator[Object]:
    """All containers of a workload, those that run before the others first."""
    spec = pod_spec(thing)
    yield from spec.get("initContainers", [])
    yield from spec["containers"]
