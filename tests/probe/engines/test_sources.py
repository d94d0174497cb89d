"""The points that adapters hook, in the engines' real sources; and vLLM's real dispatchers behind the real hooks."""

import enum
from types import SimpleNamespace

import pytest

from probe.engines.batches import decode, scheduled
from probe.engines.sources import Sources, function, number, one_class, versions
from replaywatch.probe.engines.vllm import VllmAdapter

DECODE = (None, None)
V1 = "vllm/v1/worker/gpu_model_runner.py"
V2 = "vllm/v1/worker/gpu/model_runner.py"


@pytest.mark.parametrize("root", versions("vllm"))
def test_vllm_has_the_points_that_are_hooked(root):
    version = number(root)
    assert function(root / V1, "GPUModelRunner.execute_model")[:2] == ["self", "scheduler_output"]
    assert "num_tokens" in function(root / V1, "GPUModelRunner._dummy_run")
    assert function(root / V1, "GPUModelRunner.capture_model") == ["self"]
    worker = root / "vllm/v1/worker/gpu_worker.py"
    assert function(worker, "Worker.compile_or_warm_up_model") is not None
    assert function(worker, "Worker.determine_available_memory") is not None
    assert function(worker, "Worker.execute_dummy_batch") is not None
    assert function(root / "vllm/engine/arg_utils.py", "EngineArgs.create_engine_config")[0] == "self"
    asked = function(root / "vllm/v1/cudagraph_dispatcher.py", "CudagraphDispatcher.dispatch")
    if version < (0, 10, 1):
        assert asked is None
        assert "skip_cuda_graphs" in function(root / "vllm/forward_context.py", "set_forward_context")
    else:
        assert asked[1] in ("num_tokens", "batch_descriptor")


@pytest.mark.parametrize("root", versions("vllm"))
def test_vllm_from_0_19_has_the_second_runners_points(root):
    if number(root) < (0, 19):
        pytest.skip("its second runner was an experiment, and dispatches otherwise")
    names = function(root / "vllm/v1/worker/gpu/dp_utils.py", "dispatch_cg_and_sync_dp")
    assert names[:6] == ["cudagraph_manager", "num_reqs", "num_tokens", "uniform_token_count", "dp_size", "dp_rank"]
    assert {"need_eager", "num_active_loras"} <= set(names) or number(root) < (0, 25)
    assert "dummy_run" in function(root / V2, "GPUModelRunner.execute_model")
    assert function(root / V2, "GPUModelRunner._dummy_run") is not None
    resolve = function(root / "vllm/config/compilation.py", "CompilationConfig.resolve_cudagraph_mode_and_sizes")
    assert "min_cg_support" in resolve


@pytest.mark.parametrize("root", versions("sglang"))
def test_sglang_has_the_points_that_are_hooked(root):
    runner = root / "sglang/srt/model_executor/model_runner.py"
    assert function(runner, "ModelRunner._forward_raw")[:2] == ["self", "forward_batch"]
    draft = root / "sglang/srt/speculative/eagle_draft_cuda_graph_runner.py"
    names = [function(draft, f"EAGLEDraftCudaGraphRunner.{n}") for n in ("can_run", "can_run_graph")]
    assert ["self", "forward_batch"] in names
    text = runner.read_text()
    assert "can_run_graph" in text
    assert ("decode_cuda_graph_runner" in text) is (number(root) >= (0, 5, 16))


@pytest.mark.parametrize("root", versions("flashinfer"))
def test_flashinfer_plans_in_its_wrappers(root):
    assert function(root / "flashinfer/decode.py", "BatchDecodeWithPagedKVCacheWrapper.plan")[0] == "self"
    assert function(root / "flashinfer/prefill.py", "BatchPrefillWithPagedKVCacheWrapper.plan")[0] == "self"


class SchedulerConfig:
    max_num_seqs = 64


def vllm_config(mode, sizes, lora=None, drafts=0, ranks=1):
    return SimpleNamespace(
        compilation_config=SimpleNamespace(
            cudagraph_mode=mode, cudagraph_capture_sizes=list(sizes), max_cudagraph_capture_size=max(sizes),
            compile_sizes=None, cudagraph_specialize_lora=True, is_attention_compiled_piecewise=lambda: True,
            mode="VLLM_COMPILE", level=3, splitting_ops=["attention"], splitting_ops_contain_attention=lambda: True,
            use_inductor_graph_partition=False, adjust_cudagraph_sizes_for_spec_decode=lambda *sizes: None,
        ),
        scheduler_config=SchedulerConfig(), cache_config=SimpleNamespace(use_kda_recoverssm=False),
        parallel_config=SimpleNamespace(data_parallel_size=ranks, tensor_parallel_size=1),
        model_config=SimpleNamespace(enforce_eager=False, is_encoder_decoder=False, model="tiny"),
        lora_config=lora, speculative_config=speculation(drafts) if drafts else None,
        num_speculative_tokens=drafts, uniform_decode_query_len=1 + drafts,
    )  # fmt: skip


