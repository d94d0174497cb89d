"""What was asked of vLLM and what it made of it, across processes."""

import json
import logging
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from probe.engines.batches import decode
from replaywatch.probe.engines import vllm_asked, vllm_config
from replaywatch.probe.engines.vllm import VllmAdapter


@pytest.fixture
def adapter(parts, stand_in, monkeypatch, caplog):
    caplog.set_level(logging.INFO, "vllm")  # as vLLM sets its own logger
    monkeypatch.setenv(vllm_asked.VARIABLE, "")
    stand_in("vllm_0_25")
    return parts.attach(VllmAdapter)


def made(**asked):
    from vllm.engine.arg_utils import EngineArgs

    return EngineArgs(**asked).create_engine_config()


def test_default_configuration_is_resolved_and_nothing_was_asked(adapter):
    made()
    config = adapter.config()
    assert config["resolved_mode"] == "FULL_AND_PIECEWISE"
    assert "requested_mode" not in config
    assert config["graphs_enabled"] is True
    assert (config["capture_sizes"], config["max_capture_size"]) == ([1, 2, 4, 8], 8)
    assert (config["max_batch_size"], config["capture_unit"]) == (64, "sequences")
    assert "enforced_by" not in config
    assert config["settings"]["max_model_len"] == "4096"


def test_enforced_eager_says_who_by_the_command_line(adapter, monkeypatch):
    made(enforce_eager=True)
    assert "not on the command line" in adapter.config()["enforced_by"]
    assert adapter.config()["requested_mode"] == "NONE"
    assert "Enforce eager set" in adapter.config()["mode_reason"]
    monkeypatch.setattr(sys, "argv", ["vllm", "serve", "tiny", "--enforce-eager"])
    made(enforce_eager=True)
    assert adapter.config()["enforced_by"] == "the flag --enforce-eager"


def test_eager_through_the_compilation_config_says_who(adapter):
    made()  # imports
    from vllm.config.compilation import CUDAGraphMode

    made(cudagraph_mode=CUDAGraphMode.NONE)
    assert adapter.config()["enforced_by"].startswith("cudagraph_mode=NONE, set by the calling code")
    assert adapter.config()["requested_mode"] == "NONE"


def test_eager_that_vllm_runs_by_itself_was_asked_by_nobody(adapter):
    config = made()
    from vllm.config.compilation import CUDAGraphMode

    config.model_config.enforce_eager = True
    config.compilation_config.cudagraph_mode = CUDAGraphMode.NONE
    adapter._config.clear()
    adapter.learn(config)
    assert not {"requested_mode", "enforced_by"} & set(adapter.config())


def test_eager_in_a_process_that_knows_nothing_of_the_arguments_is_somebodys_wish(adapter, monkeypatch):
    config = made(enforce_eager=True)
    monkeypatch.setenv(vllm_asked.VARIABLE, "")
    adapter._config.clear()
    adapter.learn(config)
    assert adapter.config()["requested_mode"] == "NONE"
    assert "set by a configuration file or the calling code" in adapter.config()["enforced_by"]
    monkeypatch.setattr(sys, "argv", ["vllm", "serve", "tiny", "--enforce_eager"])
    adapter._config.clear()
    adapter.learn(config)
    assert adapter.config()["enforced_by"] == "the flag --enforce-eager"


def test_downgrade_keeps_what_was_asked_beside_what_runs(adapter):
    config = made()
    from vllm.config.compilation import CUDAGraphMode

    config = made(cudagraph_mode=CUDAGraphMode.FULL_DECODE_ONLY)
    config.compilation_config.resolve_cudagraph_mode_and_sizes("NEVER", "FlashInferBackend")
    adapter.learn(config)
    known = adapter.config()
    assert (known["requested_mode"], known["resolved_mode"]) == ("FULL_DECODE_ONLY", "PIECEWISE")
    assert "FlashInferBackend" in known["mode_reason"]


def test_speculation_counts_sizes_in_tokens(adapter):
    made(drafts=3)
    assert (adapter.config()["capture_unit"], adapter.config()["speculative_tokens"]) == ("tokens", 3)


def test_model_is_named_without_its_path(adapter):
    made(model="/srv/models/tiny-llama/")
    assert adapter.workload() == {"model_name": "tiny-llama", "rank": 0}


