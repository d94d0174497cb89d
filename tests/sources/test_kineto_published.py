"""What published traces must come out as: whole-trace coverage and busy share, steps and modes."""

from __future__ import annotations

import pytest

from replaywatch.contract.window import Window
from replaywatch.sources.reader import read
from sources.published import published


def window_of(name: str) -> Window:
    windows = read(published(name)).windows
    return max(windows, key=lambda w: w.traced.total_kernels if w.traced else 0)


@pytest.mark.parametrize(
    ("name", "graph_kernels", "kernels", "busy"),
    [
        ("kineto/a100_training_mostly_uncovered.json.gz", 135, 6080, 0.356),
        ("kineto/v100_training_partial_graphs.json.gz", 4464, 9876, 0.963),
        ("kineto/vllm_decode_full_hip.json.gz", 421, 425, None),
        ("kineto/b200_eager_launch_bound.json.gz", 0, 768, 0.137),
        ("kineto/h100_bert_small_eager.json.gz", 0, 60, 0.079),
        ("kineto/h100_qwen_eager_gpu_bound.json.gz", 0, 1465, 0.919),
    ],
)
def test_whole_trace_numbers(name: str, graph_kernels: int, kernels: int, busy: float | None) -> None:
    work = window_of(name).traced
    assert work is not None
    assert (work.total_graph_kernels, work.total_kernels) == (graph_kernels, kernels)
    assert work.coverage == pytest.approx(graph_kernels / kernels)
    if busy is not None:
        assert work.busy_ratio == pytest.approx(busy, abs=0.001)


def test_uncovered_training_has_its_steps_and_replays() -> None:
    window = window_of("kineto/a100_training_mostly_uncovered.json.gz")
    assert window.dispatch.replays == 70
    assert window.dispatch.steps == {"eager": 5}
    assert window.workload.phase == "train"
    assert window.traced is not None
    assert window.traced.span_ns / window.traced.steps == pytest.approx(215e6, rel=0.02)


def test_decode_in_one_graph_is_full() -> None:
    window = window_of("kineto/vllm_decode_full_hip.json.gz")
    assert window.dispatch.steps == {"full": 1}
    assert (window.workload.engine, window.workload.phase) == ("vllm", "decode")
    assert window.dispatch.batch_sizes == {32: 1}
    assert window.traced is not None
    assert not window.traced.gaps_are_evidence


def test_pieces_are_piecewise() -> None:
    window = window_of("kineto/vllm_mixed_piecewise_hip.json.gz")
    assert window.dispatch.steps == {"piecewise": 1}
    assert window.dispatch.replays == 25
    assert window.workload.phase == "mixed"


def test_a_wait_for_earlier_work_is_not_part_of_the_step() -> None:
    """The annotation lasts 47 ms, of which 14 ms are a wait for kernels that were launched before it."""
    work = window_of("kineto/h100_qwen_eager_gpu_bound.json.gz").traced
    assert work is not None
    assert work.span_ns == pytest.approx(34.9e6, rel=0.01)
    assert work.busy_ns / work.span_ns == pytest.approx(0.914, abs=0.01)
    assert (work.sync_ns or 0) < 1e6


def test_launch_bound_prefill_shows_its_gaps() -> None:
    timing = window_of("kineto/b200_eager_launch_bound.json.gz").timing
    assert timing.launch_gap is not None
    assert timing.launch_gap.quantile(0.5) == pytest.approx(65_000, rel=0.1)
