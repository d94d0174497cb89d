"""SGLang's metrics (`sglang:`, or `sglang_` behind collectors that rename) as windows.

`cuda_graph_passes_total{mode}` counts every forward pass. `is_cuda_graph` is never read: it stays 0 in several
releases, whatever runs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from replaywatch.contract.histogram import Histogram, HistogramBuilder
from replaywatch.contract.snapshot import EngineConfig, Fingerprint
from replaywatch.contract.window import BlindSpot, Dispatch, GraphMemory, Mode, Phase, Timing, Window, Workload
from replaywatch.sources.engine_metrics.exposition import Exposition, Sample
from replaywatch.sources.engine_metrics.part import Part, rank_of, step_timing

PREFIXES = ("sglang:", "sglang_")
_GIB = 1 << 30
_PASSES: dict[str, tuple[Phase, Mode, str | None]] = {
    "decode_cuda_graph": ("decode", "full", None),
    "decode_none": ("decode", "eager", "other"),
    "prefill_cuda_graph": ("prefill", "piecewise", None),
    "prefill_none": ("prefill", "eager", "prefill_by_design"),
}
_NO_PASSES = BlindSpot(
    "dispatch", "this release of SGLang counts no graph passes; read its log, or run it under the probe"
)


def parts(page: Exposition, source: str, start_ns: int, end_ns: int) -> list[Part]:
    """One part for each phase of each data-parallel replica; of tensor-parallel ranks the first speaks for all.

    What the tokenizer's process counts (time between tokens) names no replica; it is the mean over all, given to each.
    """
    replicas: dict[tuple[str, str], dict[str, list[Sample]]] = {}
    for sample in page.samples:
        if sample.name.startswith(PREFIXES):
            labels = sample.by_label
            key = labels.get("model_name", ""), labels.get("dp_rank", "")
            rank = f"{labels.get('pp_rank', ''):>4}/{labels.get('tp_rank', ''):>4}"
            bare = replace(sample, name=sample.name[len("sglang:") :])
            replicas.setdefault(key, {}).setdefault(rank, []).append(bare)
    found: list[Part] = []
    several = len({dp for _, dp in replicas if dp}) > 1
    for model in {model for model, dp in replicas if dp}:
        shared = replicas.pop((model, ""), {})
        for (other, _), ranks in replicas.items():
            if other == model:
                for rank, samples in shared.items():
                    ranks.setdefault(rank, []).extend(samples)
    for (model, dp), ranks in sorted(replicas.items()):
        number = rank_of(dp) if several else None
        found += _phases(_leading(ranks), model or None, number, source, start_ns, end_ns)
    return found


def _leading(ranks: dict[str, list[Sample]]) -> list[Sample]:
    """Samples of the lowest rank that has each name; what has no rank comes first."""
    chosen: dict[str, str] = {}
    for rank in sorted(ranks):
        for sample in ranks[rank]:
            chosen.setdefault(sample.name, rank)
    return [sample for rank in sorted(ranks) for sample in ranks[rank] if chosen[sample.name] == rank]


def _phases(
    samples: list[Sample], model: str | None, rank: int | None, source: str, start_ns: int, end_ns: int
) -> list[Part]:
    config = EngineConfig(engine="sglang")
    fingerprint = Fingerprint(engine="sglang", model_name=model)
    workload = Workload(name=source, engine="sglang", model_name=model, rank=rank, phase="decode")
    decode, prefill = _dispatch(samples, "decode"), _dispatch(samples, "prefill")
    counted = any(s.name.startswith("cuda_graph_passes") for s in samples)
    passes = sum(decode.steps.values()) if decode.steps else None
    timing, blind = step_timing(samples, ["inter_token_latency_seconds", "time_per_output_token_seconds"], passes)
    running = _gauge(samples, "num_running_reqs")
    pool = _gauge(samples, "graph_memory_usage_gb")
    window = Window(
        workload=workload,
        start_ns=start_ns,
        end_ns=end_ns,
        origin="metrics",
        dispatch=replace(decode, batch_sizes={round(running): 1} if running and running >= 1 else None),
        timing=replace(timing, capture=_capture(samples, "decode")),
        memory=GraphMemory(pool_bytes=round(pool * _GIB) if pool is not None else None),
        blind=(*(() if counted else (_NO_PASSES,)), *blind),
    )
    found = [Part(window, config, fingerprint)]
    if prefill.steps:
        other = Window(
            workload=replace(workload, phase="prefill"),
            start_ns=start_ns,
            end_ns=end_ns,
            origin="metrics",
            dispatch=prefill,
            timing=Timing(capture=_capture(samples, "prefill")),
        )
        found.append(Part(other, config, fingerprint))
    return found


def _dispatch(samples: Iterable[Sample], phase: Phase) -> Dispatch:
    steps: dict[str, int] = {}
    fallbacks: dict[str, int] = {}
    for sample in samples:
        if sample.name not in ("cuda_graph_passes_total", "cuda_graph_passes"):
            continue
        known = _PASSES.get(sample.by_label.get("mode", ""))
        if known is None or known[0] != phase or not 0 < sample.value < 1e15:
            continue
        steps[known[1]] = steps.get(known[1], 0) + round(sample.value)
        if known[2] is not None:
            fallbacks[known[2]] = fallbacks.get(known[2], 0) + round(sample.value)
    return Dispatch(steps=steps or None, fallbacks=fallbacks or None)


def _gauge(samples: Iterable[Sample], name: str) -> float | None:
    values = [s.value for s in samples if s.name == name and 0 <= s.value < 1e15]
    return max(values) if values else None


def _capture(samples: Iterable[Sample], phase: Phase) -> Histogram | None:
    builder = HistogramBuilder()
    for sample in samples:
        of_phase = phase in sample.by_label.get("phase", "decode")
        if sample.name == "startup_cuda_graph_time_seconds" and of_phase and 0 < sample.value < 1e6:
            builder.add(round(sample.value * 1e9))
    return builder.build() if builder.count else None
