"""The arguments that SGLang prints at its start, of every phase."""

from __future__ import annotations

import re
from collections.abc import Mapping

from replaywatch.contract.window import Phase
from replaywatch.sources.logs.literals import as_bool, as_int, as_mapping, as_sizes, as_text, read_arguments
from replaywatch.sources.logs.prefix import LogLine
from replaywatch.sources.logs.rules import Rule
from replaywatch.sources.logs.run import EngineRun

_ARGS = re.compile(r"server_args=ServerArgs\((?P<args>.*)")
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


RULES: tuple[Rule, ...] = ((_ARGS, _take_args),)
