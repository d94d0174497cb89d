"""TensorRT-LLM's metrics (`trtllm_`) as windows: step times only, it counts no graphs."""

from __future__ import annotations

from replaywatch.contract.snapshot import EngineConfig, Fingerprint
from replaywatch.contract.window import BlindSpot, Window, Workload
from replaywatch.sources.engine_metrics.exposition import Exposition, Sample
from replaywatch.sources.engine_metrics.part import Part, step_timing

PREFIXES = ("trtllm_", "trtllm:")
_NO_GRAPHS = BlindSpot("dispatch", "TensorRT-LLM's metrics say nothing of graphs; run it under the probe")


def parts(page: Exposition, source: str, start_ns: int, end_ns: int) -> list[Part]:
    """One part for each model that the page names."""
    models: dict[str, list[Sample]] = {}
    for sample in page.samples:
        if sample.name.startswith(PREFIXES):
            models.setdefault(sample.by_label.get("model_name", ""), []).append(sample)
    found = []
    for model, samples in sorted(models.items()):
        names = [f"{prefix}time_per_output_token_seconds" for prefix in PREFIXES]
        timing, blind = step_timing(samples, names, None)
        window = Window(
            workload=Workload(name=source, engine="trtllm", model_name=model or None),
            start_ns=start_ns,
            end_ns=end_ns,
            origin="metrics",
            timing=timing,
            blind=(_NO_GRAPHS, *blind),
        )
        found.append(
            Part(window, EngineConfig(engine="trtllm"), Fingerprint(engine="trtllm", model_name=model or None))
        )
    return found
