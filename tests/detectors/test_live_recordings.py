"""What the probe sent out of real engines on an H200 must be judged as what was measured beside it."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest

from replaywatch.contract.snapshot import EngineConfig, Fingerprint
from replaywatch.contract.window import Window
from replaywatch.contract.wire import decode
from replaywatch.detectors.evidence import gather
from replaywatch.detectors.judge import Judgement, judge

LIVE = Path(__file__).parents[1] / "data" / "live"
GENERATE_TRUTH = 0.838
CEILING_TRUTH = 0.800


def judged(name: str, keep: Callable[[Window], bool]) -> list[Judgement]:
    """The judgement on every workload of a recording, over the windows that are kept."""
    by_key: dict[str, list[Window]] = {}
    fingerprints: dict[str, Fingerprint] = {}
    configs: dict[str, EngineConfig] = {}
    for line in gzip.decompress((LIVE / f"{name}.jsonl.gz").read_bytes()).splitlines():
        batch = decode(line)
        fingerprints.update(batch.fingerprints)
        configs.update(batch.configs)
        for window in filter(keep, batch.windows):
            by_key.setdefault(window.workload.key, []).append(window)
    return [judge(gather(ws, fingerprints=fingerprints, configs=configs)) for ws in by_key.values()]


def decoding(window: Window) -> bool:
    return window.workload.phase is None and bool(window.dispatch.steps)


SHORT = (
    "vllm-default-contexts", "vllm-piecewise-contexts", "vllm-draft-untraced",
    *(f"vllm-{run}-settled" for run in ("default", "piecewise", "draft", "ngram")),
)  # fmt: skip


@pytest.mark.parametrize("name", SHORT)
def test_by_its_own_account_the_probe_took_two_to_four_thousandths(name: str) -> None:
    """In windows of one second; the changelog and docs/engines.md say so."""
    lines = gzip.decompress((LIVE / f"{name}.jsonl.gz").read_bytes()).splitlines()
    windows = [w for line in lines for w in decode(line).windows if w.cost is not None]
    took_ns = sum(w.cost.hook_ns + w.cost.helper_cpu_ns for w in windows if w.cost is not None)
    assert 0.002 < took_ns / sum(w.end_ns - w.start_ns for w in windows) < 0.0035


def test_vllm_with_its_defaults_is_healthy() -> None:
    (judgement,) = judged("vllm-default", decoding)
    assert judgement.verdict == "healthy"
    assert judgement.estimate is not None
    assert judgement.estimate.low < 0.05


def test_vllm_forced_eager_is_a_page_that_names_who_forced_it() -> None:
    (judgement,) = judged("vllm-eager", decoding)
    found = judgement.findings[0]
    assert (found.detector, found.severity) == ("disabled", "page")
    assert "enforce_eager" in found.causes[0].text


def test_vllm_past_its_ceiling_loses_what_was_measured() -> None:
    past = judged("vllm-ceiling32", lambda w: decoding(w) and "above_ceiling" in (w.dispatch.fallbacks or {}))
    (judgement,) = past
    found = next(f for f in judgement.findings if f.detector == "overflow")
    assert found.severity == "page"
    assert found.estimate is not None
    assert abs(found.estimate.ratio - CEILING_TRUTH) < 0.10
    assert found.remedy is not None
    assert "--max-cudagraph-capture-size 48" in found.remedy


def test_both_ranks_of_tensor_parallel_vllm_are_healthy() -> None:
    judgements = judged("vllm-tensor-parallel", decoding)
    assert len({j.workload.gpu_index for j in judgements}) == 2
    assert {j.verdict for j in judgements} == {"healthy"}


def test_prefill_that_is_eager_by_design_is_no_fault() -> None:
    for name in ("vllm-default", "vllm-ceiling32", "vllm-eager"):
        for judgement in judged(name, lambda w: w.workload.phase == "prefill"):
            assert judgement.verdict != "finding", name


def test_generate_without_a_static_cache_loses_what_was_measured() -> None:
    (judgement,) = judged("transformers-generate", lambda w: decoding(w) and "eager" in (w.dispatch.steps or {}))
    found = judgement.findings[0]
    assert (found.detector, found.severity) == ("disabled", "page")
    assert found.estimate is not None
    assert abs(found.estimate.ratio - GENERATE_TRUTH) < 0.05
    assert "static" in (found.remedy or "")


def test_generate_with_a_static_cache_has_no_page() -> None:
    (judgement,) = judged("transformers-generate", lambda w: decoding(w) and "eager" not in (w.dispatch.steps or {}))
    assert judgement.severity in ("none", "info", "warn")
    assert "partial_coverage" not in {f.detector for f in judgement.findings if f.is_fault}