def speculation(drafts):
    return SimpleNamespace(num_speculative_tokens=drafts, uses_dynamic_speculative_decoding=lambda: False)


class RealDispatcher:
    """A runner's step around vLLM's own dispatcher, as its `execute_model` asks it."""

    def __init__(self, module, config):
        self.vllm_config, self.speculative_config = config, config.speculative_config
        self.cudagraph_dispatcher = module.CudagraphDispatcher(config)
        self.descriptor = module.BatchDescriptor
        self.query = 1 + config.num_speculative_tokens
        self.cudagraph_dispatcher.initialize_cudagraph_keys(config.compilation_config.cudagraph_mode, self.query)

    def execute_model(self, scheduler_output, intermediate_tensors=None):
        counts = scheduler_output.num_scheduled_tokens.values()
        tokens, uniform = sum(counts), set(counts) == {self.query}
        dispatch = self.cudagraph_dispatcher.dispatch
        sizes = self.vllm_config.compilation_config.cudagraph_capture_sizes
        if "uniform_decode" in getattr(self.descriptor, "_fields", ()):
            padded = min((s for s in sizes if s >= tokens), default=tokens)
            return dispatch(self.descriptor(num_tokens=padded, uniform_decode=uniform))
        return dispatch(num_tokens=tokens, uniform_decode=uniform, has_lora=False)


@pytest.fixture
def real(parts, request):
    """vLLM's own dispatcher module, with hollow modules for all that it imports and does not need here."""
    root = request.param
    if number(root) < (0, 10, 1):
        pytest.skip("no dispatcher in this version")
    modes = one_class(root / "vllm/config/compilation.py", "CUDAGraphMode", {"enum": enum})
    adapter = parts.attach(VllmAdapter)
    name = "vllm.v1.cudagraph_dispatcher"
    with Sources(root, [name], ["vllm"]):
        import vllm.config as config
        import vllm.forward_context as context

        config.CUDAGraphMode = modes
        described = (root / "vllm/forward_context.py").read_text()
        from dataclasses import dataclass
        from typing import NamedTuple

        names = {"NamedTuple": NamedTuple, "dataclass": dataclass, "__name__": "descriptor"}
        context.BatchDescriptor = one_class(root / "vllm/forward_context.py", "BatchDescriptor", names)
        assert described
        import vllm.compilation.breakable_cudagraph as breakable

        breakable.is_breakable_cudagraph_enabled = lambda: False
        import vllm.v1.cudagraph_dispatcher as module

        adapter.patches.wrap(RealDispatcher, "execute_model", "test", adapter.steps.execute_model)
        yield SimpleNamespace(module=module, modes=modes, version=number(root))
        adapter.remove()


@pytest.mark.parametrize("real", versions("vllm"), indirect=True)
def test_real_dispatcher_gives_modes_and_reasons(parts, real):
    runner = RealDispatcher(real.module, vllm_config(real.modes.FULL_AND_PIECEWISE, (1, 2, 4, 8)))
    for batch in (decode(3), decode(8), decode(9), scheduled(5), scheduled(50), scheduled(1, 1, 3)):
        runner.execute_model(batch)
    taken = parts.taken()
    assert taken[DECODE]["steps"] == {"full": 2, "eager": 1}
    assert taken[DECODE]["fallbacks"] == {"above_ceiling": 1}
    assert (taken[DECODE]["real_tokens"], taken[DECODE]["padded_tokens"]) == (20, 21)
    assert taken[None, "prefill"]["steps"] == {"piecewise": 1, "eager": 1}
    assert taken[None, "mixed"]["fallbacks"] == {"prefill_by_design": 1}
    assert parts.sight.errors == 0


@pytest.mark.parametrize("real", versions("vllm"), indirect=True)
def test_real_dispatcher_in_piecewise_and_decode_only(parts, real):
    for mode, expected in (("PIECEWISE", ("piecewise", "mode_piecewise")), ("FULL_DECODE_ONLY", ("full", None))):
        runner = RealDispatcher(real.module, vllm_config(real.modes[mode], (1, 2, 4, 8)))
        runner.execute_model(decode(3))
        runner.execute_model(scheduled(5))
        taken = parts.taken()
        assert taken[DECODE]["steps"] == {expected[0]: 1}
        assert taken[DECODE].get("fallbacks") == ({expected[1]: 1} if expected[1] else None)
        assert taken[None, "prefill"]["fallbacks"] == {"prefill_by_design": 1}


