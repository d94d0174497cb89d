"""The configuration that vLLM prints at its start: arguments that differ from defaults, then all of it."""

from __future__ import annotations

import re

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
from replaywatch.sources.logs.rules import Rule
from replaywatch.sources.logs.run import EngineRun
from replaywatch.sources.logs.vllm_modes import forced, mode_name

_INIT = re.compile(r"Initializing an? (?:V[01] )?LLM engine \(v?(?P<version>[^)\s]+)\) with config: (?P<config>.*)")
_ARGS = re.compile(r"non-default args: (?P<args>\{.*)")


def _take_init(match: re.Match[str], line: LogLine, run: EngineRun) -> None:
    run.started = True
    arguments = read_arguments(match["config"])
    compilation = as_mapping(arguments.get("compilation_config"))
    mode = _configured_mode(arguments, compilation)
    sizes = as_sizes(compilation.get("cudagraph_capture_sizes"))
    top = as_int(compilation.get("max_cudagraph_capture_size")) or as_int(compilation.get("max_capture_size"))
    eager = as_bool(arguments.get("enforce_eager"))
    if eager:
        forced(line, run)
    asked = _asked_eager(run) if eager else mode
    run.configure(
        requested_mode=run.config.requested_mode or asked,
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


def _asked_eager(run: EngineRun) -> str | None:
    """The mode that eager asks for; None where vLLM forces it itself. Modes printed beside it are defaults."""
    return "NONE" if run.config.enforced_by else None


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


RULES: tuple[Rule, ...] = ((_INIT, _take_init), (_ARGS, _take_args))
