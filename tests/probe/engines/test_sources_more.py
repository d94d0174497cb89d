"""The points that the adapters of SGLang, transformers and FlashInfer hook, in the engines' real sources."""

import ast
import importlib
import re

import pytest

from probe.engines.sources import Sources, function, number, versions
from replaywatch.probe.engines import flashinfer, sglang, transformers

ATTENTION = "sglang/srt/layers/attention"


def path_of(root, module):
    base = root / module.replace(".", "/")
    return base / "__init__.py" if base.is_dir() else base.with_name(base.name + ".py")


def imports(root, module):
    """Modules that a module imports while it is executed, its packages left out."""
    path, found = path_of(root, module), set()
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            found.add(".".join([*above, *([node.module] if node.module else [])]))
    return found


def body(path, qualified):
    """Source text of a class or function."""
    nodes, text = ast.parse(path.read_text()).body, path.read_text()
    for name in qualified.split("."):
        found = next(n for n in nodes if isinstance(n, (ast.ClassDef, ast.FunctionDef)) and n.name == name)
        nodes = found.body
    return ast.get_source_segment(text, found)


@pytest.mark.parametrize("root", versions("sglang"))
def test_sglangs_draft_runners_capture_through_one_method_each(root):
    for module, kind in sglang.DRAFTS.items():
        path = path_of(root, module)
        if path.exists():
            one = [name for name in sglang.CAPTURES if function(path, f"{kind}.{name}")]
            assert len(one) == 1, (module, one)
            assert function(path, f"{kind}.{one[0]}")[0] == "self"


@pytest.mark.parametrize("root", versions("sglang"))
def test_sglangs_capture_of_a_draft_runs_the_draft_model(root):
    """What makes the captures look like steps: without it their hook would have nothing to do."""
    path = root / "sglang/srt/speculative/eagle_draft_cuda_graph_runner.py"
    one = next(name for name in sglang.CAPTURES if function(path, f"EAGLEDraftCudaGraphRunner.{name}"))
    assert "eagle_worker.draft_forward(" in body(path, f"EAGLEDraftCudaGraphRunner.{one}")


@pytest.mark.parametrize("root", versions("sglang"))
def test_sglangs_batches_can_be_referred_to_weakly(root):
    tree = ast.parse((root / "sglang/srt/model_executor/forward_batch_info.py").read_text())
    kind = next(n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "ForwardBatch")
    assert "slots=True" not in "".join(map(ast.unparse, kind.decorator_list))
    assert "__slots__" not in ast.unparse(kind)


@pytest.mark.parametrize("root", versions("sglang"))
def test_sglangs_model_runner_comes_with_its_attention_registry(root):
    for module, (_, due) in sglang.SglangAdapter.brings.items():
        assert path_of(root, module).exists()
        parts = {name for name in imports(root, due) if name.startswith("sglang.srt.model_executor.")}
        assert module in imports(root, due).union(*(imports(root, part) for part in parts))


@pytest.mark.parametrize("root", versions("sglang"))
def test_sglang_plans_for_flashinfer_in_the_methods_that_are_timed(root):
    planners = {
        "flashinfer_backend": ("FlashInferIndicesUpdaterDecode", "FlashInferIndicesUpdaterPrefill"),
        "flashinfer_mla_backend": ("FlashInferMLAIndicesUpdaterDecode", "FlashInferMLAIndicesUpdaterPrefill"),
    }
    for module, kinds in planners.items():
        assert f"{ATTENTION}/{module}".replace("/", ".") in flashinfer.PLANNING
        for kind in kinds:
            text = body(root / ATTENTION / f"{module}.py", f"{kind}.call_begin_forward")
            assert ".begin_forward(" in text or ".plan(" in text


@pytest.mark.parametrize("root", versions("vllm"))
def test_vllm_has_its_planner_from_0_10_1_on(root):
    path = root / "vllm/v1/attention/backends/flashinfer.py"
    assert (function(path, "fast_plan_decode") is not None) is (number(root) >= (0, 10, 1))


