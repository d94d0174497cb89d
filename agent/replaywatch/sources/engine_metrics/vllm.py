"""vLLM's metrics (`vllm:`) as windows.

Released versions count no graph modes; `vllm:cudagraph_iterations_total{runtime_mode}` is read where a build has it
(proposed in vllm-project/vllm#37576). Step times come from the time between tokens.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from replaywatch.contract.snapshot import EngineConfig, Fingerprint
from replaywatch.contract.window import BlindSpot, Dispatch, Window, Workload
from replaywatch.sources.engine_metrics.exposition import Exposition, Sample
from replaywatch.sources.engine_metrics.part import Part, rank_of, step_timing

PREFIXES = ("vllm:", "vllm_")
_MODES = {"FULL": "full", "PIECEWISE": "piecewise", "NONE": "eager"}
_NO_MODES = BlindSpot(
    "dispatch",
    "vLLM's metrics do not say which graph mode ran; start it with --cudagraph-metrics and read its log, or run it "
    "under the probe",
)
_SETTINGS = ("enable_prefix_caching", "gpu_memory_utilization", "cache_dtype", "num_gpu_blocks")


def parts(page: Exposition, source: str, start_ns: int, end_ns: int) -> list[Part]:
    """One part for each engine (data-parallel replica) that the page names."""
    engines: dict[tuple[str, str], list[Sample]] = {}
    settings: dict[str, str] = {}
    for sample in page.samples:
        if not sample.name.startswith(PREFIXES):
            continue
        sample = replace(sample, name="vllm:" + sample.name[len("vllm:") :])
        labels = sample.by_label
        if sample.name.endswith(":cache_config_info"):
            settings.update({name: labels[name] for name in _SETTINGS if name in labels})
        elif "model_name" in labels or "engine" in labels:
            engines.setdefault((labels.get("model_name", ""), labels.get("engine", "")), []).append(sample)
    several = len({engine for _, engine in engines}) > 1
    return [
        _part(
            samples,
            model or None,
            rank_of(engine) if several else None,
            settings,
            source,
            start_ns,
            end_ns,
        )
        for (model, engine), samples in sorted(engines.items())
    ]


def _part(
    samples: list[Sample],
    model: str | None,
    rank: int | None,
    settings: dict[str, str],
    source: str,
    start_ns: int,
    end_ns: int,
) -> Part:
    workload = Workload(name=source, engine="vllm", model_name=model, rank=rank)
    steps = _steps(samples)
    iterations = _value(samples, "iteration_tokens_total_count")
    tokens = _value(samples, "iteration_tokens_total_sum")
    names = ("inter_token_latency_seconds", "time_per_output_token_seconds")
    timing, blind = step_timing(samples, [f"vllm:{n}" for n in names], iterations)
    running = _value(samples, "num_requests_running")
    window = Window(
        workload=workload,
        start_ns=start_ns,
        end_ns=end_ns,
        origin="metrics",
        dispatch=Dispatch(
            steps=steps,
            fallbacks={"other": steps["eager"]} if steps and steps.get("eager") else None,
            batch_sizes={running: 1} if running else None,
            real_tokens=tokens or None,
        ),
        timing=timing,
        blind=(*(() if steps else (_NO_MODES,)), *blind),
    )
    return Part(window, EngineConfig(engine="vllm", settings=settings), Fingerprint(engine="vllm", model_name=model))


def _steps(samples: Iterable[Sample]) -> dict[str, int] | None:
    steps: Counter[str] = Counter()
    for sample in samples:
        if sample.name in ("vllm:cudagraph_iterations_total", "vllm:cudagraph_iterations"):
            mode = _MODES.get(sample.by_label.get("runtime_mode", "").rpartition(".")[2])
            if mode is not None and 0 < sample.value < 1e15:
                steps[mode] += round(sample.value)
    return dict(steps) or None


def _value(samples: Iterable[Sample], name: str) -> int | None:
    values = [s.value for s in samples if s.name == f"vllm:{name}" and 0 <= s.value < 1e15]
    return round(sum(values)) if values else None
