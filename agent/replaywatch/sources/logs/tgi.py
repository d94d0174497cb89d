"""What text-generation-inference says of its graphs, in text and in JSON lines."""

from __future__ import annotations

import re

from replaywatch.sources.logs.literals import as_sizes, read_value
from replaywatch.sources.logs.prefix import LogLine
from replaywatch.sources.logs.run import EngineRun

_DEFAULT = re.compile(r"Using default cuda graphs (?P<sizes>\[[^\]]*\])")
_ENABLED = re.compile(r"Cuda Graphs are enabled for sizes (?P<sizes>\[[^\]]*\])")
_DISABLED = re.compile(r"Cuda Graphs are disabled(?: \((?P<why>[^)]*)\))?")
_UNSUPPORTED = re.compile(r"(?P<what>\w+) doesn't work with cuda graphs, deactivating them", re.IGNORECASE)
_FAILED = re.compile(r"Decode cuda graph warmup failed")
_MODEL = re.compile(r"model_id: \"(?P<model>[^\"]+)\"")
_VERSION = re.compile(r"\bversion: \"(?P<version>\d+\.\d+\.\d+[\w.-]*)\"")
_READY = re.compile(r"^Connected$|Setting max batch total tokens to")
_MILESTONE = re.compile(r"Starting (?:check and )?download|Waiting for shard|Shard ready|Warming up model")
_SHUTDOWN = re.compile(r"signal received, starting graceful shutdown|Webserver Crashed|Shutting down shards")


def read(line: LogLine, run: EngineRun) -> bool:
    """Take what a line says of graphs; False when it says nothing."""
    message = line.message
    if match := _DEFAULT.search(message):
        run.started = True
        run.configure(requested_mode="cuda_graphs", capture_sizes=as_sizes(read_value(match["sizes"])))
    elif match := _ENABLED.search(message):
        sizes = as_sizes(read_value(match["sizes"]))
        run.capturing, run.milestone = True, "capturing graphs"
        run.tally(line)
        if run.leads(line):
            _enabled(sizes, run)
    elif match := _DISABLED.search(message):
        run.observe("graphs_disabled", match[0], line)
        run.resolve("disabled", match["why"], asked="disabled")
        run.configure(enforced_by=f"variable {match['why']}" if match["why"] else None, capture_sizes=None)
    elif match := _UNSUPPORTED.search(message):
        run.observe("graphs_disabled", match[0], line)
        run.resolve("disabled", f"{match['what']} does not work with graphs", asked="cuda_graphs")
    elif match := _FAILED.search(message):
        run.tally(line).captures["failed"] += 1
        run.observe("capture_failed", "Decode cuda graph warmup failed", line)
        run.resolve("disabled", "Decode cuda graph warmup failed", asked="cuda_graphs")
    else:
        return _facts(line, run)
    return True


def starts_a_run(line: LogLine) -> bool:
    """Whether a line is the first that a new process of the engine writes about its configuration."""
    return line.message.startswith("Args {")


def _enabled(sizes: tuple[int, ...] | None, run: EngineRun) -> None:
    run.configure(
        requested_mode="cuda_graphs",
        resolved_mode="cuda_graphs",
        graphs_enabled=True,
        capture_sizes=sizes,
        max_capture_size=max(sizes or (0,)) or None,
        capture_unit="sequences",
        padding=True,
    )
    run.planned_graphs = len(sizes or ()) or None


def _facts(line: LogLine, run: EngineRun) -> bool:
    if match := _MODEL.search(line.message):
        run.identify(model_name=match["model"])
    elif match := _VERSION.search(line.message):
        run.identify(engine_version=match["version"])
    elif _SHUTDOWN.search(line.message):
        run.stopping = True
    elif _READY.search(line.message):
        if run.planned_graphs and not run.ready and run.config.graphs_enabled:
            run.tally(line).captured(run.planned_graphs)
        run.serving()
    elif match := _MILESTONE.search(line.message):
        run.started, run.milestone = True, match[0]
    else:
        return False
    return True
