"""What vLLM 0.9 to 0.33 says of its graphs.

Strings were read in the sources of 0.21.0, 0.25.1 and 0.33.0, and in public logs of 0.9 to 0.27. Graphs that are
captured for the memory estimate and thrown away again are not counted: the log does not say how many there were.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from replaywatch.contract.window import Mode
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

GIB = 1 << 30
# With more tokens in a step than any default admits sequences, the step holds a prefill.
_DEFAULT_MAX_SEQUENCES = 1024

_INIT = re.compile(r"Initializing an? (?:V[01] )?LLM engine \(v?(?P<version>[^)\s]+)\) with config: (?P<config>.*)")
_ARGS = re.compile(r"non-default args: (?P<args>\{.*)")
_VERSION = re.compile(r"(?:vLLM API server version|vLLM version|█\s+version) v?(?P<version>\d[\w.+]*)")
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
    r"Enforce eager set, disabling torch\.compile|Cudagraph is disabled under eager mode|Skipping CUDA graph capture\."
)
_DISABLING = re.compile(
    r"(?:\w+: )?Disabling (?:CUDA Graphs|cudagraphs?) (?:since|because|for|due to) (?P<why>.*)", re.I
)
_CAPPED = re.compile(
    r"Capping cudagraph capture sizes from max \d+ to (?P<new>\d+)[^.]*"
    r"|^(?:Removed|Dropped|Skipped|Filtered)\b[^.]*\bcudagraph(?:_capture)?[_ ]sizes?\b.*",
    re.IGNORECASE,
)
_PROFILE = re.compile(r"Profiling CUDA graph memory: (?P<plan>.*)")
_PLANNED = re.compile(r"\w+=(\d+) \(largest=(\d+)\)")
_ESTIMATE = re.compile(r"Estimated CUDA graph memory: (?P<gib>[\d.]+) GiB total")
_POOL = re.compile(
    r"CUDA graph pool memory: (?P<actual>[\d.]+) GiB \(actual\), (?P<estimated>[\d.]+) GiB \(estimated\)"
)
_DONE = re.compile(r"Graph capturing finished in (?P<secs>\d+(?:\.\d+)?) secs?, took (?P<gib>-?\d+\.\d+) GiB")
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
_MODES: dict[str, Mode] = {"FULL": "full", "PIECEWISE": "piecewise", "NONE": "eager"}
_MODE_NUMBERS = {0: "NONE", 1: "PIECEWISE", 2: "FULL"}
_MODE_PAIRS = {(2, 0): "FULL_DECODE_ONLY", (2, 1): "FULL_AND_PIECEWISE"}


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
    return "non-default args: {" in line.message or "LLM engine (v" in line.message


def _take_init(match: re.Match[str], line: LogLine, run: EngineRun) -> None:
    run.started = True
    arguments = read_arguments(match["config"])
    compilation = as_mapping(arguments.get("compilation_config"))
    mode = _configured_mode(arguments, compilation)
    sizes = as_sizes(compilation.get("cudagraph_capture_sizes"))
    top = as_int(compilation.get("max_cudagraph_capture_size")) or as_int(compilation.get("max_capture_size"))
    eager = as_bool(arguments.get("enforce_eager"))
    if eager:
        _forced(line, run)
    run.configure(
        requested_mode=run.config.requested_mode or mode,
        resolved_mode="NONE" if eager else mode or run.config.resolved_mode,
        graphs_enabled=None if mode is None and not eager else not eager and mode != "NONE",
        capture_sizes=sizes if not eager and mode != "NONE" else None,
        max_capture_size=top if not eager else None,
        capture_unit="tokens",
        padding=True,
        compile_mode=_compile_mode(compilation),
        tensor_parallel_size=as_int(arguments.get("tensor_parallel_size")),
        data_parallel_size=as_int(arguments.get("data_parallel_size")) or run.config.data_parallel_size,
        max_batch_size=as_int(arguments.get("max_num_seqs")) or run.config.max_batch_size,
        speculative_tokens=_draft_tokens(arguments) or run.config.speculative_tokens,
    )
    for name in ("quantization", "kv_cache_dtype", "dtype"):
        if text := as_text(arguments.get(name)):
            run.setting(name, text)
    if as_bool(as_mapping(arguments.get("observability_config")).get("cudagraph_metrics")):
        run.setting("cudagraph_metrics", "true")
    model = as_text(arguments.get("served_model_name")) or as_text(arguments.get("model"))
    run.identify(engine_version=match["version"], model_name=model or run.fingerprint.model_name)


def _configured_mode(arguments: dict[str, object], compilation: object) -> str | None:
    settings = as_mapping(compilation)
    mode = mode_name(settings.get("cudagraph_mode"))
    if mode is not None:
        return mode
    if as_bool(settings.get("use_cudagraph")):  # 0.9 and 0.10.0 had no mode
        return "FULL" if as_bool(settings.get("full_cuda_graph")) else "PIECEWISE"
    return "NONE" if as_bool(settings.get("use_cudagraph")) is False else None


def _compile_mode(compilation: object) -> str | None:
    mode = as_mapping(compilation).get("mode")
    level = as_int(as_mapping(compilation).get("level"))
    return as_text(mode) or (f"level {level}" if level is not None else None)


def _draft_tokens(arguments: dict[str, object]) -> int | None:
    speculation = as_mapping(arguments.get("speculative_config"))
    return as_int(speculation.get("num_spec_tokens")) or as_int(speculation.get("num_speculative_tokens"))


def _take_args(match: re.Match[str], line: LogLine, run: EngineRun) -> None:
    run.started = True
    arguments = as_mapping(read_value(match["args"]))
    compilation = arguments.get("compilation_config")
    asked = mode_name(as_mapping(compilation).get("cudagraph_mode")) or mode_name(arguments.get("cudagraph_mode"))
    if as_bool(arguments.get("enforce_eager")):
        asked = "NONE"
        run.configure(enforced_by="flag --enforce-eager")
    run.configure(
        requested_mode=asked,
        max_batch_size=as_int(arguments.get("max_num_seqs")),
        speculative_tokens=_draft_tokens(dict(arguments)),
        data_parallel_size=as_int(arguments.get("data_parallel_size")),
        role=as_text(as_mapping(arguments.get("kv_transfer_config")).get("kv_role")),
    )
    model = as_text(arguments.get("served_model_name")) or as_text(arguments.get("model"))
    run.identify(model_name=model or as_text(arguments.get("model_tag")) or run.fingerprint.model_name)


def _forced(line: LogLine, run: EngineRun) -> None:
    run.observe("graphs_disabled", "enforce_eager is set: torch.compile and CUDA graphs are off", line)
    run.configure(enforced_by=run.config.enforced_by or "configuration: enforce_eager")
    run.resolve("NONE", "enforce_eager is set")


def _take_eager(match: re.Match[str], line: LogLine, run: EngineRun) -> None:
    if match[0].startswith("Skipping"):
        run.observe("graphs_disabled", "CUDA graph capture was skipped: cudagraph_mode is NONE", line)
        run.resolve("NONE", run.config.mode_reason or "cudagraph_mode is NONE")
        run.capturing = False
    else:
        _forced(line, run)


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
    _downgrade(line, run, old if mode_name(old) in _KNOWN_MODES else None, match["new"].strip("."), match["why"])


_KNOWN_MODES = {"NONE", "PIECEWISE", "FULL", "FULL_DECODE_ONLY", "FULL_AND_PIECEWISE"}


def _take_disabling(match: re.Match[str], line: LogLine, run: EngineRun) -> None:
    run.observe("graphs_disabled", match[0], line)
    run.resolve("NONE", match["why"])


def _take_capped(match: re.Match[str], line: LogLine, run: EngineRun) -> None:
    run.observe("sizes_dropped", match[0], line)
    if match["new"]:
        top = int(match["new"])
        kept = tuple(size for size in run.config.capture_sizes or () if size <= top)
        run.configure(max_capture_size=top, capture_sizes=kept or None)


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
    if match["mode"] and mode_name(match["mode"]) in _KNOWN_MODES:
        mode = mode_name(match["mode"])
        run.configure(resolved_mode=mode, requested_mode=run.config.requested_mode or mode)
    elif match["sizes"]:
        run.configure(capture_sizes=as_sizes(read_value(match["sizes"])), capture_unit="tokens")


def _take_load(match: re.Match[str], line: LogLine, run: EngineRun) -> None:
    run.serving()
    running = int(match["running"])
    if running:
        run.tally(line).sampled_sizes[running] += 1


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


_Take = Callable[["re.Match[str]", LogLine, EngineRun], None]
_RULES: tuple[tuple[re.Pattern[str], _Take], ...] = (
    (_ROW, _take_row),
    (_LOAD, _take_load),
    (_STEP, _take_step),
    (_INIT, _take_init),
    (_ARGS, _take_args),
    (_VERSION, _take_version),
    (_NOT_SUPPORTED, _take_not_supported),
    (_OVERRIDE, _take_override),
    (_EAGER, _take_eager),
    (_DISABLING, _take_disabling),
    (_CAPPED, _take_capped),
    (_PROFILE, _take_profile),
    (_ESTIMATE, _take_estimate),
    (_POOL, _take_pool),
    (_DONE, _take_done),
    (_TABLE_SETTING, _take_table_setting),
    (_BACKEND, _take_backend),
    (_RUNNER, _take_runner),
    (_SHUTDOWN, _take_shutdown),
    (_READY, _take_ready),
    (_MILESTONE, _take_milestone),
)
