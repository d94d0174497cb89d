"""What TensorRT-LLM's PyTorch backend says of its graphs. Its iteration lines carry no graph flag."""

from __future__ import annotations

import re

from replaywatch.sources.logs.literals import as_bool, as_int, as_mapping, as_sizes, read_arguments, read_value
from replaywatch.sources.logs.prefix import LogLine
from replaywatch.sources.logs.rules import DECIMAL, Rule, take_all
from replaywatch.sources.logs.run import EngineRun

_CONFIG = re.compile(r"cuda_graph_config=(?P<value>None|[\w.]*CudaGraphConfig\((?P<args>.*)|\{.*)")
_OLD_CONFIG = re.compile(r"PyTorchConfig\((?P<args>.*)")
_MAX_BATCH = re.compile(r"(?<![\w.])max_batch_size=\d+")
_ADMITTED = re.compile(r"(?<![\w.])max_batch_size=(\d+)")
_GRAPH_CONFIG = re.compile(r"CudaGraphConfig\([^)]*\)")
_MODEL = re.compile(r"LLM Args: .*?\bmodel='(?P<model>[^']+)'")
_COUNT = re.compile(r"Creating CUDA graph instances for (?P<n>\d+) batch sizes")
_WARMUP = re.compile(
    r"Run generation[- ]only CUDA graph warmup(?: \(\w+\))? for batch size=(?P<bs>\d+), draft_len=(?P<draft>\d+)"
)
_SKIPPED = re.compile(r"Skipping CUDA graph warmup.*?batch size=(?P<bs>\d+)")
_TOO_LARGE = re.compile(r"CUDA graph padding is enabled, but one of the given CUDA graph batch sizes.*")
_PIECEWISE = re.compile(r"Run(?:ning)? piecewise CUDA graph warmup")
_ITERATION = re.compile(rf"iter = \d+.*?host_step_time = (?P<ms>{DECIMAL})ms.*?num_scheduled_requests: (?P<n>\d+)")
_VERSION = re.compile(r"TensorRT[- ]LLM version: (?P<version>\d[\w.]*)")
_READY = re.compile(r"Application startup complete|Uvicorn running on|server is ready", re.IGNORECASE)
_DISABLED = re.compile(r"(?:[Dd]isabl\w+|turning off) CUDA [Gg]raphs? (?:because|since|due to|for|as) (?P<why>.*)")
_MILESTONE = re.compile(r"Loading weights|Model init total|Autotuning process|KV cache|LLM Args")


def read(line: LogLine, run: EngineRun) -> bool:
    """Take what a line says of graphs; False when it says nothing."""
    return take_all(_RULES, line, run)


def starts_a_run(line: LogLine) -> bool:
    """Whether a line is the first that a new process of the engine writes about its configuration."""
    return "TensorRT-LLM version: " in line.message or "TensorRT LLM version: " in line.message


def _take_config(match: re.Match[str], line: LogLine, run: EngineRun) -> None:
    run.started = True
    if match["value"] == "None":
        run.configure(requested_mode="disabled", resolved_mode="disabled", graphs_enabled=False)
        run.configure(enforced_by="configuration: cuda_graph_config is null")
        run.observe("graphs_disabled", "cuda_graph_config is null: CUDA graphs are off", line)
        return
    arguments = read_arguments(match["args"]) if match["args"] is not None else as_mapping(read_value(match["value"]))
    run.configure(
        requested_mode="cuda_graph_config",
        resolved_mode="cuda_graph_config",
        graphs_enabled=True,
        capture_sizes=as_sizes(arguments.get("batch_sizes")),
        max_capture_size=as_int(arguments.get("max_batch_size")) or None,
        capture_unit="sequences",
        padding=as_bool(arguments.get("enable_padding")),
    )


