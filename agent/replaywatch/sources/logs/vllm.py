"""What vLLM 0.9 to 0.33 says of its graphs.

Strings were read in the sources of 0.21.0, 0.25.1 and 0.33.0, and in public logs of 0.9 to 0.27. Graphs that are
captured for the memory estimate and thrown away again are not counted: the log does not say how many there were.
"""

from __future__ import annotations

import re

from replaywatch.sources.logs import vllm_config, vllm_modes, vllm_steps
from replaywatch.sources.logs.prefix import LogLine
from replaywatch.sources.logs.rules import DECIMAL, Rule, take_first
from replaywatch.sources.logs.run import EngineRun

GIB = 1 << 30

_VERSION = re.compile(r"(?:vLLM API server version|vLLM version|█\s+version) v?(?P<version>\d[\w.+]*)")
_PROFILE = re.compile(r"Profiling CUDA graph memory: (?P<plan>.*)")
_PLANNED = re.compile(r"\w+=(\d+) \(largest=(\d+)\)")
_ESTIMATE = re.compile(rf"Estimated CUDA graph memory: (?P<gib>{DECIMAL}) GiB total")
_POOL = re.compile(
    rf"CUDA graph pool memory: (?P<actual>{DECIMAL}) GiB \(actual\), (?P<estimated>{DECIMAL}) GiB \(estimated\)"
)
_DONE = re.compile(rf"Graph capturing finished in (?P<secs>{DECIMAL}) secs?, took (?P<gib>-?{DECIMAL}) GiB")
_BACKEND = re.compile(r"Using (?P<name>[\w-]+(?: Attention)?) (?:attention )?backend(?: out of| on V1|\.|$)")
_RUNNER = re.compile(r"Using V(?P<n>\d) Model Runner")
_READY = re.compile(
    r"Application startup complete|init engine \(profile, create kv cache|Starting vLLM (?:API )?server"
)
_MILESTONE = re.compile(
    r"Starting to load model|Loading weights took|Model loading took|torch\.compile takes|torch\.compile took"
    r"|Initial profiling/warmup run took|Memory profiling takes|Available KV cache memory|GPU KV cache size"
    r"|Profiling CUDA graph memory|Capturing cudagraphs for decoding"
)
_SHUTDOWN = re.compile(r"\[shutdown\]|trigger(?:ed)? received signal|shutdown triggered")


def read(line: LogLine, run: EngineRun) -> bool:
    """Take what a line says of graphs; False when it says nothing."""
    return take_first(_RULES, line, run)


def starts_a_run(line: LogLine) -> bool:
    """Whether a line is the first that a new process of the engine writes about its configuration."""
    return "non-default args: {" in line.message or "LLM engine (v" in line.message


def _take_profile(match: re.Match[str], line: LogLine, run: EngineRun) -> None:
    run.milestone, run.capturing = "profiling graph memory", True
    planned = [int(count) for count, _ in _PLANNED.findall(match["plan"])]
    run.planned_graphs = sum(planned) or None


def _take_estimate(match: re.Match[str], line: LogLine, run: EngineRun) -> None:
    run.capturing = False
    if run.leads(line):
        run.tally(line).estimated_bytes = round(float(match["gib"]) * GIB)


def _take_pool(match: re.Match[str], line: LogLine, run: EngineRun) -> None:
    if run.leads(line):
        tally = run.tally(line)
        tally.pool_bytes = round(float(match["actual"]) * GIB)
        tally.estimated_bytes = round(float(match["estimated"]) * GIB)


def _take_done(match: re.Match[str], line: LogLine, run: EngineRun) -> None:
    run.capturing = False
    run.milestone = "graphs captured"
    tally = run.tally(line)
    if not run.leads(line):
        return
    graphs = run.bar_graphs or run.planned_graphs or len(run.config.capture_sizes or ()) or 1
    run.bar_graphs = 0
    tally.captured(graphs, int(float(match["secs"]) * 1e9))
    if tally.pool_bytes is None:
        tally.pool_bytes = max(0, round(float(match["gib"]) * GIB))
    run.configure(graphs_enabled=True)


def _take_version(match: re.Match[str], line: LogLine, run: EngineRun) -> None:
    run.identify(engine_version=match["version"])


def _take_backend(match: re.Match[str], line: LogLine, run: EngineRun) -> None:
    run.setting("attention_backend", match["name"])


def _take_runner(match: re.Match[str], line: LogLine, run: EngineRun) -> None:
    run.setting("model_runner", f"v{match['n']}")


def _take_ready(match: re.Match[str], line: LogLine, run: EngineRun) -> None:
    run.serving()


def _take_milestone(match: re.Match[str], line: LogLine, run: EngineRun) -> None:
    run.started = True
    run.milestone = match[0]
    run.capturing = match[0].startswith("Capturing")


def _take_shutdown(match: re.Match[str], line: LogLine, run: EngineRun) -> None:
    run.stopping = True


_RULES: tuple[Rule, ...] = (
    *vllm_steps.RULES,
    *vllm_config.RULES,
    (_VERSION, _take_version),
    *vllm_modes.RULES,
    (_PROFILE, _take_profile),
    (_ESTIMATE, _take_estimate),
    (_POOL, _take_pool),
    (_DONE, _take_done),
    (_BACKEND, _take_backend),
    (_RUNNER, _take_runner),
    (_SHUTDOWN, _take_shutdown),
    (_READY, _take_ready),
    (_MILESTONE, _take_milestone),
)