@pytest.mark.parametrize("real", versions("vllm"), indirect=True)
def test_real_dispatcher_without_keys_is_warm_up_and_not_counted(parts, real):
    runner = RealDispatcher(real.module, vllm_config(real.modes.FULL_AND_PIECEWISE, (1, 2)))
    runner.cudagraph_dispatcher.keys_initialized = False
    runner.execute_model(decode(1))
    assert parts.taken() == {}


class SecondRunner:
    """The second runner's step around vLLM's own graph manager and its own agreement between ranks."""

    def __init__(self, managers, ranks, config, query=1):
        self.vllm_config, self.speculative_config = config, config.speculative_config
        self.cudagraph_manager = managers.CudaGraphManager(
            config, "cuda", config.compilation_config.cudagraph_mode, query
        )
        self.cudagraph_manager._graphs_captured = True
        self.ranks = ranks

    def execute_model(self, scheduler_output, intermediate_tensors=None, dummy_run=False):
        counts = scheduler_output.num_scheduled_tokens.values()
        tokens, most = sum(counts), max(counts)
        uniform = most if most * len(counts) == tokens else None
        return self.ranks.dispatch_cg_and_sync_dp(self.cudagraph_manager, len(counts), tokens, uniform, 1, 0)[0]


@pytest.fixture
def second(parts, request):
    """vLLM's own graph manager and dispatch function of the second runner; torch is hollow."""
    root = request.param
    if number(root) < (0, 19):
        pytest.skip("its second runner was an experiment, and dispatches otherwise")
    modes = one_class(root / "vllm/config/compilation.py", "CUDAGraphMode", {"enum": enum})
    adapter = parts.attach(VllmAdapter)
    real = ["vllm.v1.worker.gpu.cudagraph_utils", "vllm.v1.worker.gpu.dp_utils"]
    with Sources(root, real, ["vllm", "torch", "tqdm", "numpy"]):
        import vllm.compilation.breakable_cudagraph as breakable
        import vllm.config as config
        import vllm.config.compilation as compilation
        import vllm.utils.math_utils as numbers

        config.CUDAGraphMode = compilation.CUDAGraphMode = modes
        breakable.is_breakable_cudagraph_enabled = lambda: False
        numbers.round_up = lambda x, y: (x + y - 1) // y * y
        import vllm.v1.worker.gpu.cudagraph_utils as managers
        import vllm.v1.worker.gpu.dp_utils as ranks

        adapter.patches.wrap(SecondRunner, "execute_model", "test", adapter.steps.execute_model)
        yield SimpleNamespace(managers=managers, ranks=ranks, modes=modes)
        adapter.remove()


@pytest.mark.parametrize("second", versions("vllm"), indirect=True)
def test_second_runners_own_dispatch_gives_modes_and_reasons(parts, second):
    made = SecondRunner(second.managers, second.ranks, vllm_config(second.modes.FULL_AND_PIECEWISE, (1, 2, 4, 8)))
    for batch in (decode(3), decode(8), decode(9), scheduled(5), scheduled(4, 4), scheduled(50), scheduled(1, 1, 3)):
        made.execute_model(batch)
    made.execute_model(decode(1), dummy_run=True)
    taken = parts.taken()
    assert taken[DECODE]["steps"] == {"full": 2, "eager": 1}
    assert taken[DECODE]["fallbacks"] == {"above_ceiling": 1}
    assert (taken[DECODE]["real_tokens"], taken[DECODE]["padded_tokens"]) == (20, 21)
    assert taken[None, "prefill"]["steps"] == {"piecewise": 2, "eager": 1}
    assert taken[None, "mixed"]["fallbacks"] == {"prefill_by_design": 1}
    assert parts.sight.errors == 0


@pytest.mark.parametrize("second", versions("vllm"), indirect=True)
def test_second_runners_own_dispatch_with_speculation(parts, second):
    config = vllm_config(second.modes.FULL_AND_PIECEWISE, (4, 8, 16), drafts=3)
    made = SecondRunner(second.managers, second.ranks, config, query=4)
    made.execute_model(scheduled(4, 4))
    made.execute_model(scheduled(4, 2))
    taken = parts.taken()[DECODE]
    assert taken["steps"] == {"full": 1, "piecewise": 1}
    assert taken["fallbacks"] == {"speculative_width": 1}
