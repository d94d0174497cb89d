"""The points that adapters hook, in the engines' real sources; and vLLM's real dispatchers behind the real hooks."""

import ast
import enum
import inspect
from types import SimpleNamespace

import numpy
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
        told = function(root / "vllm/forward_context.py", "set_forward_context")
        assert "num_tokens" in told
        assert ("skip_cuda_graphs" in told) is (version >= (0, 9, 2)), "before, nothing that is captured is skipped"
    else:
        assert asked[1] in ("num_tokens", "batch_descriptor")


@pytest.mark.parametrize("root", versions("vllm"))
def test_vllm_from_0_20_has_the_second_runners_points(root):
    ranks = root / "vllm/v1/worker/gpu/dp_utils.py"
    names = function(ranks, "dispatch_cg_and_sync_dp")
    if number(root) < (0, 20):
        assert names is None, "its second runner dispatches otherwise"
        return
    assert names[:6] == ["cudagraph_manager", "num_reqs", "num_tokens", "uniform_token_count", "dp_size", "dp_rank"]
    assert {"need_eager", "num_active_loras"} <= set(names) or number(root) < (0, 25)
    assert function(ranks, "sync_cudagraph_and_dp_padding")[:2] == ["cudagraph_manager", "desired_batch_desc"]
    assert "dummy_run" in function(root / V2, "GPUModelRunner.execute_model")
    assert function(root / V2, "GPUModelRunner._dummy_run") is not None
    assert set(function(root / V2, "GPUModelRunner.capture_model")) <= {"self", "profile_only"}


@pytest.mark.parametrize("root", versions("vllm"))
def test_vllm_resolves_its_mode_where_it_is_heard(root):
    version = number(root)
    begin, check = (
        function(root / V1, f"GPUModelRunner.{name}")
        for name in ("initialize_cudagraph_capture", "_check_and_update_cudagraph_mode")
    )
    assert (begin is not None) is ((0, 10, 1) <= version < (0, 11, 1))
    assert (check is not None) is (version >= (0, 11, 1))
    config = root / "vllm/config/compilation.py"
    resolve = function(config, "CompilationConfig.resolve_cudagraph_mode_and_sizes")
    assert (resolve is not None) is (version >= (0, 20))
    assert resolve is None or "min_cg_support" in resolve


@pytest.mark.parametrize("root", versions("vllm"))
def test_vllm_asks_its_dispatcher_for_the_step_or_in_the_part_that_is_left_aside(root):
    runner = next(n for n in ast.parse((root / V1).read_text()).body if getattr(n, "name", "") == "GPUModelRunner")
    askers = {f.name for f in runner.body if "cudagraph_dispatcher.dispatch(" in ast.unparse(f)}
    step = {"execute_model", "_dummy_run", "_determine_batch_execution_and_padding"}
    assert askers <= step | {"_prepare_kv_sharing_fast_prefill"}


@pytest.mark.parametrize("root", versions("vllm"))
def test_vllms_batches_say_how_far_each_request_was_computed(root):
    body = ast.parse((root / "vllm/v1/core/sched/output.py").read_text()).body
    kinds = {
        n.name: {ast.unparse(f) for f in n.body if isinstance(f, ast.AnnAssign)} for n in body if hasattr(n, "name")
    }
    old = number(root) < (0, 9, 2)
    one = "num_computed_tokens: int" if old else "num_computed_tokens: list[int]"
    assert one in kinds["CachedRequestData"]
    all_of_them = "list[CachedRequestData]" if old else "CachedRequestData"
    assert f"scheduled_cached_reqs: {all_of_them}" in kinds["SchedulerOutput"]


