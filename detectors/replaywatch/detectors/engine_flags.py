"""Settings of graphs in each engine's own words, as its release understands them.

Source: `vllm/engine/arg_utils.py` (0.9.2 to 0.33.0), `sglang/srt/server_args.py` (0.5.9 to 0.5.23),
`sglang/srt/model_executor/cuda_graph_runner.py` (0.4.4 to 0.5.2), `tensorrt_llm/llmapi/llm_args.py` (2025).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from replaywatch.contract.window import Engine

_UNKNOWN: Final = (999,)  # what nobody told is taken for a current release
_VLLM_MODES: Final = (0, 10, 1)  # cudagraph_mode; before, graphs were on or off
_VLLM_SIZES: Final = (0, 11, 1)  # --cudagraph-capture-sizes and --max-cudagraph-capture-size
_VLLM_CC: Final = (0, 12)  # -cc, which was -O
_SGLANG_BY_PHASE: Final = (0, 5, 14)  # --cuda-graph-bs-decode; older names go on as aliases, and were gone by 0.5.23
_SGLANG_SUMS: Final = ((0, 4, 5), (0, 4, 9, 4))
# Engines that make their sizes themselves from a maximum have these, then every eighth up to here.
_GENERATED_FIRST: Final = (1, 2, 4)
_GENERATED_STEP: Final = 8
_GENERATED_UP_TO: Final[dict[Engine, int]] = {"vllm": 256, "sglang": 256, "trtllm": 32}

_ENABLE: Final[dict[Engine, str]] = {
    "trtllm": "Set cuda_graph_config (batch_sizes or max_batch_size, enable_padding: true) in the LLM arguments.",
    "tgi": "Start TGI with --cuda-graphs and the batch sizes you serve (CUDA_GRAPHS=0 turns them off).",
    "transformers": (
        'Call generate with cache_implementation="static" (it then compiles the decode step with graphs), '
        "or capture the decode step."
    ),
    "torch": 'Compile the step with torch.compile(mode="reduce-overhead"), or capture it with torch.cuda.graph.',
    "llama.cpp": "Build with GGML_CUDA_GRAPHS=ON and run without GGML_CUDA_DISABLE_GRAPHS.",
    "unknown": "Capture the repeated step in a CUDA graph (torch.cuda.graph, or the engine's own switch).",
}


def enable(engine: Engine, version: str | None = None) -> str:
    """The change that turns graphs on. Shape: `version` as the engine reports it; None means a current one."""
    release = release_of(version)
    if engine == "sglang":
        phase = _phase(release)
        off = "--disable-cuda-graph" + (" or --cuda-graph-backend-decode=disabled" if phase else "")
        return f"Start SGLang without {off}, and set --cuda-graph-max-bs{phase} to the batch sizes you serve."
    if engine != "vllm":
        return _ENABLE[engine]
    if release < _VLLM_MODES:
        return "Start vLLM without --enforce-eager and without use_cudagraph: false in --compilation-config."
    option = "-cc" if release >= _VLLM_CC else "-O"
    return (
        f"Start vLLM without --enforce-eager and with cudagraph_mode FULL_AND_PIECEWISE ({option}.cudagraph_mode=...)."
    )


def sizes_flag(engine: Engine, sizes: Sequence[int], version: str | None = None) -> str:
    """The setting that captures just these sizes."""
    words = " ".join(map(str, sizes))
    listed = ", ".join(map(str, sizes))
    release = release_of(version)
    if engine == "vllm" and release >= _VLLM_SIZES:
        return f"--cudagraph-capture-sizes {words}"
    if engine == "vllm":  # to the older flag, one size means all up to it
        one = f"--compilation-config '{{\"cudagraph_capture_sizes\": [{listed}]}}'"
        return f"--cuda-graph-sizes {words}" if len(sizes) > 1 else one
    if engine == "sglang":
        return f"--cuda-graph-bs{_phase(release)} {words}"
    if engine == "trtllm":
        return f"cuda_graph_config: {{batch_sizes: [{listed}], enable_padding: true}}"
    if engine == "tgi":
        return f"--cuda-graphs {','.join(map(str, sizes))}"
    return f"graphs for the sizes {listed}"


def ceiling_flag(engine: Engine, top: int, version: str | None = None, present: Sequence[int] = ()) -> str:
    """The setting of the largest captured size, in the engine's own unit.

    Where the `present` sizes were listed by somebody the list must grow: beside one, vLLM and TensorRT-LLM refuse
    another maximum, and SGLang ignores it.
    """
    release = release_of(version)
    if engine in _GENERATED_UP_TO and present and not _is_generated(engine, present):
        return sizes_flag(engine, sorted({*present, top}), version)
    if engine == "vllm":
        return f"{'--max-cudagraph-capture-size' if release >= _VLLM_SIZES else '--cuda-graph-sizes'} {top}"
    if engine == "sglang":
        return f"--cuda-graph-max-bs{_phase(release)} {top}"
    if engine == "trtllm":
        return f"cuda_graph_config.max_batch_size: {top}"
    return f"graphs for sizes up to {top}"


def excludes_maximum(engine: Engine, version: str | None) -> bool:
    """Whether a list of sizes must not stand beside a maximum of another size."""
    return engine == "vllm" and release_of(version) >= _VLLM_SIZES


def release_of(version: str | None) -> tuple[int, ...]:
    """The numbers of a release, that of a post-release last, without what follows them (rc1, +cu130, .dev2)."""
    found = re.search(r"(\d+(?:\.\d+)*)(?:\.post(\d+))?", version or "")
    return tuple(int(n) for n in (*found[1].split("."), found[2]) if n is not None) if found else _UNKNOWN


def sums_ranks(engine: Engine, version: str | None) -> bool:
    """Whether a graph holds the sequences of all data-parallel ranks that share attention, not of the largest."""
    return engine == "sglang" and _SGLANG_SUMS[0] <= release_of(version) < _SGLANG_SUMS[1]


def _phase(release: tuple[int, ...]) -> str:
    return "-decode" if release >= _SGLANG_BY_PHASE else ""


def _is_generated(engine: Engine, sizes: Sequence[int]) -> bool:
    """Whether the engine made the sizes itself, from a maximum."""
    top = max(sizes)
    steps = range(_GENERATED_STEP, min(top, _GENERATED_UP_TO[engine]) + 1, _GENERATED_STEP)
    return {*(size for size in _GENERATED_FIRST if size <= top), *steps} <= {*sizes}