def _take_old_config(match: re.Match[str], line: LogLine, run: EngineRun) -> None:
    arguments = read_arguments(match["args"])
    used = as_bool(arguments.get("use_cuda_graph"))
    if used is None:
        return
    run.configure(
        requested_mode="use_cuda_graph" if used else "disabled",
        resolved_mode="use_cuda_graph" if used else "disabled",
        graphs_enabled=used,
        capture_sizes=as_sizes(arguments.get("cuda_graph_batch_sizes")),
        max_capture_size=as_int(arguments.get("cuda_graph_max_batch_size")) or None,
        capture_unit="sequences",
        padding=as_bool(arguments.get("cuda_graph_padding_enabled")),
    )
    if not used:
        run.observe("graphs_disabled", "use_cuda_graph is false: CUDA graphs are off", line)


def _take_max_batch(match: re.Match[str], line: LogLine, run: EngineRun) -> None:
    admitted = _ADMITTED.search(_GRAPH_CONFIG.sub("", line.message))
    if admitted:
        run.configure(max_batch_size=int(admitted[1]))


def _take_model(match: re.Match[str], line: LogLine, run: EngineRun) -> None:
    run.identify(model_name=match["model"])


def _take_count(match: re.Match[str], line: LogLine, run: EngineRun) -> None:
    run.capturing, run.milestone = True, "capturing graphs"
    run.configure(graphs_enabled=True)


def _take_warmup(match: re.Match[str], line: LogLine, run: EngineRun) -> None:
    run.started, run.capturing, run.milestone = True, True, "capturing graphs"
    tally = run.tally(line)
    if not run.leads(line):
        return
    tally.captured(1)
    sizes = {*(run.config.capture_sizes or ()), int(match["bs"])}
    run.configure(capture_sizes=tuple(sorted(sizes)), capture_unit="sequences", graphs_enabled=True)
    if int(match["draft"]):
        run.configure(speculative_tokens=int(match["draft"]))


def _take_skipped(match: re.Match[str], line: LogLine, run: EngineRun) -> None:
    run.observe("sizes_dropped", match[0], line)
    if run.config.capture_sizes:
        kept = tuple(size for size in run.config.capture_sizes if size != int(match["bs"]))
        run.configure(capture_sizes=kept or None)


def _take_too_large(match: re.Match[str], line: LogLine, run: EngineRun) -> None:
    run.observe("sizes_dropped", match[0], line)


def _take_piecewise(match: re.Match[str], line: LogLine, run: EngineRun) -> None:
    run.capturing = True
    run.setting("piecewise", "true")


def _take_iteration(match: re.Match[str], line: LogLine, run: EngineRun) -> None:
    run.serving()
    if run.leads(line):
        tally = run.tally(line)
        tally.step_period.add(int(float(match["ms"]) * 1e6))
        if int(match["n"]):
            tally.sampled_sizes[int(match["n"])] += 1


def _take_version(match: re.Match[str], line: LogLine, run: EngineRun) -> None:
    run.started = True
    run.identify(engine_version=match["version"])


def _take_ready(match: re.Match[str], line: LogLine, run: EngineRun) -> None:
    run.serving()


def _take_disabled(match: re.Match[str], line: LogLine, run: EngineRun) -> None:
    run.observe("graphs_disabled", match[0], line)
    run.resolve("disabled", match["why"])


def _take_milestone(match: re.Match[str], line: LogLine, run: EngineRun) -> None:
    run.started, run.milestone = True, match[0]


_RULES: tuple[Rule, ...] = (
    (_ITERATION, _take_iteration),
    (_WARMUP, _take_warmup),
    (_CONFIG, _take_config),
    (_OLD_CONFIG, _take_old_config),
    (_MAX_BATCH, _take_max_batch),
    (_MODEL, _take_model),
    (_COUNT, _take_count),
    (_SKIPPED, _take_skipped),
    (_TOO_LARGE, _take_too_large),
    (_PIECEWISE, _take_piecewise),
    (_VERSION, _take_version),
    (_READY, _take_ready),
    (_DISABLED, _take_disabled),
    (_MILESTONE, _take_milestone),
)
