from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replaywatch.sources.logs.clock import Clock
from replaywatch.sources.logs.prefix import peel
from sources.logs.support import WRITTEN_NS, read_text, whole

CLOCK = Clock(WRITTEN_NS)
DAY_NS = 86_400_000_000_000


@pytest.mark.parametrize(
    ("text", "process", "pid", "rank", "replica"),
    [
        ("(EngineCore pid=842) INFO 11-29 17:27:45 [x.py:1] hello", "EngineCore", 842, None, None),
        ("(EngineCore_DP1 pid=842) INFO 11-29 17:27:45 [x.py:1] hello", "EngineCore_DP1", 842, None, 1),
        ("(EngineCore_0 pid=842) INFO 11-29 17:27:45 [x.py:1] hello", "EngineCore_0", 842, None, 0),
        ("(Worker_DP1_TP3_EP7 pid=9) INFO 11-29 17:27:45 [x.py:1] hello", "Worker_DP1_TP3_EP7", 9, 3, 1),
        ("(VllmWorker rank=2 pid=9) INFO 11-29 17:27:45 [x.py:1] hello", "VllmWorker", 9, 2, None),
        ("(VllmWorker TP2 pid=9) INFO 11-29 17:27:45 [x.py:1] hello", "VllmWorker TP2", 9, 2, None),
        (
            "(EngineCore pid=8) (RayWorkerWrapper pid=9, ip=10.0.0.1) INFO 11-29 17:27:45 [x.py:1] hello",
            "RayWorkerWrapper",
            9,
            9,
            None,
        ),
        ("INFO 11-29 17:27:45 [x.py:1] hello", None, None, None, None),
        ("INFO 11-29 17:27:45 x.py:1] hello", None, None, None, None),
        ("2026-11-29T17:27:45.5Z (APIServer pid=7) INFO 11-29 17:27:45 [x.py:1] hello", "APIServer", 7, None, None),
        ("[2026-11-29 17:27:45 DP2 TP3] hello", None, None, 3, 2),
        ("[2026-11-29 17:27:45] hello", None, None, None, None),
        ("[11/29/2026-17:27:45] [TRT-LLM] [RANK 3] [I] hello", None, None, 3, None),
        ("[11/29/2026-17:27:45] [TRT-LLM] [I] [RANK 3] hello", None, None, 3, None),
        ("[11/29/2026-17:27:45] [TRT-LLM] [I] hello", None, None, None, None),
        ("[rank1]:W1129 17:27:45.100000 77 torch/x.py:3] [0/0] [__cudagraphs] hello", None, None, 1, None),
        ("W1129 17:27:45.100000 77 torch/x.py:3] hello", None, None, None, None),
        ("2026-11-29T18:27:45+01:00 node1 vllm[55]: hello", None, 55, None, None),
        ("Nov 29 17:27:45 node1 vllm[55]: hello", None, 55, None, None),
        ("2026-11-29 17:27:45,541 - INFO - autotuner.py:651 - hello", None, None, None, None),
        ('{"ts": 1795973265.0, "msg": "hello"}', None, None, None, None),
    ],
)
def test_layers_come_off_and_leave_message_time_and_names(
    text: str, process: str | None, pid: int | None, rank: int | None, replica: int | None
) -> None:
    line = peel(text, CLOCK)
    assert line.message.endswith("hello")
    assert len(line.message) < 30
    assert (line.process, line.pid, line.rank, line.replica) == (process, pid, rank, replica)
    assert line.stamp_ns is not None
    assert line.stamp_ns // 1_000_000_000 == (WRITTEN_NS - 1935 * 10**9) // 10**9


def test_indentation_that_continues_a_message_is_kept() -> None:
    assert peel("W1129 17:27:45.1 77 torch/x.py:3] [__cudagraphs]   File", CLOCK).message == "  File"


@given(st.text(max_size=300))
def test_any_text_is_a_line(text: str) -> None:
    assert len(peel(text, CLOCK).message) <= max(len(text), 1) + 40


@given(st.integers(1, 12), st.integers(1, 31), st.integers(0, 24), st.integers(0, 60))
def test_stamp_without_a_year_is_within_nine_years_before_its_reference(m: int, d: int, h: int, minute: int) -> None:
    stamp = CLOCK.undated(m, d, f"{h:02}:{minute:02}:00")
    if stamp is not None:
        assert WRITTEN_NS - 9 * 366 * DAY_NS < stamp <= WRITTEN_NS + DAY_NS


def test_workers_without_ranks_repeat_and_are_not_added_up() -> None:
    done = "INFO 05-10 15:54:05 model_runner.py:1562] Graph capturing finished in 49 secs, took 0.30 GiB\n"
    start = "INFO 05-10 15:53:00 llm_engine.py:230] Initializing a V0 LLM engine (v0.9.0) with config: model='m'\n"
    main = whole(read_text(start + f"(VllmWorkerProcess pid=11) {done}" + done + f"(VllmWorkerProcess pid=12) {done}"))
    assert main.dispatch.captures == {"ok": 1}
    ray = whole(read_text(start + "".join(f"(RayWorkerWrapper pid={p}, ip=10.0.0.{p}) {done}" for p in (11, 12, 13))))
    assert ray.dispatch.captures == {"ok": 1}
