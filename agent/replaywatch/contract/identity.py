"""Short ids of workloads, made from who they are."""

from __future__ import annotations

import hashlib
import json
from dataclasses import fields
from operator import attrgetter
from typing import Final

from replaywatch.contract.window import Workload

_WHO: Final = attrgetter(*(f.name for f in fields(Workload)))


def workload_id(workload: Workload) -> str:
    """Digest of a workload's identity, 16 hexadecimal digits: fit for addresses whatever its names contain."""
    text = json.dumps(_WHO(workload), separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
