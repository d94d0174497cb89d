"""What SGLang says of its graphs, with the strings of 0.4 to 0.5.11 and those since 0.5.16.

Decode lines come once in `decode_log_interval` steps (40 by default): they are samples and are counted as such, each
as one step; nothing is multiplied. Prefill lines come with every prefill batch.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from replaywatch.contract.window import BlindSpot, Mode, Phase
from replaywatch.sources.logs.literals import (
    as_bool,
    as_int,
    as_mapping,
    as_sizes,
    as_text,
    read_arguments,
    read_value,
)
from replaywatch.sources.logs.prefix import LogLine
from replaywatch.sources.logs.run import EngineRun

GB = 1 << 30  # SGLang's "GB" is 2**30 bytes
_OFF = ("disabled", "none", "off")

_ARGS = re.compile(r"server_args=ServerArgs\((?P<args>.*)")
_BATCH = re.compile(
    r"^(?P<phase>Decode|Prefill) batch\b.*?(?:cuda|npu|cpu|xpu) graph: (?P<graph>True|False)\b", re.IGNORECASE
)
_RUNNING = re.compile(r"#running-req: (\d+)")
_NEW_SEQUENCES = re.compile(r"#new-seq: (\d+)")
_BARE_BATCH = re.compile(r"^(?:Decode|Prefill) batch\b")
_BEGIN = re.compile(
    r"Capture (?:(?P<role>\w+) (?P<phase>\w+) )?(?P<kind>[\w ]*?)?(?:CUDA|cuda) graph begin\.(?P<rest>.*)"
)
_END = re.compile(r"Capture (?:(?P<role>\w+) (?P<phase>\w+) )?(?P<kind>[\w ]*?)?(?:CUDA|cuda) graph end\.(?P<rest>.*)")
_ELAPSED = re.compile(r"(?:Time elapsed: |elapsed=)(?P<secs>[\d.]+) s")
_USED = re.compile(r"mem usage=(?P<gb>-?[\d.]+) GB")
_SIZES = re.compile(r"\b(?:bs|num_tokens)=(?P<sizes>\[.*?\])")
_BACKEND = re.compile(r"\bbackend=(?P<name>\w+)")
_OLD_SIZES = re.compile(
    r"Capture (?P<piecewise>piecewise )?(?:cuda|CUDA) graph (?:bs|num tokens) (?P<sizes>\[[^\]]*\])"
)
_FAILED = re.compile(r"Capture (?P<what>[\w ]*?)(?:cuda|CUDA) graph failed: ?(?P<why>.*)")
_DISABLE_PREFILL = re.compile(
    r"Disabl\w+ (?:prefill|piecewise) (?:CUDA|cuda) graph (?:because|since|due to) (?P<why>.*)"
)
_DISABLED = re.compile(
    r"(?:CUDA|[Cc]uda) graph (?:is|was|has been) disabled(?: (?:because|since|due to|for))? ?(?P<why>.*)"
    r"|Disabl\w+ (?:CUDA|cuda) graph (?:because|since|due to|for) (?P<why2>.*)"
)
_LIMITS = re.compile(r"max_total_num_tokens=\d+.*?max_running_requests=(?P<n>\d+)")
_DEDUP = re.compile(r"captured (?P<n>\d+) CUDA graphs, deduped to (?P<execs>\d+) execs")
_READY = re.compile(r"The server is fired up and ready to roll|Uvicorn running on|Application startup complete")
_MILESTONE = re.compile(
    r"Init torch distributed begin|Load weight begin|Load weight end|Memory pool end|KV Cache is allocated"
)
_SHUTDOWN = re.compile(r"SIGTERM received|exit code -15|Gracefully exiting")
_VERSION = re.compile(r"\bsglang(?:_version)?[ =:v]+(?P<version>\d+\.\d+[\w.]*)", re.IGNORECASE)


def read(line: LogLine, run: EngineRun) -> bool:
    """Take what a line says of graphs; False when it says nothing."""
    for pattern, take in _RULES:
        match = pattern.search(line.message)
        if match:
            take(match, line, run)
            return True
    return False


def starts_a_run(line: LogLine) -> bool:
    """Whether a line is the first that a new process of the engine writes about its configuration."""
    return "server_args=ServerArgs(" in line.message


def _take_args(match: re.Match[str], line: LogLine, run: EngineRun) -> None:
    run.started = True
    arguments = read_arguments(match["args"])
    graphs = as_mapping(arguments.get("cuda_graph_config"))
    role = as_text(arguments.get("disaggregation_mode"))
    run.main_phase = "prefill" if role == "prefill" else "decode"
    run.configure(
        max_batch_size=as_int(arguments.get("max_running_requests")),
        padding=_negated(arguments.get("disable_cuda_graph_padding")),
        compile_mode="torch.compile" if as_bool(arguments.get("enable_torch_compile")) else None,
        speculative_tokens=as_int(arguments.get("speculative_num_draft_tokens")),
        data_parallel_size=as_int(arguments.get("dp_size")),
        tensor_parallel_size=as_int(arguments.get("tp_size")),
        role=role if role not in ("null", None) else None,
    )
    _configure_phase("decode", arguments, as_mapping(graphs.get("decode")), run)
    _configure_phase("prefill", arguments, as_mapping(graphs.get("prefill")), run)
    if as_bool(arguments.get("disable_cuda_graph")):
        run.configure(requested_mode="disabled", resolved_mode="disabled", graphs_enabled=False)
        run.configure(enforced_by="flag --disable-cuda-graph")
        run.observe("graphs_disabled", "--disable-cuda-graph is set", line)
    for name in ("attention_backend", "decode_log_interval", "enable_dp_attention", "quantization"):
        if arguments.get(name) not in (None, False):
            run.setting(name, str(arguments[name]))
    model = as_text(arguments.get("served_model_name")) or as_text(arguments.get("model_path"))
    run.identify(model_name=model)


def _negated(value: object) -> bool | None:
    flag = as_bool(value)
    return None if flag is None else not flag


def _configure_phase(phase: Phase, arguments: Mapping[str, object], own: Mapping[str, object], run: EngineRun) -> None:
    """Settings of one phase: `cuda_graph_config` since 0.5.16, flat flags before."""
    prefix = "cuda_graph" if phase == "decode" else "piecewise_cuda_graph"
    backend = as_text(own.get("backend")) or as_text(arguments.get(f"cuda_graph_backend_{phase}"))
    sizes = as_sizes(own.get("bs")) or as_sizes(arguments.get(f"cuda_graph_bs_{phase}"))
    top = as_int(own.get("max_bs")) or as_int(arguments.get(f"cuda_graph_max_bs_{phase}"))
    if phase == "decode":
        sizes, top = (
            sizes or as_sizes(arguments.get("cuda_graph_bs")),
            top or as_int(arguments.get("cuda_graph_max_bs")),
        )
        mode = backend or "full"
    else:
        sizes = sizes or as_sizes(arguments.get(f"{prefix}_tokens"))
        top = top or as_int(arguments.get(f"{prefix}_max_tokens"))
        mode = backend or ("piecewise" if as_bool(arguments.get("enable_piecewise_cuda_graph")) else "disabled")
    run.configure(
        phase,
        requested_mode=mode,
        resolved_mode=mode,
        graphs_enabled=mode not in _OFF,
        capture_sizes=sizes if mode not in _OFF else None,
        max_capture_size=top if mode not in _OFF else None,
        capture_unit="sequences" if phase == "decode" else "tokens",
    )


def _take_batch(match: re.Match[str], line: LogLine, run: EngineRun) -> None:
    run.dispatch_seen = True
    run.serving()
    phase: Phase = "decode" if match["phase"] == "Decode" else "prefill"
    run.main_phase = run.main_phase or "decode"
    tally = run.tally(line, phase)
    counted = (_RUNNING if phase == "decode" else _NEW_SEQUENCES).search(line.message)
    size = int(counted[1]) if counted else None
    if match["graph"].lower() == "true":
        tally.step("full" if phase == "decode" else _prefill_mode(run), size=size)
    else:
        reason = _decode_fallback(size, run) if phase == "decode" else "prefill_by_design"
        tally.step("eager", size=size, fallback=reason)
    if phase == "decode":
        every = run.config.settings.get("decode_log_interval", "40")
        tally.blind[BlindSpot("step counts", f"SGLang logs one decode step in {every}; each line counts as one")] = None


def _prefill_mode(run: EngineRun) -> Mode:
    config = run.phase_configs.get("prefill")
    return "full" if config is not None and config.resolved_mode == "full" else "piecewise"


def _decode_fallback(running: int | None, run: EngineRun) -> str:
    config = run.config
    if config.graphs_enabled is False:
        return "forced_eager" if config.enforced_by else "mode_none"
    if running is None or config.ceiling is None:
        return "other"
    summed = running * (config.data_parallel_size or 1) if config.settings.get("enable_dp_attention") else running
    if summed > config.ceiling:
        return "above_ceiling"
    padded_away = config.padding is False and config.capture_sizes and running not in config.capture_sizes
    return "no_matching_graph" if padded_away else "other"


def _part(match: re.Match[str]) -> tuple[Phase, str | None]:
    """Phase and component of a capture; verifying drafts is what decoding does with speculation."""
    role, phase, kind = match["role"], match["phase"], match["kind"] or ""
    words = f"{role or ''} {phase or ''} {kind}"
    return ("prefill" if "prefill" in words or "piecewise" in words else "decode"), (
        "draft" if "draft" in words else None
    )


def _take_begin(match: re.Match[str], line: LogLine, run: EngineRun) -> None:
    run.started, run.capturing, run.milestone = True, True, "capturing graphs"
    phase, component = _part(match)
    run.main_phase = run.main_phase or "decode"
    sizes = _SIZES.search(match["rest"])
    backend = _BACKEND.search(match["rest"])
    run.bar_graphs = 0
    if sizes:
        captured = as_sizes(read_value(sizes["sizes"]))
        run.planned_graphs = len(captured or ()) or None
        if component is None:
            run.configure(phase, capture_sizes=captured, max_capture_size=max(captured or (0,)) or None)
    if backend and component is None:
        run.configure(phase, resolved_mode=backend["name"], graphs_enabled=True)


def _take_end(match: re.Match[str], line: LogLine, run: EngineRun) -> None:
    run.capturing = False
    phase, component = _part(match)
    run.main_phase = run.main_phase or "decode"
    tally = run.tally(line, phase, component)
    if not run.leads(line):
        return
    elapsed, used = _ELAPSED.search(match["rest"]), _USED.search(match["rest"])
    sizes = _SIZES.search(match["rest"])
    listed = as_sizes(read_value(sizes["sizes"])) if sizes else None
    known = run.config.capture_sizes if phase == "decode" and component is None else None
    graphs = len(listed or ()) or run.planned_graphs or run.bar_graphs or len(known or ()) or 1
    tally.captured(graphs, int(float(elapsed["secs"]) * 1e9) if elapsed else None)
    if used:
        owner = " ".join(w for w in (match["role"], match["phase"], (match["kind"] or "").strip()) if w) or "target"
        tally.bytes_by_owner[owner] = max(0, round(float(used["gb"]) * GB))
    if component == "draft":
        reason = "SGLang's log lines do not say whether draft graphs are replayed; run under the probe"
        tally.blind[BlindSpot("dispatch", reason)] = None
    run.planned_graphs, run.bar_graphs = None, 0


def _take_old_sizes(match: re.Match[str], line: LogLine, run: EngineRun) -> None:
    sizes = as_sizes(read_value(match["sizes"]))
    phase: Phase = "prefill" if match["piecewise"] else "decode"
    run.main_phase = run.main_phase or "decode"
    run.planned_graphs = len(sizes or ()) or None
    run.configure(
        phase,
        capture_sizes=sizes,
        max_capture_size=max(sizes or (0,)) or None,
        capture_unit="tokens" if match["piecewise"] else "sequences",
        graphs_enabled=True,
    )


def _take_failed(match: re.Match[str], line: LogLine, run: EngineRun) -> None:
    run.main_phase = run.main_phase or "decode"
    run.tally(line, "prefill" if "piecewise" in match["what"] else "decode").captures["failed"] += 1
    run.observe("capture_failed", match[0], line)
    if "out of memory" in match["why"]:
        run.observe("out_of_memory", "CUDA out of memory while capturing graphs", line)
    run.last_exception = "Capture cuda graph failed"


def _take_disable_prefill(match: re.Match[str], line: LogLine, run: EngineRun) -> None:
    run.main_phase = run.main_phase or "decode"
    run.configure("prefill", resolved_mode="disabled", mode_reason=match["why"], graphs_enabled=False)
    run.tally(line, "prefill").observe("graphs_disabled", match[0], line.where)


def _take_disabled(match: re.Match[str], line: LogLine, run: EngineRun) -> None:
    run.main_phase = run.main_phase or "decode"
    run.observe("graphs_disabled", match[0], line)
    run.resolve("disabled", match["why"] or match["why2"])


def _take_limits(match: re.Match[str], line: LogLine, run: EngineRun) -> None:
    run.configure(max_batch_size=int(match["n"]))


def _take_dedup(match: re.Match[str], line: LogLine, run: EngineRun) -> None:
    run.tally(line).live_graphs = int(match["execs"])


def _take_ready(match: re.Match[str], line: LogLine, run: EngineRun) -> None:
    run.serving()


def _take_milestone(match: re.Match[str], line: LogLine, run: EngineRun) -> None:
    run.started, run.milestone = True, match[0]


def _take_shutdown(match: re.Match[str], line: LogLine, run: EngineRun) -> None:
    run.stopping = True


def _take_version(match: re.Match[str], line: LogLine, run: EngineRun) -> None:
    run.identify(engine_version=match["version"])


def _take_nothing(match: re.Match[str], line: LogLine, run: EngineRun) -> None:
    run.serving()


_Take = Callable[["re.Match[str]", LogLine, EngineRun], None]
_RULES: tuple[tuple[re.Pattern[str], _Take], ...] = (
    (_BATCH, _take_batch),
    (_BARE_BATCH, _take_nothing),
    (_ARGS, _take_args),
    (_FAILED, _take_failed),
    (_BEGIN, _take_begin),
    (_END, _take_end),
    (_OLD_SIZES, _take_old_sizes),
    (_DISABLE_PREFILL, _take_disable_prefill),
    (_DISABLED, _take_disabled),
    (_LIMITS, _take_limits),
    (_DEDUP, _take_dedup),
    (_READY, _take_ready),
    (_MILESTONE, _take_milestone),
    (_SHUTDOWN, _take_shutdown),
    (_VERSION, _take_version),
)
