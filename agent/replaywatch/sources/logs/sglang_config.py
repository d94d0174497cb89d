"""The arguments that SGLang prints at its start, of every phase."""

from __future__ import annotations

import re
from collections.abc import Mapping

from replaywatch.contract.window import Phase
from replaywatch.sources.logs.literals import as_bool, as_int, as_mapping, as_sizes, as_text, read_arguments
from replaywatch.sources.logs.prefix import LogLine
from replaywatch.sources.logs.rules import Rule
from replaywatch.sources.logs.run import EngineRun

# A call of ServerArgs; between 0.5.16 and 0.5.23 a dictionary took its place.
_ARGS = re.compile(r"server_args=(?:ServerArgs\(|\{)(?P<args>.*)")
_OFF = ("disabled", "none", "off")


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
    decode, prefill = as_mapping(graphs.get("decode")), as_mapping(graphs.get("prefill"))
    _configure_phase("decode", arguments, decode, run)
    _configure_phase("prefill", arguments, prefill, run)
    if _mode("decode", arguments, decode) in _OFF:
        _name_author(arguments, line, run)
    for name in ("attention_backend", "decode_log_interval", "enable_dp_attention", "quantization"):
        if arguments.get(name) not in (None, False):
            run.setting(name, str(arguments[name]))
    model = as_text(arguments.get("served_model_name")) or as_text(arguments.get("model_path"))
    run.identify(model_name=model)


def _negated(value: object) -> bool | None:
    flag = as_bool(value)
    return None if flag is None else not flag


def _name_author(arguments: Mapping[str, object], line: LogLine, run: EngineRun) -> None:
    """Say who switched decode graphs off, where SGLang did not do it itself."""
    option = _author(arguments, run)
    if option is None:
        run.configure("decode", requested_mode=None)
    else:
        run.configure("decode", requested_mode="disabled", enforced_by=f"flag {option}")
        run.observe("graphs_disabled", f"{option} is set", line)


def _author(arguments: Mapping[str, object], run: EngineRun) -> str | None:
    """The option that switched decode graphs off; None where SGLang did, which sets the switch of all phases too."""
    if as_text(arguments.get("cuda_graph_backend_decode")) in _OFF:
        return "--cuda-graph-backend-decode=disabled"
    if as_bool(arguments.get("disable_decode_cuda_graph")):
        return "--disable-decode-cuda-graph"
    gave_a_reason = run.config.mode_reason is not None and run.config.enforced_by is None
    says_nothing_of_it = run.main_phase == "prefill" or as_text(arguments.get("device")) == "xpu"
    if gave_a_reason or says_nothing_of_it:
        return None
    return "--disable-cuda-graph" if as_bool(arguments.get("disable_cuda_graph")) else "--cuda-graph-config"


def _mode(phase: Phase, arguments: Mapping[str, object], own: Mapping[str, object]) -> str:
    backend = as_text(own.get("backend")) or as_text(arguments.get(f"cuda_graph_backend_{phase}"))
    if backend is not None:
        return backend
    if phase == "prefill":
        return "piecewise" if as_bool(arguments.get("enable_piecewise_cuda_graph")) else "disabled"
    switches = ("disable_cuda_graph", "disable_decode_cuda_graph")
    return "disabled" if any(as_bool(arguments.get(name)) for name in switches) else "full"


def _configure_phase(phase: Phase, arguments: Mapping[str, object], own: Mapping[str, object], run: EngineRun) -> None:
    """Settings of one phase: `cuda_graph_config` since 0.5.16, flat flags before."""
    prefix = "cuda_graph" if phase == "decode" else "piecewise_cuda_graph"
    mode = _mode(phase, arguments, own)
    sizes = as_sizes(own.get("bs")) or as_sizes(arguments.get(f"cuda_graph_bs_{phase}"))
    top = as_int(own.get("max_bs")) or as_int(arguments.get(f"cuda_graph_max_bs_{phase}"))
    if phase == "decode":
        sizes, top = (
            sizes or as_sizes(arguments.get("cuda_graph_bs")),
            top or as_int(arguments.get("cuda_graph_max_bs")),
        )
    else:
        sizes = sizes or as_sizes(arguments.get(f"{prefix}_tokens"))
        top = top or as_int(arguments.get(f"{prefix}_max_tokens"))
    run.configure(
        phase,
        requested_mode=mode,
        resolved_mode=mode,
        graphs_enabled=mode not in _OFF,
        capture_sizes=sizes if mode not in _OFF else None,
        max_capture_size=top if mode not in _OFF else None,
        capture_unit="sequences" if phase == "decode" else "tokens",
    )


def starts_a_run(line: LogLine) -> bool:
    """Whether a line is the first that a new process of the engine writes about its configuration."""
    return _ARGS.search(line.message) is not None


RULES: tuple[Rule, ...] = ((_ARGS, _take_args),)
