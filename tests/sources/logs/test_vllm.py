from __future__ import annotations

import pytest

from replaywatch.contract.window import Window
from sources.logs.support import kinds, ours, read_text, seen, whole

CONFIG = "(EngineCore pid=42) INFO 11-20 09:00:09 [core.py:114] Initializing a V1 LLM engine (v0.25.1) with config: "
EAGER_OF_0_9 = (
    "Initializing a V1 LLM engine (v0.9.2) with config: model='m', enforce_eager=True, "
    'compilation_config={"level":0,"use_cudagraph":true,"full_cuda_graph":false}'
)


def test_json_configuration_of_0_9_is_piecewise() -> None:
    recording = read_text(ours("vllm-0.9.log"))
    window = whole(recording)
    config = recording.configs[window.config_id or ""]
    assert (config.resolved_mode, config.capture_sizes, config.compile_mode) == (
        "PIECEWISE",
        (1, 2, 4, 8, 16),
        "level 3",
    )
    assert (config.max_batch_size, config.capture_unit) == (64, "tokens")
    assert recording.fingerprints[window.fingerprint_id or ""].engine_version == "0.9.1"
    assert window.dispatch.captures == {"ok": 5}
    assert window.timing.capture is not None
    assert window.timing.capture.sum == 1_000_000_000


def test_running_requests_stand_in_for_batch_sizes() -> None:
    window = whole(read_text(ours("vllm-0.9.log")))
    assert window.dispatch.batch_sizes == {24: 1}
    assert window.dispatch.steps is None


def test_enforce_eager_names_who_asked() -> None:
    recording = read_text(ours("vllm-0.33-eager.log"))
    window = whole(recording)
    config = recording.configs[window.config_id or ""]
    assert (config.requested_mode, config.resolved_mode, config.graphs_enabled) == ("NONE", "NONE", False)
    assert config.enforced_by == "flag --enforce-eager"
    assert [o.detail for o in seen(window, "graphs_disabled")] == [
        "enforce_eager is set: torch.compile and CUDA graphs are off",
        "CUDA graph capture was skipped: cudagraph_mode is NONE",
    ]
    assert window.blind == ()


def test_eager_that_nobody_asked_for_on_the_command_line_is_told_apart() -> None:
    text = "".join(line for line in ours("vllm-0.33-eager.log").splitlines(True) if "non-default" not in line)
    recording = read_text(text)
    assert recording.configs[whole(recording).config_id or ""].enforced_by == "configuration: enforce_eager"


@pytest.mark.parametrize("by_flag", [True, False])
def test_graphs_that_0_9_prints_beside_eager_were_not_asked_for(by_flag: bool) -> None:
    line = "INFO 11-29 10:00:0{} [core.py:69] {}\n"
    flag = line.format(0, "non-default args: {'model': 'm', 'enforce_eager': True}") if by_flag else ""
    recording = read_text(flag + line.format(1, EAGER_OF_0_9))
    config = recording.configs[whole(recording).config_id or ""]
    assert (config.requested_mode, config.resolved_mode) == ("NONE", "NONE")
    assert config.enforced_by == ("flag --enforce-eager" if by_flag else "configuration: enforce_eager")


def test_metrics_table_gives_steps_tokens_and_why_not() -> None:
    window = whole(read_text(ours("vllm-metrics.log")))
    assert window.dispatch.steps == {"eager": 604, "full": 300, "piecewise": 20}
    assert window.dispatch.fallbacks == {"above_ceiling": 600, "prefill_by_design": 4}
    assert window.dispatch.eager_batch_sizes == {48: 600}
    assert window.dispatch.real_tokens == 48 * 600 + 9 * 300 + 30 * 20 + 2048 * 4
    assert window.dispatch.padded_tokens == 48 * 600 + 16 * 300 + 32 * 20 + 2048 * 4
    assert window.blind == ()


def test_debug_lines_of_tensor_parallel_workers_count_once() -> None:
    window = whole(read_text(ours("vllm-debug.log")))
    assert window.dispatch.steps == {"eager": 1, "full": 2}
    assert window.dispatch.fallbacks == {"prefill_by_design": 1}
    assert window.dispatch.captures == {"ok": 4}
    assert window.workload.rank is None


def test_rank_that_contradicts_the_others_is_a_workload_of_its_own() -> None:
    lines = ours("vllm-debug.log").splitlines(True)
    text = "".join(
        line.replace("cudagraph_mode: FULL", "cudagraph_mode: NONE").replace("CUDAGraphMode.FULL,", "NONE,")
        if "TP1" in line
        else line
        for line in lines
        if "num_tokens=6" not in line
    )
    steps = {w.workload.rank: w.dispatch.steps for w in read_text(text).windows}
    assert steps == {None: {"full": 2}, 1: {"eager": 2}}