@pytest.mark.parametrize("root", versions("sglang"))
def test_sglangs_batches_say_how_long_their_sequences_are_together(root):
    batch = (root / "sglang/srt/model_executor/forward_batch_info.py").read_text()
    fields = next(n for n in ast.parse(batch).body if getattr(n, "name", "") == "ForwardBatch").body
    told = {ast.unparse(f) for f in fields if isinstance(f, ast.AnnAssign)}
    assert any(f.startswith("seq_lens_sum: ") and "int" in f for f in told)
    assert "self.kv_cache_dtype = " in (root / "sglang/srt/model_executor/model_runner.py").read_text()


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
        pad_for_cudagraph=lambda tokens: min(size for size in sizes if size >= tokens),
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
    """A runner's step around vLLM's own dispatcher, as its `execute_model` asks it.

    `agreed` is what the ranks settle on, with which it asks again.
    """

    def __init__(self, module, config, agreed=None):
        self.vllm_config, self.speculative_config = config, config.speculative_config
        self.cudagraph_dispatcher = module.CudagraphDispatcher(config)
        self.descriptor, self.agreed = module.BatchDescriptor, agreed
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
        answer = dispatch(num_tokens=tokens, uniform_decode=uniform, has_lora=False)
        if self.agreed is None:
            return answer
        exclusive = "valid_modes" in inspect.signature(dispatch).parameters  # from 0.18 on
        limit = {"valid_modes": {self.agreed}} if exclusive else {"disable_full": self.agreed.name != "FULL"}
        return dispatch(num_tokens=answer[1].num_tokens, uniform_decode=uniform, has_lora=False, **limit)


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
        config.CompilationLevel = SimpleNamespace(PIECEWISE=3)
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
def test_real_dispatcher_among_ranks_that_run_piecewise(parts, real):
    if real.version < (0, 14):
        pytest.skip("its ranks do not agree on a mode")
    config = vllm_config(real.modes.FULL_AND_PIECEWISE, (1, 2, 4, 8), ranks=2)
    runner = RealDispatcher(real.module, config, agreed=real.modes.PIECEWISE)
    runner.execute_model(decode(3))
    taken = parts.taken()[DECODE]
    assert (taken["steps"], taken["fallbacks"]) == ({"piecewise": 1}, {"ranks_disagree": 1})


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
        ranks, dispatch = self.vllm_config.parallel_config.data_parallel_size, self.ranks.dispatch_cg_and_sync_dp
        counts = scheduler_output.num_scheduled_tokens.values()
        tokens, most = sum(counts), max(counts)
        uniform = most if most * len(counts) == tokens else None
        known = inspect.signature(dispatch).parameters
        more = {n: v for n, v in {"max_query_len": int(most), "num_active_loras": 0}.items() if n in known}
        return dispatch(self.cudagraph_manager, len(counts), tokens, uniform, ranks, 0, **more)[0]


class Ranks:
    """Two ranks' collective: the other one runs the same batch, in the mode of this number at most."""

    most = 2

    def all_reduce(self, tensor, group=None):
        tensor[:, 1] = tensor[:, 0]
        tensor[1][1] = min(self.most, tensor[1][0])


def tensors_and_ranks(monkeypatch, torch, group, other):
    """The few functions of torch that the agreement needs, on arrays."""
    for name, make in (("zeros", lambda *shape, **how: numpy.zeros(shape, int)), ("all", numpy.all)):
        monkeypatch.setattr(torch, name, make)
    monkeypatch.setattr(torch.distributed, "all_reduce", other.all_reduce)
    group.get_dp_group = lambda: SimpleNamespace(cpu_group=None, cpu_all_reduce_=other.all_reduce)


@pytest.fixture
def second(parts, request, monkeypatch):
    """vLLM's own graph manager and dispatch function of the second runner; torch is hollow."""
    root = request.param
    if number(root) < (0, 20):
        pytest.skip("its second runner was an experiment, and dispatches otherwise")
    modes = one_class(root / "vllm/config/compilation.py", "CUDAGraphMode", {"enum": enum})
    adapter = parts.attach(VllmAdapter)
    real = ["vllm.v1.worker.gpu.cudagraph_utils", "vllm.v1.worker.gpu.dp_utils"]
    with Sources(root, real, ["vllm", "torch", "tqdm", "numpy"]):
        import torch
        import torch.distributed
        import vllm.compilation.breakable_cudagraph as breakable
        import vllm.config as config
        import vllm.config.compilation as compilation
        import vllm.distributed.parallel_state as group
        import vllm.utils.math_utils as numbers

        config.CUDAGraphMode = compilation.CUDAGraphMode = modes
        breakable.is_breakable_cudagraph_enabled = lambda: False
        import vllm.v1.worker.dp_utils as coordination

        numbers.round_up = lambda x, y: (x + y - 1) // y * y
        coordination.should_skip_dp_coordination = lambda: False
        other = Ranks()
        tensors_and_ranks(monkeypatch, torch, group, other)
        import vllm.v1.worker.gpu.cudagraph_utils as managers
        import vllm.v1.worker.gpu.dp_utils as ranks

        adapter.patches.wrap(SecondRunner, "execute_model", "test", adapter.steps.execute_model)
        yield SimpleNamespace(managers=managers, ranks=ranks, modes=modes, other=other)
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


@pytest.mark.parametrize("second", versions("vllm"), indirect=True)
def test_second_runners_own_agreement_between_ranks(parts, second):
    config = vllm_config(second.modes.FULL_AND_PIECEWISE, (1, 2, 4, 8), ranks=2)
    made = SecondRunner(second.managers, second.ranks, config)
    for batch in (decode(3), decode(9), scheduled(1, 1, 3)):
        made.execute_model(batch)
    second.other.most = 0
    for batch in (decode(3), decode(9)):
        made.execute_model(batch)
    taken = parts.taken()
    assert taken[DECODE]["steps"] == {"full": 1, "eager": 3}
    assert taken[DECODE]["fallbacks"] == {"above_ceiling": 2, "ranks_disagree": 1}
    assert set(taken) == {DECODE, (None, "mixed")}
    assert parts.sight.errors == 0