@pytest.mark.parametrize("root", versions("flashinfer"))
def test_flashinfers_planners_are_found(root):
    names = [name for name in flashinfer.MODULES if name.startswith("flashinfer.")]
    real = [name for name in names if path_of(root, name).name != "__init__.py"]
    lazy = ["flashinfer.jit.attention._lazy"]  # its classes are inherited from
    with Sources(root, real + [name for name in lazy if path_of(root, name).exists()], ["flashinfer", "torch"]):
        found = {
            (name, getattr(owner, "__name__", None), planner)
            for name in real
            for owner, planner in flashinfer._planners(importlib.import_module(name))
        }
    decode, prefill = "BatchDecodeWithPagedKVCacheWrapper", "BatchPrefillWithPagedKVCacheWrapper"
    assert {("flashinfer.decode", decode, name) for name in ("plan", "begin_forward")} <= found
    assert {("flashinfer.prefill", prefill, name) for name in ("plan", "begin_forward")} <= found
    assert ("flashinfer.decode", "flashinfer.decode", "fast_decode_plan") in found


@pytest.mark.parametrize("root", versions("flashinfer"))
def test_flashinfers_mla_wrapper_plans(root):
    folder = root / "flashinfer/mla/_batch_mla/_wrapper.py"
    path = folder if folder.exists() else path_of(root, "flashinfer.mla")
    text = body(path, "BatchMLAPagedAttentionWrapper")
    assert "def plan(" in text


@pytest.mark.parametrize("root", versions("transformers"))
def test_transformers_steps_of_continuous_batching_are_where_they_are_hooked(root):
    path = path_of(root, transformers.BATCHING)
    if not path.exists():
        assert number(root) < (4, 57)
        return
    ((package, (_, due)),) = transformers.TransformersAdapter.brings.items()
    assert due in imports(root, package)
    own = [kind for kind in transformers.STEPPERS if function(path, f"{kind}._generation_step")]
    assert own[0] == ("ContinuousBatchProcessor" if number(root) >= (5, 0) else "ContinuousBatchingManager")
    assert len(own) == 2 or number(root) < (5, 0)


@pytest.mark.parametrize("root", versions("transformers"))
def test_transformers_warms_continuous_batching_up_without_a_step(root):
    path = path_of(root, transformers.BATCHING)
    if number(root) < (5, 0):
        pytest.skip("warms up for graphs only, which it refuses")
    for kind in transformers.STEPPERS:
        if function(path, f"{kind}.warmup"):
            assert "_generation_step(" not in body(path, f"{kind}.warmup")


@pytest.mark.parametrize("root", versions("transformers"))
def test_transformers_hands_the_assistants_cache_over_by_name(root):
    text = (root / "transformers/generation/candidate_generator.py").read_text()
    assert any(f'assistant_kwargs["{name}"]' in text for name in transformers.CACHES)
    assert function(root / "transformers/generation/utils.py", "GenerationMixin.generate")[0] == "self"


@pytest.mark.parametrize("root", versions("vllm"))
def test_vllm_keeps_graphs_without_compilation_where_it_can_take_the_piecewise_ones_alone(root):
    folder = root / "vllm/config"
    configs = [path for name in ("../config.py", "__init__.py", "vllm.py") if (path := folder / name).exists()]
    drops = any(
        "fallback_mode = compilation_config.cudagraph_mode.without_piecewise()" in p.read_text() for p in configs
    )
    assert drops == (function(folder / "compilation.py", "CUDAGraphMode.without_piecewise") is not None)


@pytest.mark.parametrize("root", versions("sglang"))
def test_sglang_never_sets_the_decode_backends_option_itself(root):
    files = [root / "sglang/srt/server_args.py", *(root / "sglang/srt/arg_groups").glob("*.py")]
    assert not any(re.search(r"\bcuda_graph_backend_decode\s*=[^=]", file.read_text()) for file in files)
