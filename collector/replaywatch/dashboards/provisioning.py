"""Files that make Grafana load the dashboards by itself at its start."""

from __future__ import annotations

from typing import Final

import yaml

FOLDER: Final = "Replaywatch"
PAGE: Final = "http://127.0.0.1:8790"
_HEAD: Final = "# Made by dashboards/generate.py.\n"


def provider_text(path: str = "/etc/grafana/dashboards/replaywatch") -> str:
    """Goes to provisioning/dashboards; `path` is where the JSON files lie for Grafana."""
    provider = {
        "name": "replaywatch",
        "orgId": 1,
        "folder": FOLDER,
        "folderUid": "replaywatch",
        "type": "file",
        "disableDeletion": False,
        "allowUiUpdates": False,
        "updateIntervalSeconds": 30,
        "options": {"path": path, "foldersFromFilesStructure": False},
    }
    return _HEAD + _dump({"apiVersion": 1, "providers": [provider]})


def example_links(page: str) -> list[dict[str, str]]:
    """How a data source leads from an exemplar to the workload on the collector's page."""
    url = f"{page.rstrip('/')}/workloads/${{__value.raw}}"
    return [{"name": "workload", "url": url, "urlDisplayLabel": "Open the workload"}]


def source_text(url: str = "http://prometheus:9090", page: str = PAGE) -> str:
    """Goes to provisioning/datasources, where no Prometheus is set up yet. `page` is where browsers reach ours."""
    # Provisioning replaces $NAME by the environment's; $$ is a dollar.
    links = [{**link, "url": link["url"].replace("$", "$$")} for link in example_links(page)]
    source = {
        "name": "Prometheus",
        "uid": "prometheus",
        "type": "prometheus",
        "access": "proxy",
        "url": url,
        "isDefault": True,
        "editable": False,
        "jsonData": {"httpMethod": "POST", "timeInterval": "15s", "exemplarTraceIdDestinations": links},
    }
    return _HEAD + _dump({"apiVersion": 1, "datasources": [source]})


def _dump(content: dict[str, object]) -> str:
    text: str = yaml.safe_dump(content, sort_keys=False)
    return text