def test_data_parallel_replicas_are_workloads_of_their_own() -> None:
    windows: dict[int | None, Window] = {w.workload.rank: w for w in read_text(ours("vllm-dp2.log")).windows}
    assert sorted(r for r in windows if r is not None) == [0, 1]
    assert windows[0].dispatch.steps == {"full": 1}
    assert windows[1].dispatch.steps == {"eager": 1}
    assert windows[1].dispatch.fallbacks == {"ranks_disagree": 1}
    assert (windows[0].workload.pid, windows[1].workload.pid) == (42, 43)


def test_each_replicas_table_of_steps_is_its_own() -> None:
    server = "(APIServer pid=10) INFO 11-20 09:00:50 "
    lines = [
        f"{server}[loggers.py:273] Engine {number:03}: Avg prompt throughput: 0.0 tokens/s, Running: 3 reqs\n"
        f"{server}[cuda_graph.py:117] | 4 | 4 | 0 | {mode} | 50 |\n"
        for number, mode in ((0, "FULL"), (1, "NONE"))
    ]
    windows = {w.workload.rank: w for w in read_text(ours("vllm-dp2.log") + "".join(lines)).windows}
    assert [windows[rank].dispatch.steps for rank in (0, 1)] == [{"full": 51}, {"eager": 51}]


def test_out_of_memory_in_the_capture_is_failure_memory_and_death() -> None:
    recording = read_text(ours("vllm-tp2-oom.log"))
    assert {"out_of_memory", "capture_failed", "process_died"} <= kinds(recording)
    window = whole(recording)
    assert window.dispatch.captures == {"failed": 1}
    assert seen(window, "process_died")[0].detail == "worker process died"


@pytest.mark.parametrize("number", range(14))
def test_every_sentence_about_a_change_of_mode_is_understood(number: int) -> None:
    sentence = ours("vllm-modes.log").splitlines()[number]
    line = f"(EngineCore pid=42) WARNING 11-20 09:00:10 [compilation.py:1341] {sentence}\n"
    expected = [
        "FULL_AND_PIECEWISE",
        "PIECEWISE",
        "NONE",
        "PIECEWISE",
        "NONE",
        "FULL",
        "PIECEWISE",
        "FULL_DECODE_ONLY",
        "PIECEWISE",
        "NONE",
        "NONE",
        "NONE",
        "FULL_DECODE_ONLY",
        "NONE",
    ][number]
    recording = read_text(line)
    config = recording.configs[whole(recording).config_id or ""]
    assert config.resolved_mode == expected
    assert config.mode_reason
    assert kinds(recording) <= {"mode_downgrade", "graphs_disabled"}
    assert kinds(recording)


def test_capped_capture_sizes_are_dropped_and_named() -> None:
    text = CONFIG + (
        "model='m', compilation_config={'cudagraph_mode': <CUDAGraphMode.FULL: 2>, "
        "'cudagraph_capture_sizes': [1, 256, 352, 512], 'max_cudagraph_capture_size': 512}\n"
        "(EngineCore pid=42) WARNING 11-20 09:00:10 [compilation.py:1233] Capping cudagraph capture sizes from max 512 "
        "to 352 to fit Mamba cache blocks (361 blocks available). This limits the maximum batch size.\n"
    )
    recording = read_text(text)
    assert recording.configs[whole(recording).config_id or ""].capture_sizes == (1, 256, 352)
    assert seen(whole(recording), "sizes_dropped")


@pytest.mark.parametrize(
    ("sentence", "sizes", "detail"),
    [
        ("Truncating max_cudagraph_capture_size to 352", (1, 256, 352), "Truncating max_cudagraph_capture_size to 352"),
        (
            "cudagraph_capture_sizes specified in compilation_config [1, 256, 352, 512, 512] is overridden by config "
            "[1, 256]",
            (1, 256),
            "capture sizes that were asked for are left out: 352, 512",
        ),
        (
            "cudagraph_capture_sizes specified in compilation_config [1, 256, 256] is overridden by config [1, 256]",
            (1, 256),
            None,
        ),
    ],
)
def test_sizes_that_vllm_leaves_out_are_named(sentence: str, sizes: tuple[int, ...], detail: str | None) -> None:
    text = CONFIG + (
        "model='m', compilation_config={'cudagraph_mode': <CUDAGraphMode.FULL: 2>, "
        "'cudagraph_capture_sizes': [1, 256, 352, 512], 'max_cudagraph_capture_size': 512}\n"
        f"(EngineCore pid=42) WARNING 11-20 09:00:10 [vllm.py:1233] {sentence}\n"
    )
    recording = read_text(text)
    config = recording.configs[whole(recording).config_id or ""]
    assert (config.capture_sizes, config.max_capture_size) == (sizes, sizes[-1])
    assert [o.detail for o in seen(whole(recording), "sizes_dropped")] == ([detail] if detail else [])


