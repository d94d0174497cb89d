"""What SGLang says of its graphs, with the strings of 0.4 to 0.5.11 and those since 0.5.16.

Decode lines come once in `decode_log_interval` steps (40 by default): they are samples and are counted as such, each
as one step; nothing is multiplied. Prefill lines come with every prefill batch.
"""

from __future__ import annotations

import re

from replaywatch.contract.window import BlindSpot, Mode, Phase
from replaywatch.sources.logs import sglang_config
from replaywatch.sources.logs.literals import as_sizes, read_value
from replaywatch.sources.logs.prefix import LogLine
from replaywatch.sources.logs.rules import DECIMAL, Rule, take_first
from replaywatch.sources.logs.run import EngineRun

GB = 1 << 30  # SGLang's "GB" is 2**30 bytes

_BATCH = re.compile(
    r"^(?P<phase>Decode|Prefill) batch\b.*?(?:cuda|npu|cpu|xpu) graph: (?P<graph>True|False)\b", re.IGNORECASE
)
_RUNNING = re.compile(r"#running-req: (\d+)")
_NEW_SEQUENCES = re.compile(r"#new-seq: (\d+)")
_BARE_BATCH = re.compile(r"^(?:Decode|Prefill) batch\b")
_CAPTURE = r"Capture (?:(?P<role>\w{1,20}) (?P<phase>\w{1,20}) )?(?P<kind>[\w -]{0,40}?)(?:CUDA|cuda) graph "
_BEGIN = re.compile(_CAPTURE + r"begin\b(?P<rest>.*)")
_END = re.compile(_CAPTURE + r"end\.(?P<rest>.*)")
_ELAPSED = re.compile(rf"(?:Time elapsed: |elapsed=)(?P<secs>{DECIMAL}) s")
_USED = re.compile(rf"mem usage=(?P<gb>-?{DECIMAL}) GB")
_SIZES = re.compile(r"\b(?:bs|num_tokens)=(?P<sizes>\[.*?\])")
_BACKEND = re.compile(r"\bbackend=(?P<name>\w+)")
_OLD_SIZES = re.compile(
    r"Capture (?P<piecewise>piecewise )?(?:cuda|CUDA) graph (?:bs|num tokens) (?P<sizes>\[[^\]]*\])"
)
_FAILED = re.compile(r"Capture (?P<what>[\w -]{0,40}?)(?:cuda|CUDA) graph failed: ?(?P<why>.*)")
_DISABLE_PREFILL = re.compile(
    r"Disabl\w+ (?:(?P<role>[\w-]{1,20}) )?(?:prefill|piecewise) (?:CUDA|cuda) graph(?: capture)?:?"
    r"(?: by default)?(?: (?:because|since|due to|for))? (?P<why>.*)"
    r"|(?P<why2>(?:CUDA|cuda) graph\b.{0,80}? is incompatible with .*?); disabling (?:it|prefill CUDA graph)\b"
)
_DISABLED = re.compile(
    r"(?:CUDA|[Cc]uda) graph(?: and [\w -]{1,40}?)? (?:is|are|was|has been) disabled"
    r"(?: (?:because|since|due to|for))? ?(?P<why>.*)"
    r"|Disabl\w+ (?:CUDA|cuda) graph (?:because|since|due to|for) (?P<why2>.*)"
    r"|^(?P<why3>[\w ().-]{1,80}): (?:forcing --.*--disable-cuda-graph\b|dwdp_size=.*disable_cuda_graph=True).*"
    r"|^(?P<why4>Double sparsity [\w ]{1,60})\. Use \w{1,20} backend without (?:CUDA|cuda) graph"
)
_DRAFT_OFF = re.compile(
    r"Disabl\w+ [\w-]{1,20} draft cuda graph because .*|can't use cuda graph for draft extend"
    r"|draft CUDA graph is only supported on .*running the draft loop eagerly.*"
)
# Graphs are captured and replayed, and yet every operation runs eagerly.
_DEBUG = re.compile(r"Debug mode for CUDA graph is enabled.*? All operations will run eagerly.*")
_LIMITS = re.compile(r"max_total_num_tokens=\d+.*?max_running_requests=(?P<n>\d+)")
_DEDUP = re.compile(r"captured (?P<n>\d+) CUDA graphs, deduped to (?P<execs>\d+) execs")
_READY = re.compile(r"The server is fired up and ready to roll|Uvicorn running on|Application startup complete")
_MILESTONE = re.compile(
    r"Init torch distributed begin|Load weight begin|Load weight end|Memory pool end|KV Cache is allocated"
)
_SHUTDOWN = re.compile(r"SIGTERM received|exit code -15|Gracefully exiting")
_RELEASE = re.compile(r"(\d{1,4})\.(\d{1,4})\.(\d{1,4})(?:\.post(\d{1,4}))?")
_VERSION = re.compile(r"\bsglang(?:_version)?[ =:v]+(?P<version>\d+\.\d+[\w.]*)", re.IGNORECASE)


