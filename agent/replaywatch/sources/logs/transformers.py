"""What Hugging Face transformers' continuous batching says of its graphs (5.x)."""

from __future__ import annotations

import re

from replaywatch.sources.logs.prefix import LogLine
from replaywatch.sources.logs.run import EngineRun

_PATHS = re.compile(r"Using cuda graphs for \(varlen, decode\) paths: \((?P<varlen>\w+), (?P<decode>\w+)\)")
_CREATING = re.compile(r"Creating graph for key = ")
_SETTING = re.compile(r"Setting graph for key = ")
_OFF = re.compile(r"no graph backend is available: turning off accelerator graphs|turning off accelerator graphs")


def read(line: LogLine, run: EngineRun) -> bool:
    """Take what a line says of graphs; False when it says nothing."""
    if match := _PATHS.search(line.message):
        mode = f"varlen={match['varlen']}, decode={match['decode']}"
        enabled = "True" in (match["varlen"], match["decode"])
        run.configure(requested_mode=mode, resolved_mode=mode, graphs_enabled=enabled)
    elif _CREATING.search(line.message):
        run.tally(line).captures["ok"] += 1
    elif _OFF.search(line.message):
        run.observe("graphs_disabled", "no graph backend is available: accelerator graphs are off", line)
        run.resolve("disabled", "no graph backend is available")
    elif not _SETTING.search(line.message):
        return False
    return True
