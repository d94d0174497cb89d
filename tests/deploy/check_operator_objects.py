"""Reads objects of operators as a JSON list, and fails where one has a field that the operator's models do not know.

    python check_operator_objects.py FOLDER <objects.json

FOLDER holds the packages cloudcoil-models-prometheus-operator and cloudcoil-models-cert-manager. A program of its own,
because they bring a pytest plugin along.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from typing import Any

MODELS = {
    "monitoring.coreos.com/v1": "cloudcoil.models.prometheus_operator.v1",
    "cert-manager.io/v1": "cloudcoil.models.cert_manager.v1",
}


def plain(value: Any) -> Any:
    """Numbers and texts alike: several fields may be either."""
    if isinstance(value, dict):
        return {key: plain(v) for key, v in value.items()}
    return [plain(v) for v in value] if isinstance(value, list) else str(value)


def main() -> int:
    """Check all objects."""
    sys.path.insert(0, sys.argv[1])
    for thing in json.load(sys.stdin):
        models: Any = import_module(MODELS[thing["apiVersion"]])
        known = getattr(models, thing["kind"]).model_validate(thing)
        if plain(known.model_dump(by_alias=True, exclude_unset=True, mode="json")) != plain(thing):
            print(f"{thing['kind']} {thing['metadata']['name']} has fields that its model does not know")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