def read(line: LogLine, run: EngineRun) -> bool:
    """Take what a line says of graphs; False when it says nothing."""
    return take_first(_RULES, line, run)


def starts_a_run(line: LogLine) -> bool:
    """Whether a line is the first that a new process of the engine writes about its configuration."""
    return sglang_config.starts_a_run(line)


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
    if running * _ranks_in_a_size(run) > config.ceiling:
        return "above_ceiling"
    padded_away = config.padding is False and config.capture_sizes and running not in config.capture_sizes
    return "no_matching_graph" if padded_away else "other"


def _ranks_in_a_size(run: EngineRun) -> int:
    """How many data-parallel ranks' sequences a graph must hold: with attention shared, all of them in old releases.

    Since 0.4.9.post4 the ranks pad to the largest of them, whose size the line of another rank does not tell.
    """
    version = _RELEASE.match(run.fingerprint.engine_version or "")
    if version is None or not run.config.settings.get("enable_dp_attention"):
        return 1
    sums = tuple(int(part or 0) for part in version.groups()) < (0, 4, 9, 4)
    return (run.config.data_parallel_size or 1) if sums else 1


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
    component = "draft" if match["role"] == "draft" else None
    if component is None:
        why = match["why"] or match["why2"]
        run.configure("prefill", resolved_mode="disabled", mode_reason=why, graphs_enabled=False)
    run.observe("graphs_disabled", match[0], line, phase="prefill", component=component)


def _take_draft_off(match: re.Match[str], line: LogLine, run: EngineRun) -> None:
    run.main_phase = run.main_phase or "decode"
    run.observe("graphs_disabled", match[0], line, component="draft")


def _take_debug(match: re.Match[str], line: LogLine, run: EngineRun) -> None:
    run.main_phase = run.main_phase or "decode"
    run.observe("graphs_disabled", match[0], line)


def _take_disabled(match: re.Match[str], line: LogLine, run: EngineRun) -> None:
    run.main_phase = run.main_phase or "decode"
    run.observe("graphs_disabled", match[0], line)
    run.resolve("disabled", match["why"] or match["why2"] or match["why3"] or match["why4"])


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


_RULES: tuple[Rule, ...] = (
    (_BATCH, _take_batch),
    (_BARE_BATCH, _take_nothing),
    *sglang_config.RULES,
    (_FAILED, _take_failed),
    (_BEGIN, _take_begin),
    (_END, _take_end),
    (_OLD_SIZES, _take_old_sizes),
    (_DISABLE_PREFILL, _take_disable_prefill),
    (_DRAFT_OFF, _take_draft_off),
    (_DEBUG, _take_debug),
    (_DISABLED, _take_disabled),
    (_LIMITS, _take_limits),
    (_DEDUP, _take_dedup),
    (_READY, _take_ready),
    (_MILESTONE, _take_milestone),
    (_SHUTDOWN, _take_shutdown),
    (_VERSION, _take_version),
)
