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
_SGLANG_APPENDS: Final = (0, 5, 10)  # the maximum itself is captured, on the engine's grid of sizes or not
_SGLANG_SUMS: Final = ((0, 4, 5), (0, 4, 9, 4))
_NO_TAG: Final = re.compile(r"v?0\.1\.dev")  # what setuptools-scm makes of a repository without tags
# Engines that make their sizes themselves from a maximum have these, then every eighth up to here.
_GENERATED_FIRST: Final = (1, 2, 4)
_GENERATED_STEP: Final = 8
_GENERATED_UP_TO: Final[dict[Engine, int]] = {"vllm": 256, "sglang": 256, "trtllm": 32}
_SPARSER_ABOVE: Final[dict[Engine, dict[int, int]]] = {"vllm": {256: 16}, "sglang": {256: 16, 512: 32}}

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


def ceiling_flag(
    engine: Engine, top: int, version: str | None = None, present: Sequence[int] = (), tokens: int = 1
) -> str:
    """The setting from which the engine captures `top` or more, in its own unit.

    Where the `present` sizes were listed by somebody the list must grow: beside one, vLLM and TensorRT-LLM refuse
    another maximum, and SGLang ignores it. Shape: `top` is a multiple of `tokens`, what a sequence has in that unit.
    """
    release = release_of(version)
    if engine in _GENERATED_UP_TO and present and not _is_generated(engine, present, tokens):
        sizes = sorted({*present, top})
        return sizes_flag(engine, sizes, version) + instead_of_maximum(engine, present, sizes, version)
    if engine == "vllm":
        flag = "--max-cudagraph-capture-size" if release >= _VLLM_SIZES else "--cuda-graph-sizes"
        return f"{flag} {_maximum(engine, top, tokens)}"
    if engine == "sglang":
        maximum = top if release >= _SGLANG_APPENDS else _maximum(engine, top)
        return f"--cuda-graph-max-bs{_phase(release)} {maximum}"
    if engine == "trtllm":
        return f"cuda_graph_config.max_batch_size: {top}"
    return f"graphs for sizes up to {top}"


def instead_of_maximum(engine: Engine, now: Sequence[int], then: Sequence[int], version: str | None) -> str:
    """Words after a list of sizes that must not stand beside a maximum of another size; else none."""
    refuses = engine == "vllm" and release_of(version) >= _VLLM_SIZES
    return ", in place of any --max-cudagraph-capture-size" if refuses and max(now) != max(then) else ""


def release_of(version: str | None) -> tuple[int, ...]:
    """The numbers of a release, that of a post-release last, without what follows them (rc1, +cu130, .dev2).

    A build from a repository without tags tells none; it is taken for a current one.
    """
    found = re.search(r"(\d+(?:\.\d+)*)(?:\.post(\d+))?", version or "")
    if not found or _NO_TAG.match(version or ""):
        return _UNKNOWN
    numbers = tuple(int(n) for n in (*found[1].split("."), found[2]) if n is not None)
    return numbers if any(numbers) else _UNKNOWN


def sums_ranks(engine: Engine, version: str | None) -> bool:
    """Whether a graph holds the sequences of all data-parallel ranks that share attention, not of the largest."""
    return engine == "sglang" and _SGLANG_SUMS[0] <= release_of(version) < _SGLANG_SUMS[1]


def _phase(release: tuple[int, ...]) -> str:
    return "-decode" if release >= _SGLANG_BY_PHASE else ""


def _is_generated(engine: Engine, sizes: Sequence[int], tokens: int) -> bool:
    """Whether the engine made the sizes itself, from a maximum; as they are, or as multiples of `tokens`."""
    top = max(sizes)
    steps = range(_GENERATED_STEP, min(top, _GENERATED_UP_TO[engine]) + 1, _GENERATED_STEP)
    plain = [size for size in (*_GENERATED_FIRST, *steps) if size <= top]
    rounded = [up for size in plain if (up := _round_up(size, tokens)) <= top]
    return {*plain} <= {*sizes} or {*rounded} <= {*sizes}


def _maximum(engine: Engine, top: int, tokens: int = 1) -> int:
    """The least maximum from which the engine makes a size of at least `top`.

    It makes sizes of its grid up to the maximum, lowers the maximum to the last, then rounds all to multiples of
    `tokens` and drops what is above.
    """
    least = _on_grid(engine, top - tokens + 1)
    return _on_grid(engine, _round_up(least, tokens))


def _on_grid(engine: Engine, size: int) -> int:
    """The next size that the engine makes itself."""
    step = max([_GENERATED_STEP, *(step for above, step in _SPARSER_ABOVE[engine].items() if size > above)])
    return next((first for first in _GENERATED_FIRST if first >= size), _round_up(size, step))


def _round_up(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple
