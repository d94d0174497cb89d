from __future__ import annotations

import pytest

from replaywatch.contract.snapshot import EngineConfig
from sources.logs.support import kinds, ours, read_text, seen, whole

GB = 1 << 30


def test_sglang_decode_past_the_ceiling_is_eager_for_that_reason() -> None:
    recording = read_text(ours("sglang-old.log"))
    decode = whole(recording, phase="decode")
    assert decode.dispatch.steps == {"full": 1, "eager": 2}
    assert decode.dispatch.fallbacks == {"above_ceiling": 2}
    assert decode.dispatch.eager_batch_sizes == {6: 2}
    config = recording.configs[decode.config_id or ""]
    assert (config.ceiling, config.max_batch_size, config.capture_unit) == (4, 4096, "sequences")


def test_sglang_ranks_that_repeat_a_capture_count_once() -> None:
    decode = whole(read_text(ours("sglang-old.log")), phase="decode")
    assert decode.dispatch.captures == {"ok": 3}
    assert decode.timing.capture is not None
    assert decode.timing.capture.sum == 6_300_000_000
    assert decode.memory.pool_bytes == round(0.93 * GB)


@pytest.mark.parametrize(
    ("version", "running", "reason"),
    [
        ("0.4.9.post3", 2, "above_ceiling"),
        ("0.4.9.post4", 2, "other"),
        ("0.5.23", 2, "other"),
        ("0.5.23", 6, "above_ceiling"),
        (None, 2, "other"),
    ],
)
def test_sglang_sums_over_data_parallel_attention_only_in_old_releases(
    version: str | None, running: int, reason: str
) -> None:
    text = (
        ours("sglang-old.log")
        .replace("dp_size=1", "dp_size=4, enable_dp_attention=True")
        .replace("#running-req: 6", f"#running-req: {running}")
    )
    first = f"[2026-11-29 09:59:59] sglang_version={version}\n" if version else ""
    decode = [w for w in read_text(first + text).windows if w.workload.phase == "decode" and w.dispatch.steps]
    assert {w.dispatch.fallbacks and tuple(w.dispatch.fallbacks) for w in decode} == {(reason,)}


@pytest.mark.parametrize(
    ("sentence", "reason"),
    [
        ("Cuda graph and server warmup are disabled because of using tensor dump mode", "of using tensor dump mode"),
        ("expert_pack selected: CUDA graph and shared-experts fusion are disabled for correctness.", "correctness."),
    ],
)
def test_sglang_sentences_that_switch_decode_graphs_off(sentence: str, reason: str) -> None:
    recording = read_text(ours("sglang-old.log") + f"[2026-11-29 10:02:00 TP0] {sentence}\n")
    decode = whole(recording, phase="decode")
    assert [o.kind for o in decode.observations] == ["graphs_disabled"]
    config = recording.configs[decode.config_id or ""]
    assert (config.graphs_enabled, config.mode_reason) == (False, reason)


@pytest.mark.parametrize(
    ("sentence", "reason"),
    [
        ("Disabling breakable prefill CUDA graph by default for pipeline parallelism.", "pipeline parallelism."),
        ("Disabling auto-selected prefill CUDA graph: only 3 GiB is free", "only 3 GiB is free"),
        ("Disable prefill CUDA graph capture because no size fits", "no size fits"),
        ("Disable prefill CUDA graph for EAGLE target on tc_piecewise", "EAGLE target on tc_piecewise"),
        ("Full prefill CUDA graph is incompatible with DCP; disabling prefill CUDA graph.", None),
        ("Prefill CUDA graph (full) is incompatible with --enable-kv-cache-sharding; disabling it.", None),
    ],
)
def test_sglang_sentences_that_switch_prefill_graphs_off(sentence: str, reason: str | None) -> None:
    lines = "".join(f"[2026-11-29 10:02:00 TP{rank}] {sentence}\n" for rank in (0, 1))
    recording = read_text(ours("sglang-old.log") + lines)
    prefill = whole(recording, phase="prefill")
    assert [o.count for o in seen(prefill, "graphs_disabled")] == [1]
    config = recording.configs[prefill.config_id or ""]
    assert config.graphs_enabled is False
    assert "incompatible with" in (config.mode_reason or "") if reason is None else config.mode_reason == reason
    assert not seen(whole(recording, phase="decode"), "graphs_disabled")


