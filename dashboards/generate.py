#!/usr/bin/env python3
"""Writes the dashboards, the rules, and the pages about metrics and alerts; run it after a change of their sources."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / name) for name in ("agent", "detectors", "collector")]

from replaywatch.dashboards.artifacts import write  # noqa: E402

if __name__ == "__main__":
    for name in write(ROOT):
        print(name)
