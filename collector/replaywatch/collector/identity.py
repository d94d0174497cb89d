"""Short ids of workloads, made from who they are."""

from __future__ import annotations

import hashlib
import json
from dataclasses import astuple

from replaywatch.contract.window import Workload


def workload_id(workload: Workload) -> str:
    """Digest of a workload's identity, 16 hexadecimal digits: fit for addresses whatever its names contain."""
    text = json.dumps(astuple(workload), separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
