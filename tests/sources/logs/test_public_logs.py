"""Logs that other people published, each with what must come out of it."""

from __future__ import annotations

from pathlib import Path

from sources.logs.support import kinds, public, read_file, seen, whole

GIB = 1 << 30


def test_downgrade_to_piecewise_names_its_reason(tmp_path: Path) -> None:
    recording = read_file(public("vllm-int4.log"), tmp_path)
    window = whole(recording)
    config = recording.configs[window.config_id or ""]
    assert (config.requested_mode, config.resolved_mode) == ("FULL_AND_PIECEWISE", "PIECEWISE")
    assert config.mode_reason is not None
    assert "spec-decode for attention backend FlashInferBackend" in config.mode_reason
    (downgrade,) = seen(window, "mode_downgrade")
    assert (downgrade.count, downgrade.where) == (1, "compilation.py:1409")
    assert window.dispatch.captures == {"ok": 51}
    assert window.memory.pool_bytes == round(1.02 * GIB)
    assert window.memory.estimated_bytes == round(0.86 * GIB)
    assert (config.max_batch_size, config.ceiling, config.speculative_tokens) == (32, 512, 15)
    assert recording.fingerprints[window.fingerprint_id or ""].engine_version == "0.25.1"


def test_shutdown_on_request_is_no_death(tmp_path: Path) -> None:
    for name in ("vllm.log", "vllm-int4.log", "gemma4-int4.log", "sglang-int4.log"):
        assert "process_died" not in kinds(read_file(public(name), tmp_path)), name


def test_healthy_start_ups_show_estimate_beside_actual_graph_memory(tmp_path: Path) -> None:
    for name, actual, estimated, graphs in (("vllm.log", 2.08, 1.41, 64), ("gemma4-int4.log", 0.38, 0.14, 18)):
        recording = read_file(public(name), tmp_path)
        window = whole(recording)
        assert kinds(recording) == set(), name
        assert window.memory.pool_bytes == round(actual * GIB)
        assert window.memory.estimated_bytes == round(estimated * GIB)
        assert window.dispatch.captures == {"ok": graphs}
        assert window.dispatch.steps is None
        assert any("--cudagraph-metrics" in b.reason for b in window.blind)


def test_log_that_ends_in_the_start_up_is_a_death(tmp_path: Path) -> None:
    window = whole(read_file(public("vllm-run1-oom.log"), tmp_path))
    (death,) = seen(window, "process_died")
    assert "ends inside the start-up" in death.detail
    assert "torch.compile took" in death.detail
    assert window.dispatch.captures is None


def test_sglang_phases_come_apart_and_prefill_is_eager_by_design(tmp_path: Path) -> None:
    recording = read_file(public("sglang-int4.log"), tmp_path)
    decode, prefill = whole(recording, phase="decode"), whole(recording, phase="prefill")
    assert decode.dispatch.steps == {"full": 56}
    assert decode.dispatch.fallbacks is None
    assert prefill.dispatch.steps == {"piecewise": 47, "eager": 10}
    assert prefill.dispatch.fallbacks == {"prefill_by_design": 10}
    assert any("one decode step in 40" in b.reason for b in decode.blind)
    assert recording.configs[decode.config_id or ""].max_batch_size == 48
    assert recording.configs[decode.config_id or ""].ceiling == 8


def test_sglang_slow_prefill_capture_is_named_with_its_memory(tmp_path: Path) -> None:
    recording = read_file(public("sglang-int4.log"), tmp_path)
    prefill = whole(recording, phase="prefill")
    assert prefill.timing.capture is not None
    assert prefill.timing.capture.count == 58
    assert abs(prefill.timing.capture.sum / 1e9 - 216.19) < 0.01
    assert prefill.memory.pool_bytes == round(5.24 * GIB)
    draft = whole(recording, phase="decode", component="draft")
    assert draft.dispatch.captures == {"ok": 8}