@pytest.mark.parametrize(
    ("sentence", "reason"),
    [
        (
            "CUDA graph is not supported on BitsAndBytes 8bit yet, fallback to the eager mode.",
            "CUDA graphs are not supported on BitsAndBytes 8bit",
        ),
        (
            "CUDA graph is not supported for mllama on ROCm yet, fallback to eager mode.",
            "CUDA graphs are not supported on mllama on ROCm",
        ),
        (
            "Data Parallel: Forcing enforce eager to be True since DP with DeepEP is not CUDA Graph compatible.",
            "DP with DeepEP is not CUDA Graph compatible.",
        ),
    ],
)
def test_eager_that_vllm_forces_itself_was_asked_for_by_nobody(sentence: str, reason: str) -> None:
    warning = f"(APIServer pid=10) WARNING 11-20 09:00:02 [config.py:1216] {sentence}\n"
    text = ours("vllm-0.33-eager.log").splitlines(True)
    recording = read_text("".join([warning, *(line for line in text if "non-default" not in line)]))
    config = recording.configs[whole(recording).config_id or ""]
    assert (config.requested_mode, config.resolved_mode, config.enforced_by) == (None, "NONE", None)
    assert config.mode_reason == reason
    asked = read_text("".join([warning, *text]))
    assert asked.configs[whole(asked).config_id or ""].enforced_by == "flag --enforce-eager"


def test_second_runner_that_captures_nothing_is_off() -> None:
    sentence = (
        "Skipping encoder and decoder CUDA graph capture. To enable encoder capture, ensure `cudagraph_mm_encoder` is "
        "enabled; to enable decoder capture, ensure `cudagraph_mode` is not `NONE`."
    )
    recording = read_text(CONFIG + f"model='m'\n(EngineCore pid=42) WARNING 11-20 09:00:10 [a.py:1] {sentence}\n")
    assert recording.configs[whole(recording).config_id or ""].graphs_enabled is False


@pytest.mark.parametrize(
    "sentence",
    [
        "DFlash draft attention (FLASHMLA) does not support full CUDA graphs; running the draft eagerly.",
        "Currently the eagle proposer only supports cudagraph_mode PIECEWISE, if you want the drafter to use graphs",
    ],
)
def test_drafts_without_graphs_are_said_of_the_draft(sentence: str) -> None:
    text = ours("vllm-metrics.log") + f"(EngineCore pid=42) WARNING 11-20 09:00:41 [a.py:1] {sentence}\n"
    recording = read_text(text)
    assert seen(whole(recording, component="draft"), "graphs_disabled")
    assert not seen(whole(recording), "graphs_disabled")


def test_other_overridings_are_not_taken_for_modes() -> None:
    text = (
        CONFIG + "model='m', compilation_config={'cudagraph_mode': 2}\n"
        "(EngineCore pid=42) INFO 11-20 09:00:10 [speculative.py:10] Overriding draft model len from 10 to 5\n"
    )
    recording = read_text(text)
    assert recording.configs[whole(recording).config_id or ""].resolved_mode == "FULL"
    assert "mode_downgrade" not in kinds(recording)


def test_restart_in_one_file_begins_a_new_run() -> None:
    first = ours("vllm-tp2-oom.log").replace("pid=42", "pid=41")
    recording = read_text(first + ours("vllm-metrics.log"))
    by_pid = {w.workload.pid: w for w in recording.windows}
    assert set(by_pid) == {41, 42}
    assert seen(by_pid[41], "process_died")
    assert not seen(by_pid[42], "process_died")


def test_model_that_still_starts_is_not_dead() -> None:
    from replaywatch.sources.logs import LogReader
    from sources.logs.support import WRITTEN_NS

    reader = LogReader("live.log")
    reader.feed("".join(ours("vllm-metrics.log").splitlines(True)[:4]), WRITTEN_NS)
    reader.finish(WRITTEN_NS, still_written=True)
    recording = reader.take()
    assert "process_died" not in kinds(recording)
    assert any("still starting" in b.reason for w in recording.windows for b in w.blind)