def pipeline(rank, **sizes):
    parallel = SimpleNamespace(rank=rank, pipeline_parallel_size=2, data_parallel_rank=0, **sizes)
    return SimpleNamespace(parallel_config=parallel, speculative_config=None)


def test_pipeline_stage_is_the_component_of_its_ranks(adapter):
    for rank, stage in enumerate((0, 0, 1, 1, 0, 0, 1, 1)):  # the second four: another replica of one launcher
        adapter.learn(pipeline(rank, tensor_parallel_size=2))
        assert adapter.workload() == {"rank": rank, "component": f"stage {stage}"}
    adapter.learn(pipeline(5, tensor_parallel_size=2, prefill_context_parallel_size=2))
    assert adapter.workload()["component"] == "stage 1"


def test_what_was_asked_reaches_a_child_process(adapter):
    config = made(enforce_eager=True)
    code = (
        "import json; from types import SimpleNamespace as N; from replaywatch.probe.engines import vllm_asked as a; "
        f"print(json.dumps(a.recall(N(instance_id={config.instance_id!r}))))"
    )
    path = os.pathsep.join(p for p in sys.path if p.endswith("agent"))
    out = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path}
    )
    recalled = json.loads(out.stdout)
    assert recalled["mode"] == "NONE"
    assert any("Enforce eager" in text for text in recalled["heard"])


def test_many_engines_do_not_grow_the_environment(adapter):
    for _ in range(40):
        made()
    assert len(json.loads(os.environ[vllm_asked.VARIABLE])) <= vllm_asked.MAX_ENGINES


def test_spoilt_variable_is_as_good_as_none(adapter, monkeypatch):
    for text in ("{", "[]", '"x"', '{"a": 1}'):
        monkeypatch.setenv(vllm_asked.VARIABLE, text)
        assert vllm_asked.recall(object()) == {}


def test_logs_that_tell_no_change_are_not_heard(adapter):
    with vllm_asked.Heard() as heard:
        logging.getLogger("vllm.x").warning("Capturing CUDA graphs (decode, FULL)")
        logging.getLogger("vllm.x").warning("Overriding cudagraph_mode to %s.", "PIECEWISE")
        heard.emit(logging.makeLogRecord({"msg": "overriding cudagraph %d", "args": ("text",), "levelno": 30}))
    assert heard.texts == ["Overriding cudagraph_mode to PIECEWISE."]


@pytest.mark.parametrize("runner", ["v1", "v2"])
def test_configuration_is_learned_in_a_process_that_never_saw_the_arguments(parts, adapter, runner):
    config = made()
    adapter._config.clear()
    from vllm.v1.worker import gpu_model_runner
    from vllm.v1.worker.gpu import model_runner
    from vllm.v1.worker.gpu_worker import Worker

    chosen = (gpu_model_runner if runner == "v1" else model_runner).GPUModelRunner(config)
    chosen.model = SimpleNamespace(parameters=lambda: [SimpleNamespace(numel=lambda: 500, element_size=lambda: 2)])
    Worker(config, chosen).compile_or_warm_up_model(decode(1))
    assert adapter.config()["resolved_mode"] == "FULL_AND_PIECEWISE"
    assert adapter.memory()["pool_bytes"] > 0
    assert adapter.config()["weight_bytes"] == 1000


@pytest.mark.parametrize("runner", ["v1", "v2"])
def test_configuration_is_learned_from_the_first_step_where_the_probe_began_late(parts, adapter, runner):
    config = made()
    adapter._config.clear()
    from vllm.v1.worker import gpu_model_runner
    from vllm.v1.worker.gpu import model_runner

    chosen = (gpu_model_runner if runner == "v1" else model_runner).GPUModelRunner(config)
    chosen.model = SimpleNamespace(parameters=lambda: [SimpleNamespace(numel=lambda: 500, element_size=lambda: 2)])
    chosen.execute_model(decode(3))
    assert adapter.config()["resolved_mode"] == "FULL_AND_PIECEWISE"
    assert adapter.config()["weight_bytes"] == 1000
    adapter._config["weight_bytes"] = 7
    chosen.execute_model(decode(3))
    assert adapter.config()["weight_bytes"] == 7  # asked once a runner


def test_things_without_attributes_give_no_fields_and_no_error():
    fields = vllm_config.config_fields(object(), None, ())
    assert fields["engine"] == "vllm"
    assert "resolved_mode" not in fields
    assert vllm_config.workload_fields(None) == {"model_name": None, "rank": None, "component": None}
