"""Writes the chart's README.md and values.schema.json from values.yaml.

    python deploy/helm/describe.py

A comment `# -- text` above a key is its row in the table. Types come from the defaults; what a default cannot tell
(choices, bounds) is in LIMITS. Objects whose keys people choose are in FREE.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

CHART: Final = Path(__file__).with_name("replaywatch")
_KEY: Final = re.compile(r"^( *)([A-Za-z]\w*):")
_COMMENT: Final = re.compile(r"^ *# -- (.*)$")
_QUANTITY: Final = r"^\d+(\.\d+)?(m|k|Ki|M|Mi|G|Gi|T|Ti)?$"
_DURATION: Final = r"^\d+(ms|s|m|h)$"
LIMITS: Final[dict[str, dict[str, Any]]] = {
    "imagePullPolicy": {"enum": ["Always", "IfNotPresent", "Never"]},
    "collector.replicas": {"minimum": 1},
    "collector.bus": {"pattern": r"^((nats|tls)://[^,\s]+(,(nats|tls)://[^,\s]+)*)?$"},
    "collector.persistence.size": {"pattern": _QUANTITY},
    "collector.podDisruptionBudget.maxUnavailable": {"type": ["integer", "string"]},
    "collector.service.type": {"enum": ["ClusterIP", "NodePort", "LoadBalancer"]},
    "collector.service.port": {"minimum": 1, "maximum": 65535},
    "collector.webhook.url": {"pattern": "^(https?://.+)?$"},
    "collector.publicUrl": {"pattern": "^(https?://.+)?$"},
    "collector.dashboardUrl": {"pattern": "^(https?://.+)?$"},
    "agent.mode": {"enum": ["daemon", "none"]},
    "agent.collectorUrl": {"pattern": "^(https?://.+)?$"},
    "agent.socketFolder": {"pattern": "^/."},
    "agent.containerLogs.path": {"pattern": "^/."},
    "agent.allowUids": {"pattern": r"^(any|\d+(,\d+)*)?$"},
    "agent.spool.bytes": {"minimum": 65536},
    "agent.spool.hostPath": {"pattern": "^(/.+)?$"},
    "admission.replicas": {"minimum": 1},
    "admission.timeoutSeconds": {"minimum": 1, "maximum": 30},
    "admission.caBundle": {"pattern": r"^[A-Za-z0-9+/=\s]*$"},
    "agent.port": {"minimum": 1024, "maximum": 65535},
    "serviceMonitor.interval": {"pattern": _DURATION},
    "serviceMonitor.scrapeTimeout": {"pattern": _DURATION},
}
FREE: Final = frozenset(
    {"annotations", "labels", "additionalLabels", "commonLabels", "nodeSelector", "affinity", "podAnnotations"}
    | {"podLabels", "resources", "podSecurityContext", "securityContext", "updateStrategy"}
    | {"namespaceSelector", "issuerRef"}
)
INTRODUCTION: Final = """\
# The chart of Replaywatch

A collector, and an agent on every node with a GPU. Which pods are watched is their own choice: those with the label
`replaywatch: enabled` where `admission.enabled` runs the webhook, else those that fill a volume with the probe, mount
the agent's socket folder and set `REPLAYWATCH_PROBE=1` themselves. No other is touched.

```console
helm install replaywatch deploy/helm/replaywatch --namespace gpu-monitoring --create-namespace \\
  --set imageRegistry=registry.example.com/replaywatch
```

No registry publishes the images: build them with `deploy/images/Dockerfile`, push them to your own, and name it.

Installation, the pods' side, and what each setting means for security are in `docs/deploy/kubernetes.md`. The chart
follows the names of dcgm-exporter's values where both have the same thing. No program speaks to the Kubernetes
API, so there is no Role. `rules` and `dashboards` are links into the repository: package the chart from a checkout.

## Values

`python deploy/helm/describe.py` writes this table and `values.schema.json` from `values.yaml`.

"""


@dataclass(frozen=True, slots=True)
class Row:
    """One documented value. Shape: `path` as `agent.service.enabled`."""

    path: str
    default: object
    text: str


def documented(lines: list[str]) -> dict[str, str]:
    """The text of every key that has one, by path. Shape: two spaces a level, as in values.yaml."""
    found: dict[str, str] = {}
    path: list[str] = []
    comment: str | None = None
    for line in lines:
        if match := _COMMENT.match(line):
            comment = match[1]
        elif match := _KEY.match(line):
            path = [*path[: len(match[1]) // 2], match[2]]
            if comment is not None:
                found[".".join(path)] = comment
            comment = None
    return found


def rows(values: dict[str, Any], texts: dict[str, str], above: str = "") -> list[Row]:
    """A row for every documented value, in the order of the file. Raises: ValueError for one without a text."""
    found = []
    for key, default in values.items():
        path = f"{above}{key}"
        if path in texts:
            found.append(Row(path, default, texts[path]))
        elif isinstance(default, dict):
            found.extend(rows(default, texts, f"{path}."))
        else:
            raise ValueError(f"{path} has no '# --' comment in values.yaml")
    return found


def table(found: list[Row]) -> str:
    """The Markdown table."""
    head = ["| value | default | meaning |", "|---|---|---|"]
    return "\n".join([*head, *(f"| `{r.path}` | {_shown(r.default)} | {r.text} |" for r in found)]) + "\n"


def _shown(default: object) -> str:
    text = json.dumps(default) if not isinstance(default, str) else default
    return f"`{text}`" if text else "empty"


def schema_of(value: object, path: str = "") -> dict[str, Any]:
    """The JSON schema of a value with this default."""
    name = path.rsplit(".", 1)[-1]
    if isinstance(value, dict):
        if name in FREE:
            return {"type": "object"}
        below = {key: schema_of(v, f"{path}.{key}".lstrip(".")) for key, v in value.items()}
        if not path:  # what Helm itself adds
            below["global"] = {"type": "object"}
        return {"type": "object", "additionalProperties": False, "properties": below}
    kinds = {bool: "boolean", int: "integer", str: "string", list: "array"}
    return {"type": kinds[type(value)]} | LIMITS.get(path, {})


def describe() -> dict[Path, str]:
    """The files and what they hold."""
    text = (CHART / "values.yaml").read_text()
    values = yaml.safe_load(text)
    schema = {"$schema": "https://json-schema.org/draft-07/schema#"} | schema_of(values)
    return {
        CHART / "README.md": INTRODUCTION + table(rows(values, documented(text.splitlines()))),
        CHART / "values.schema.json": json.dumps(schema, indent=2) + "\n",
    }


if __name__ == "__main__":
    for file, content in describe().items():
        file.write_text(content)