@pytest.mark.parametrize(
    "sentence",
    [
        "Disable DFLASH draft cuda graph because dp attention is enabled (draft runs eager).",
        "Disable DSpark draft cuda graph because only 0.42 GB GPU memory is available after initialization.",
        "Frozen-KV MTP draft CUDA graph is only supported on CUDA; running the draft loop eagerly on xpu.",
        "can't use cuda graph for draft extend! may have correctness issue!",
    ],
)
def test_sglang_drafts_without_graphs_are_said_of_the_draft(sentence: str) -> None:
    recording = read_text(ours("sglang-old.log") + f"[2026-11-29 10:02:00 TP0] {sentence}\n")
    assert seen(whole(recording, phase="decode", component="draft"), "graphs_disabled")
    assert not seen(whole(recording, phase="decode"), "graphs_disabled")


def test_sglang_debugging_of_graphs_is_said() -> None:
    sentence = (
        "Debug mode for CUDA graph is enabled via breakable CUDA graph. All operations will run eagerly through the "
        "graph capture/replay path."
    )
    recording = read_text(ours("sglang-old.log") + f"[2026-11-29 10:02:00 TP0] {sentence}\n")
    assert [o.detail for o in seen(whole(recording, phase="decode"), "graphs_disabled")] == [sentence]


def test_sglang_drafts_with_a_hyphen_are_captured() -> None:
    text = ours("sglang-old.log") + (
        "[2026-11-29 10:00:38 TP0] Capture Frozen-KV MTP draft cuda graph begin.\n"
        "[2026-11-29 10:00:39 TP0] Capture Frozen-KV MTP draft cuda graph end.\n"
        "[2026-11-29 10:00:39 TP0] Capture draft extend cuda graph begin (step 1). This can take up to minutes.\n"
    )
    draft = whole(read_text(text), phase="decode", component="draft")
    assert draft.dispatch.captures == {"ok": 1}


def test_sglang_failed_capture_is_failure_memory_and_death() -> None:
    recording = read_text(ours("sglang-capture-failed.log"))
    assert {"capture_failed", "out_of_memory", "process_died"} <= kinds(recording)
    assert whole(recording, phase="decode").dispatch.captures == {"failed": 1}


def test_sglang_flag_that_disables_graphs_is_named() -> None:
    text = ours("sglang-old.log").replace("disable_cuda_graph=False", "disable_cuda_graph=True")
    text = "".join(line for line in text.splitlines(True) if "Captur" not in line).replace(
        "graph: True", "graph: False"
    )
    recording = read_text(text)
    decode = whole(recording, phase="decode")
    config = recording.configs[decode.config_id or ""]
    assert (config.graphs_enabled, config.enforced_by) == (False, "flag --disable-cuda-graph")
    assert decode.dispatch.fallbacks == {"forced_eager": 3}


@pytest.mark.parametrize(
    ("printed", "option"),
    [
        ("disable_decode_cuda_graph=True", "--disable-decode-cuda-graph"),
        ("disable_cuda_graph=True, cuda_graph_config=CudaGraphConfig(decode=PhaseConfig(backend='disabled'))",
         "--disable-cuda-graph"),
        ("cuda_graph_backend_decode='disabled'", "--cuda-graph-backend-decode=disabled"),
        ("cuda_graph_config=CudaGraphConfig(decode=PhaseConfig(backend='disabled'))", "--cuda-graph-config"),
    ],
)  # fmt: skip
def test_sglang_option_that_disables_decode_graphs_is_named(printed: str, option: str) -> None:
    config = sglang_config("", f"ServerArgs(tp_size=1, {printed})")
    assert (config.requested_mode, config.graphs_enabled, config.enforced_by) == ("disabled", False, f"flag {option}")


