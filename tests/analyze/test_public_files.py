"""Every public file comes out as its publishers' circumstances demand."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from public_data import public_file
from replaywatch.analyze.result import Result
from replaywatch.analyze.run import analyze


@dataclass(frozen=True)
class Expected:
    """What must come out of a file."""

    file: str
    verdict: str
    severity: tuple[str, ...]
    detectors: frozenset[str] = field(default_factory=frozenset)
    coverage: float | None = None
    busy: float | None = None
    words: tuple[str, ...] = ()


CASES = (
    Expected(
        "kineto/a100_training_mostly_uncovered.json.gz", "finding", ("warn", "page"), frozenset({"partial_coverage"}),
        135 / 6080, 0.356, ("2.2 %", "135 of 6080"),
    ),
    Expected("kineto/v100_training_partial_graphs.json.gz", "healthy", ("none",), coverage=4464 / 9876, busy=0.963),
    Expected("kineto/vllm_decode_full_hip.json.gz", "healthy", ("none",), coverage=421 / 425),
    Expected("kineto/vllm_mixed_piecewise_hip.json.gz", "healthy", ("info",), words=("piecewise", "25 launches")),
    Expected(
        "kineto/b200_eager_launch_bound.json.gz", "finding", ("warn", "page"), frozenset({"disabled"}), 0.0, 0.137
    ),
    Expected("kineto/h100_bert_small_eager.json.gz", "finding", ("warn", "page"), frozenset({"disabled"}), 0.0, 0.079),
    Expected("kineto/h100_qwen_eager_gpu_bound.json.gz", "healthy", ("none",), coverage=0.0, busy=0.919),
    Expected("nsys/mfu_2gpu_before.sqlite", "healthy", ("none",), coverage=0.0, busy=0.913),
    Expected("logs/sglang-int4.log", "healthy", ("none", "info"), words=("216 s",)),
    Expected(
        "logs/vllm-int4.log", "finding", ("info", "warn"), frozenset({"downgrade"}),
        words=("FULL_AND_PIECEWISE", "PIECEWISE", "FlashInfer"),
    ),
    Expected("logs/vllm.log", "healthy", ("none", "info"), words=("more than the engine estimated",)),
    Expected("logs/gemma4-int4.log", "healthy", ("none", "info")),
    Expected("logs/vllm-run1-oom.log", "finding", ("page",), frozenset({"capture_failed"})),
)  # fmt: skip


def _results(case: Expected) -> tuple[Result, ...]:
    report = analyze([str(public_file(case.file))])
    assert not report.unreadable
    return report.results


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.file)
def test_a_public_file_comes_out_as_it_must(case: Expected) -> None:
    results = _results(case)
    worst = results[0].judgement
    assert (worst.verdict, worst.severity) == (case.verdict, worst.severity)
    assert worst.severity in case.severity
    assert case.detectors <= {f.detector for f in worst.findings if f.is_fault}
    text = " ".join(f.title + (f.remedy or "") for r in results for f in r.judgement.findings)
    assert all(word in text for word in case.words), text


@pytest.mark.parametrize("case", [c for c in CASES if c.coverage is not None], ids=lambda c: c.file)
def test_coverage_and_busy_share_are_those_of_the_whole_trace(case: Expected) -> None:
    work = [r.window.traced for r in _results(case)]
    assert work[0] is not None
    assert work[0].coverage == pytest.approx(case.coverage, abs=0.005)
    if case.busy is not None:
        assert any(w is not None and w.busy_ratio == pytest.approx(case.busy, abs=0.01) for w in work)


def test_the_downgrade_is_named_with_both_modes_and_no_measured_cost() -> None:
    result = _results(next(c for c in CASES if c.file.endswith("vllm-int4.log")))[0]
    assert result.judgement.estimate is None
    assert result.config is not None
    assert result.config.resolved_mode == "PIECEWISE"
