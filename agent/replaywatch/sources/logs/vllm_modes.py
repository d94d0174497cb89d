"""How vLLM arrives at the graph mode that it runs: names of modes, and every sentence about a change."""

from __future__ import annotations

import re

from replaywatch.sources.logs.literals import as_int, as_sizes, as_text, read_value
from replaywatch.sources.logs.prefix import LogLine
from replaywatch.sources.logs.rules import Rule
from replaywatch.sources.logs.run import EngineRun

_NOT_SUPPORTED = re.compile(
    r"CUDAGraphMode\.(?P<old>\w+) is not supported with (?P<why>.*?); setting cudagraph_mode=(?P<new>\w+)(?P<more>.*)"
)
_OVERRIDE = re.compile(
    r"^(?=.*[Cc](?:UDA|uda) ?[Gg]raph)(?P<why>.*?)[.,;]?\s*"
    r"(?:Overriding (?:cudagraph_mode )?(?:from )?(?:(?!to )(?P<old>\S+) )?to "
    r"|Setting cudagraph_mode to )(?P<new>[\w.]+)"
)
_OLD_MODE = re.compile(r"Cudagraph mode (?P<old>\S+)", re.IGNORECASE)
_EAGER = re.compile(
    r"Enforce eager set, disabling torch\.compile|Cudagraph is disabled under eager mode"
    r"|Skipping (?:encoder and decoder )?CUDA graph capture\."
)
_UNSUPPORTED = re.compile(
    r"CUDA graph is not supported (?:for|on) (?P<what>.+?)(?: yet)?, (?:fallback to (?:the )?eager|disabling cudagr)"
    r"|Forcing enforce eager to be True since (?P<why>.*)"
)
_DRAFT_EAGER = re.compile(
    r"\w{1,40} draft attention \(.*?\) does not support full CUDA graphs; running the draft eagerly"
    r"|the eagle proposer only supports cudagraph_mode PIECEWISE"
)
_DISABLING = re.compile(
    r"(?:\w+: )?Disabling (?:CUDA Graphs|cudagraphs?) (?:since|because|for|due to) (?P<why>.*)", re.I
)
_CAPPED = re.compile(
    r"(?:Capping cudagraph capture sizes from max \d+|Truncating max_cudagraph_capture_size) to (?P<new>\d+)[^.]*"
    r"|^(?:Removed|Dropped|Skipped|Filtered)\b[^.]*\bcudagraph(?:_capture)?[_ ]sizes?\b.*",
    re.IGNORECASE,
)
_OVERRIDDEN = re.compile(
    r"cudagraph_capture_sizes specified in compilation_config (?P<old>\[.*?\]) is overridden by config (?P<new>\[.*?\])"
)
_MODE_NUMBERS = {0: "NONE", 1: "PIECEWISE", 2: "FULL"}
_MODE_PAIRS = {(2, 0): "FULL_DECODE_ONLY", (2, 1): "FULL_AND_PIECEWISE"}
KNOWN_MODES = {"NONE", "PIECEWISE", "FULL", "FULL_DECODE_ONLY", "FULL_AND_PIECEWISE"}


def mode_name(value: object) -> str | None:
    """A graph mode in the engine's words, from `2`, `[2, 1]`, `FULL`, `CUDAGraphMode.FULL`."""
    number = as_int(value)
    if number is not None:
        return _MODE_NUMBERS.get(number)
    if isinstance(value, list) and len(value) == 2:
        first, second = as_int(value[0]), as_int(value[1])
        return _MODE_PAIRS.get((first, second)) if first is not None and second is not None else None
    text = as_text(value)
    return text.rpartition(".")[2].upper() if text else None


def forced(line: LogLine, run: EngineRun) -> None:
    """Eager execution was asked for, unless vLLM has said that it forces it itself."""
    config = run.config
    if config.resolved_mode == "NONE" and config.mode_reason and not config.enforced_by:
        return
    run.observe("graphs_disabled", "enforce_eager is set: torch.compile and CUDA graphs are off", line)
    run.configure(enforced_by=run.config.enforced_by or "configuration: enforce_eager")
    run.resolve("NONE", "enforce_eager is set")


def _take_eager(match: re.Match[str], line: LogLine, run: EngineRun) -> None:
    if match[0].startswith("Skipping"):
        run.observe("graphs_disabled", "CUDA graph capture was skipped: cudagraph_mode is NONE", line)
        run.resolve("NONE", run.config.mode_reason or "cudagraph_mode is NONE")
        run.capturing = False
    else:
        forced(line, run)


def _take_unsupported(match: re.Match[str], line: LogLine, run: EngineRun) -> None:
    run.observe("graphs_disabled", match[0], line)
    run.resolve("NONE", match["why"] or f"CUDA graphs are not supported on {match['what']}")


def _take_draft_eager(match: re.Match[str], line: LogLine, run: EngineRun) -> None:
    run.observe("graphs_disabled", match[0], line, component="draft")


def _downgrade(line: LogLine, run: EngineRun, old: str | None, new: str, reason: str) -> None:
    asked = mode_name(old) or run.config.resolved_mode or run.config.requested_mode
    target = mode_name(new) or new
    if asked != target:
        run.observe("mode_downgrade", f"{asked or 'the requested mode'} became {target}: {reason}", line)
    run.resolve(target, reason, asked=asked)


def _take_not_supported(match: re.Match[str], line: LogLine, run: EngineRun) -> None:
    more = match["more"].strip(" .")
    reason = f"{match['old']} is not supported with {match['why']}" + (f"; {more}" if more else "")
    _downgrade(line, run, match["old"], match["new"], reason)


def _take_override(match: re.Match[str], line: LogLine, run: EngineRun) -> None:
    named = _OLD_MODE.search(match["why"])
    old = (match["old"] or (named["old"] if named else "") or "").strip(".,")
    _downgrade(line, run, old if mode_name(old) in KNOWN_MODES else None, match["new"].strip("."), match["why"])


def _take_disabling(match: re.Match[str], line: LogLine, run: EngineRun) -> None:
    run.observe("graphs_disabled", match[0], line)
    run.resolve("NONE", match["why"])


def _take_capped(match: re.Match[str], line: LogLine, run: EngineRun) -> None:
    run.observe("sizes_dropped", match[0], line)
    if match["new"]:
        top = int(match["new"])
        kept = tuple(size for size in run.config.capture_sizes or () if size <= top)
        run.configure(max_capture_size=top, capture_sizes=kept or None)


def _take_overridden(match: re.Match[str], line: LogLine, run: EngineRun) -> None:
    old, new = as_sizes(read_value(match["old"])), as_sizes(read_value(match["new"]))
    if dropped := sorted(set(old or ()) - set(new or ())):
        gone = ", ".join(map(str, dropped))
        run.observe("sizes_dropped", f"capture sizes that were asked for are left out: {gone}", line)
    run.configure(capture_sizes=new, max_capture_size=max(new or (0,)) or None)


RULES: tuple[Rule, ...] = (
    (_NOT_SUPPORTED, _take_not_supported),
    (_OVERRIDE, _take_override),
    (_UNSUPPORTED, _take_unsupported),
    (_DRAFT_EAGER, _take_draft_eager),
    (_EAGER, _take_eager),
    (_DISABLING, _take_disabling),
    (_CAPPED, _take_capped),
    (_OVERRIDDEN, _take_overridden),
)