@pytest.mark.parametrize(
    ("sentence", "reason"),
    [
        ("Cuda graph is disabled because of using torch native attention backend", "of using torch native"),
        ("HRM-Text (prefix_lm) detected: forcing --attention-backend triton, --chunked-prefill-size -1, "
         "--disable-radix-cache, and --disable-cuda-graph for correctness.", "HRM-Text (prefix_lm) detected"),
        ("DWDP enabled: dwdp_size=2, auto-forced attn_dp_size=2, disable_cuda_graph=True", "DWDP enabled"),
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    "printed", ["disable_cuda_graph=True", "cuda_graph_config={'decode': {'backend': 'disabled'}}"]
)
def test_sglang_that_switches_decode_graphs_off_itself_names_no_flag(sentence: str, reason: str, printed: str) -> None:
    config = sglang_config(sentence, f"ServerArgs({printed})")
    assert (config.requested_mode, config.graphs_enabled, config.enforced_by) == (None, False, None)
    assert (config.mode_reason or "").startswith(reason)


def test_sglang_sparsity_without_graphs_is_said_after_the_arguments() -> None:
    text = ours("sglang-old.log").replace(
        "Memory pool end.", "Double sparsity optimization is turned on. Use triton backend without CUDA graph.", 1
    )
    recording = read_text("".join(line for line in text.splitlines(True) if "Captur" not in line))
    config = recording.configs[whole(recording, phase="decode").config_id or ""]
    assert (config.graphs_enabled, config.mode_reason) == (False, "Double sparsity optimization is turned on")


@pytest.mark.parametrize("printed", ["disaggregation_mode='prefill', disable_cuda_graph=True", "device='xpu'"])
def test_sglang_that_never_wanted_decode_graphs_names_no_flag(printed: str) -> None:
    config = sglang_config("", f"ServerArgs({printed}, cuda_graph_config={{'decode': {{'backend': 'disabled'}}}})")
    assert config.enforced_by is None


def test_sglang_arguments_printed_as_a_dictionary_are_read() -> None:
    printed = {
        "tp_size": 2,
        "disable_cuda_graph": False,
        "cuda_graph_config": {"decode": {"backend": "full", "bs": [1, 4]}},
    }
    config = sglang_config("", repr(printed))
    assert (config.resolved_mode, config.capture_sizes, config.tensor_parallel_size) == ("full", (1, 4), 2)


def test_sglang_backend_of_the_phase_wins_over_the_switch_of_all() -> None:
    config = sglang_config("", "ServerArgs(disable_cuda_graph=True, cuda_graph_backend_decode='full')")
    assert (config.requested_mode, config.graphs_enabled, config.enforced_by) == ("full", True, None)


def sglang_config(sentence: str, arguments: str) -> EngineConfig:
    """The configuration from a start of SGLang: what it said before it printed its arguments, and these."""
    text = f"[2026-11-29 10:00:00] {sentence}\n[2026-11-29 10:00:01] server_args={arguments}\n"
    (config,) = read_text(text).configs.values()
    return config


def test_sglang_reason_against_prefill_graphs_stays_with_prefill() -> None:
    text = ours("sglang-old.log") + "[2026-11-29 10:02:00 TP0] Disable prefill CUDA graph because LoRA is enabled\n"
    recording = read_text(text)
    prefill = whole(recording, phase="prefill")
    assert seen(prefill, "graphs_disabled")
    assert recording.configs[prefill.config_id or ""].mode_reason == "LoRA is enabled"
    assert not seen(whole(recording, phase="decode"), "graphs_disabled")


def test_trtllm_captures_sizes_and_step_times() -> None:
    recording = read_text(ours("trtllm.log"))
    window = whole(recording)
    config = recording.configs[window.config_id or ""]
    assert (config.capture_sizes, config.max_batch_size, config.padding) == ((1, 2, 64), 128, True)
    assert window.dispatch.captures == {"ok": 2}
    assert window.timing.step_period is not None
    assert window.timing.step_period.sum == 11_500_000
    assert seen(window, "sizes_dropped")
    assert window.blind[0].signal == "dispatch"
    assert window.workload.model_name == "acme/llama-8b"


def test_trtllm_without_a_graph_configuration_is_off() -> None:
    recording = read_text(ours("trtllm-off.log"))
    config = recording.configs[whole(recording).config_id or ""]
    assert (config.graphs_enabled, config.max_batch_size) == (False, 32)
    assert seen(whole(recording), "graphs_disabled")


def test_llama_cpp_says_that_graphs_are_off_for_good() -> None:
    recording = read_text(ours("llama-cpp-2024.log"))
    window = whole(recording)
    assert window.dispatch.fallbacks == {"prefill_by_design": 2, "rerecord_limit": 1}
    assert window.dispatch.updates == {"failed": 1}
    assert recording.configs[window.config_id or ""].graphs_enabled is False
    assert [o.detail for o in seen(window, "graphs_disabled")] == [
        "disabling CUDA graphs due to too many consecutive updates"
    ]
    assert recording.fingerprints[window.fingerprint_id or ""].gpu_model == "NVIDIA GeForce RTX 4090"
    assert recording.fingerprints[window.fingerprint_id or ""].engine_version == "3719 (7239ce6b)"


def test_llama_cpp_reused_graphs_are_replays() -> None:
    window = whole(read_text(ours("llama-cpp-2026.log")))
    assert window.dispatch.steps == {"full": 2}
    assert (window.dispatch.replays, window.dispatch.captures) == (2, {"ok": 1})


def test_llama_cpp_flood_is_counted_not_repeated() -> None:
    line = "ggml_backend_cuda_graph_compute: disabling CUDA graphs due to GPU architecture\n"
    window = whole(read_text(line * 5000))
    (observation,) = window.observations
    assert (observation.kind, observation.count) == ("graphs_disabled", 5000)


@pytest.mark.parametrize("name", ["tgi.log", "tgi.json.log"])
def test_tgi_sizes_come_from_text_and_from_json(name: str) -> None:
    recording = read_text(ours(name))
    window = whole(recording)
    config = recording.configs[window.config_id or ""]
    assert (config.graphs_enabled, config.capture_sizes) == (True, (1, 2, 4, 8, 16, 32))
    assert window.dispatch.captures == {"ok": 6}
    assert window.end_ns - window.start_ns > 2_900_000_000


def test_tgi_failed_warm_up_leaves_graphs_off() -> None:
    recording = read_text(ours("tgi-failed.log"))
    assert whole(recording).dispatch.captures == {"failed": 1}
    assert recording.configs[whole(recording).config_id or ""].graphs_enabled is False


@pytest.mark.parametrize(
    "sentence",
    ["Cuda Graphs are disabled (CUDA_GRAPHS=[]).", "Bitsandbytes doesn't work with cuda graphs, deactivating them"],
)
def test_tgi_without_graphs_says_why(sentence: str) -> None:
    recording = read_text(f"2025-07-04T12:35:04.406208Z  INFO text_generation_launcher: {sentence}\n")
    assert seen(whole(recording), "graphs_disabled")
    assert recording.configs[whole(recording).config_id or ""].mode_reason


def test_transformers_counts_the_graphs_it_creates() -> None:
    recording = read_text(ours("transformers.log"))
    assert whole(recording).workload.engine == "transformers"
    assert whole(recording).dispatch.captures == {"ok": 2}


def test_inductor_skips_are_counted_with_the_frame_they_come_from() -> None:
    window = whole(read_text(ours("torch-compile.log")))
    skips = {o.detail: o for o in seen(window, "inductor_skip")}
    assert skips["mutated inputs (36 instances)"].count == 3
    assert skips["mutated inputs (36 instances)"].where == "dia/layers.py:431"
    assert "disabling cudagraphs due to incompatible op aten._local_scalar_dense.default" in skips
    assert "re-recording limit 128 exceeded due to static input data pointer changed" in skips
    assert seen(window, "dynamic_shapes")[0].detail.count("9 distinct") == 1
    assert seen(window, "inductor_rerecord")
    assert window.dispatch.captures == {"ok": 1}
    assert window.dispatch.steps is None


def test_inductor_lines_inside_an_engine_belong_to_it() -> None:
    recording = read_text(ours("vllm-metrics.log") + ours("torch-compile.log"))
    assert {w.workload.engine for w in recording.windows} == {"vllm"}
    assert "inductor_skip" in kinds(recording)
