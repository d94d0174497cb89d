"""Whole files as situations, read and judged as `replaywatch analyze` does.

Public ones lie beside the checkout (`shared/data`, whose README says of each what must come out). Engine logs written
after the engines' formats are tests/data/logs; each is labelled by what stands in it: 24 sequences above a largest size
of 16, a batch of 4 padded to 64, graphs switched off. The label is of the file as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from replaywatch.analyze.result import judge_recording
from replaywatch.sources.reader import read
from score.situation import Situation

PUBLIC = Path(__file__).parents[3] / "shared" / "data"
LOGS = Path(__file__).parents[1] / "data" / "logs"
Names = tuple[str, ...]
# File, what should be said of it, and what may be.
PUBLISHED: tuple[tuple[str, Names, Names], ...] = (
    ("kineto/a100_training_mostly_uncovered.json.gz", ("partial_coverage",), ()),
    ("kineto/v100_training_partial_graphs.json.gz", (), ()),
    ("kineto/vllm_decode_full_hip.json.gz", (), ()),
    ("kineto/vllm_mixed_piecewise_hip.json.gz", (), ()),
    ("kineto/b200_eager_launch_bound.json.gz", ("disabled",), ()),
    ("kineto/h100_bert_small_eager.json.gz", ("disabled",), ()),
    ("kineto/h100_qwen_eager_gpu_bound.json.gz", (), ()),
    ("nsys/mfu_2gpu_before.sqlite", (), ()),
    ("logs/sglang-int4.log", ("slow_capture",), ()),
    ("logs/vllm-int4.log", ("downgrade",), ()),
    ("logs/vllm.log", ("graph_memory_estimate",), ()),
    ("logs/gemma4-int4.log", (), ("graph_memory_estimate",)),
    ("logs/vllm-run1-oom.log", ("capture_failed",), ()),
)
WRITTEN: tuple[tuple[str, Names, Names], ...] = (
    ("vllm-0.9.log", ("overflow",), ()),
    ("vllm-0.33-eager.log", ("disabled",), ()),
    ("vllm-metrics.log", ("overflow",), ()),
    ("vllm-tp2-oom.log", ("capture_failed",), ()),
    ("sglang-old.log", ("overflow",), ()),
    ("sglang-capture-failed.log", ("capture_failed",), ()),
    ("trtllm.log", ("padding", "dropped_sizes"), ()),
    ("trtllm-off.log", ("disabled",), ()),
    ("llama-cpp-2024.log", ("disabled",), ()),
    ("llama-cpp-2026.log", (), ()),
    ("tgi.log", (), ()),
    ("tgi.json.log", (), ()),
    ("tgi-failed.log", ("capture_failed",), ()),
    ("transformers.log", (), ()),
    ("torch-compile.log", ("skipped",), ("thrash",)),
)


def situations() -> Iterator[Situation]:
    """Every file that is there."""
    for source, folder, labels in (("public", PUBLIC, PUBLISHED), ("log", LOGS, WRITTEN)):
        for name, expected, allowed in labels:
            if (folder / name).exists():
                yield _judged(source, folder / name, expected, allowed)


def _judged(source: str, path: Path, expected: Names, allowed: Names) -> Situation:
    worst, *others = (result.judgement for result in judge_recording(read(path)))
    whole = replace(worst, findings=tuple(f for one in (worst, *others) for f in one.findings))
    return Situation(path.name, source, whole, frozenset(expected), frozenset(allowed), group=path.parent.name)
