"""What llama.cpp says of its graphs, at debug level: old strings (2024) and new ones.

Each line is about one evaluation of a ggml graph. A step can need several (one a device), so counts here are
evaluations; that is said in a blind spot.
"""

from __future__ import annotations

import re

from replaywatch.contract.window import BlindSpot
from replaywatch.sources.logs.prefix import LogLine
from replaywatch.sources.logs.run import EngineRun
from replaywatch.sources.logs.tally import Tally

_DISABLING = re.compile(r"disabling CUDA graphs due to (?P<why>[^\[\n]+)")
_REUSED = re.compile(r"CUDA Graph id (?P<id>\d+) reused")
_WARMUP_DONE = re.compile(r"CUDA graph warmup complete(?!:)")
_UPDATE_FAILED = re.compile(r"CUDA graph update failed")
_BUILD = re.compile(r"\bbuild: (?P<build>\d+ \([0-9a-f]+\))")
_DEVICE = re.compile(r"Device \d+: (?P<name>[^,]+), compute capability")
_SYSTEM = re.compile(r"USE_GRAPHS = (?P<on>[01])")
_NAME = re.compile(r"general\.name\s+(?:str\s+)?= (?P<name>.+)|print_info: general\.name\s+= (?P<name2>.+)")
_READY = re.compile(r"server is listening|all slots are idle|starting the main loop")
_FALLBACKS = (
    ("batch size > 1", "prefill_by_design"),
    ("too many consecutive updates", "rerecord_limit"),
    ("failed graph capture", "capture_failed"),
    ("GPU architecture", "mode_none"),
    ("environment", "forced_eager"),
)
# These hold for the rest of the process.
_FOR_GOOD = ("GPU architecture", "too many consecutive updates", "failed graph capture", "environment")
_EVALUATIONS = BlindSpot("step counts", "llama.cpp's debug lines count evaluations of ggml graphs, not decode steps")


def read(line: LogLine, run: EngineRun) -> bool:
    """Take what a line says of graphs; False when it says nothing."""
    return _dispatch(line, run) or _facts(line, run)


def _dispatch(line: LogLine, run: EngineRun) -> bool:
    if match := _DISABLING.search(line.message):
        _disabling(match["why"].strip(), line, run)
    elif _REUSED.search(line.message):
        tally = _counted(line, run)
        tally.step("full")
        tally.replays = (tally.replays or 0) + 1
    elif _WARMUP_DONE.search(line.message):
        _counted(line, run).captures["ok"] += 1
    elif _UPDATE_FAILED.search(line.message):
        tally = _counted(line, run)
        tally.updates["failed"] += 1
        run.observe("graph_update_failed", "CUDA graph update failed; the graph was instantiated again", line)
    else:
        return False
    return True


def _counted(line: LogLine, run: EngineRun) -> Tally:
    run.dispatch_seen = True
    run.serving()
    tally = run.tally(line)
    tally.blind[_EVALUATIONS] = None
    return tally


def _disabling(why: str, line: LogLine, run: EngineRun) -> None:
    reason = next((name for text, name in _FALLBACKS if text in why), "incompatible_op")
    _counted(line, run).step("eager", fallback=reason)
    if reason == "prefill_by_design":
        return
    run.observe("graphs_disabled", f"disabling CUDA graphs due to {why}", line)
    if any(text in why for text in _FOR_GOOD):
        run.resolve("disabled", why)


def _facts(line: LogLine, run: EngineRun) -> bool:
    found = False
    if match := _BUILD.search(line.message):
        found = True
        run.started = True
        run.identify(engine_version=match["build"])
    if match := _DEVICE.search(line.message):
        found = True
        run.identify(gpu_model=match["name"].strip())
    if match := _SYSTEM.search(line.message):
        found = True
        run.configure(
            graphs_enabled=match["on"] == "1",
            requested_mode="USE_GRAPHS",
            resolved_mode=run.config.resolved_mode or ("USE_GRAPHS" if match["on"] == "1" else "disabled"),
        )
    if match := _NAME.search(line.message):
        found = True
        run.identify(model_name=(match["name"] or match["name2"]).strip())
    if _READY.search(line.message):
        found = True
        run.serving()
    return found
