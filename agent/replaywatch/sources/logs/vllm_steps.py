"""How vLLM dispatched steps: the table of --cudagraph-metrics, debug lines, and requests running."""

from __future__ import annotations

import re

from replaywatch.contract.window import Mode
from replaywatch.sources.logs.literals import as_sizes, read_value
from replaywatch.sources.logs.prefix import LogLine
from replaywatch.sources.logs.rules import Rule
from replaywatch.sources.logs.run import EngineRun
from replaywatch.sources.logs.vllm_modes import KNOWN_MODES, mode_name

_STEP = re.compile(
    r"Running batch with cudagraph_mode: (?:CUDAGraphMode\.)?(?P<mode>\w+), batch_descriptor: .*?num_tokens=(?P<n>\d+)"
    r"(?:.*?num_reqs=(?P<reqs>\d+))?(?:.*?uniform=(?P<uniform>\w+))?"
)
_ROW = re.compile(
    r"\|\s*(?P<real>\d+)\s*\|\s*(?P<padded>\d+)\s*\|\s*(?P<paddings>\d+)\s*\|\s*(?:CUDAGraphMode\.)?"
    r"(?P<mode>NONE|PIECEWISE|FULL)\s*\|\s*(?P<count>\d+)\s*\|"
)
_TABLE_SETTING = re.compile(r"- (?:Mode: (?:CUDAGraphMode\.)?(?P<mode>\w+)|Capture sizes: (?P<sizes>\[.*))")
_LOAD = re.compile(r"Avg prompt throughput: .*?Running: (?P<running>\d+) reqs")
# With more tokens in a step than any default admits sequences, the step holds a prefill.
_DEFAULT_MAX_SEQUENCES = 1024
_MODES: dict[str, Mode] = {"FULL": "full", "PIECEWISE": "piecewise", "NONE": "eager"}


def _take_step(match: re.Match[str], line: LogLine, run: EngineRun) -> None:
    run.dispatch_seen = True
    run.serving()
    mode = _MODES.get(match["mode"])
    if mode is None:
        return
    tokens = int(match["n"])
    fallback = _fallback(mode, tokens, run)
    sequences = int(match["reqs"]) if match["reqs"] else None if run.config.speculative_tokens else tokens
    run.tally(line).step(mode, size=_size(sequences, tokens, fallback, run), fallback=fallback)


def _take_row(match: re.Match[str], line: LogLine, run: EngineRun) -> None:
    run.dispatch_seen = True
    run.serving()
    mode, real, padded, count = _MODES[match["mode"]], int(match["real"]), int(match["padded"]), int(match["count"])
    tally = run.tally(line)
    fallback = _fallback(mode, real, run)
    sequences = None if run.config.speculative_tokens else real
    tally.step(mode, count, size=_size(sequences, real, fallback, run), fallback=fallback)
    tally.tokens(real, padded, count)


def _decode_like(tokens: int, run: EngineRun) -> bool:
    """Whether a step of so many tokens can be a decode step, one token (and its drafts) a sequence."""
    width = 1 + (run.config.speculative_tokens or 0)
    return tokens <= (run.config.max_batch_size or _DEFAULT_MAX_SEQUENCES) * width


def _size(sequences: int | None, tokens: int, fallback: str | None, run: EngineRun) -> int | None:
    """Sequences of a step, where its tokens can be those of a decode step."""
    return None if fallback == "prefill_by_design" or not _decode_like(tokens, run) else sequences


def _fallback(mode: Mode, tokens: int, run: EngineRun) -> str | None:
    if mode != "eager":
        return None
    config = run.config
    if config.resolved_mode == "NONE":
        return "forced_eager" if config.enforced_by else "mode_none"
    if not _decode_like(tokens, run):
        return "prefill_by_design"
    if config.ceiling is not None and tokens > config.ceiling:
        return "above_ceiling"
    if config.resolved_mode == "FULL_DECODE_ONLY":
        return "prefill_by_design"
    return "ranks_disagree" if (config.data_parallel_size or 1) > 1 else "no_matching_graph"


def _take_table_setting(match: re.Match[str], line: LogLine, run: EngineRun) -> None:
    if match["mode"] and mode_name(match["mode"]) in KNOWN_MODES:
        mode = mode_name(match["mode"])
        run.configure(resolved_mode=mode, requested_mode=run.config.requested_mode or mode)
    elif match["sizes"]:
        run.configure(capture_sizes=as_sizes(read_value(match["sizes"])), capture_unit="tokens")


def _take_load(match: re.Match[str], line: LogLine, run: EngineRun) -> None:
    run.serving()
    running = int(match["running"])
    if running:
        run.tally(line).sampled_sizes[running] += 1


RULES: tuple[Rule, ...] = (
    (_ROW, _take_row),
    (_LOAD, _take_load),
    (_STEP, _take_step),
    (_TABLE_SETTING, _take_table_setting),
)
