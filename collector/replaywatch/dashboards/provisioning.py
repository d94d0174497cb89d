"""Files that make Grafana load the dashboards by itself at its start."""

from __future__ import annotations

from typing import Final

import yaml

FOLDER: Final = "Replaywatch"
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


def source_text(url: str = "http://prometheus:9090") -> str:
    """Goes to provisioning/datasources, where no Prometheus is set up yet."""
    source = {
        "name": "Prometheus",
        "uid": "prometheus",
        "type": "prometheus",
        "access": "proxy",
        "url": url,
        "isDefault": True,
        "editable": False,
        "jsonData": {"httpMethod": "POST", "timeInterval": "15s"},
    }
    return _HEAD + _dump({"apiVersion": 1, "datasources": [source]})


def _dump(content: dict[str, object]) -> str:
    text: str = yaml.safe_dump(content, sort_keys=False)
    return text
