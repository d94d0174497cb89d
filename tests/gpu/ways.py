"""One way of doing something on a GPU in a process of its own, for the measurements that compare such ways."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any


def run_alone(script: str, way: str, *more: str, timeout_s: float) -> dict[str, Any]:
    """What `script --way WAY ...` prints as its last line of JSON; a row with `error` where it prints none in time."""
    command = [sys.executable, script, "--way", way, *more]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
    except subprocess.TimeoutExpired:
        return {"way": way, "error": f"no end in {timeout_s:g} s"}
    lines = [x for x in done.stdout.splitlines() if x.startswith("{")]
    if not lines:
        return {"way": way, "error": done.stderr.strip()[-300:], "exit": done.returncode}
    found: dict[str, Any] = json.loads(lines[-1])
    return found
