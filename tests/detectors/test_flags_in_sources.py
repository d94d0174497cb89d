"""The flags that findings print, in the engines' real sources."""

import ast
import re
from itertools import product
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest

from probe.engines.sources import number, versions
from replaywatch.detectors.engine_flags import ceiling_flag, enable, sizes_flag

CURRENT = (1, 2, 4, 8)


def printed(engine, version):
    """Options in all that is printed for a release."""
    texts = (
        enable(engine, version),
        sizes_flag(engine, (1, 8, 48), version),
        sizes_flag(engine, (48,), version),
        ceiling_flag(engine, 48, version, CURRENT),
        ceiling_flag(engine, 48, version, (3, 5)),
    )
    return {option for text in texts for option in re.findall(r"(?<![\w-])-{1,2}[A-Za-z][\w-]*", text)}


@pytest.mark.parametrize("root", versions("vllm"))
def test_vllm_knows_what_is_printed_for_its_release(root):
    known = (root / "vllm/engine/arg_utils.py").read_text().replace("'", '"')
    options = printed("vllm", root.name.removeprefix("vllm-"))
    assert "--enforce-eager" in options
    assert [option for option in options if f'"{option}"' not in known] == []


@pytest.mark.parametrize("root", versions("sglang"))
def test_sglang_knows_what_is_printed_for_its_release(root):
    places = [root / "sglang/srt/server_args.py", *(root / "sglang/srt/arg_groups/fields").glob("*.py")]
    known = "\n".join(path.read_text() for path in places)
    options = printed("sglang", root.name.removeprefix("sglang-"))
    assert "--disable-cuda-graph" in options
    unknown = [o for o in options if f'"{o}"' not in known and f"{o[2:].replace('-', '_')}: " not in known]
    assert unknown == []


BATCHES = (1, 2, 3, 5, 9, 13, 17, 33, 45, 50, 62, 86, 129, 250, 257, 300, 500, 520)


def alone(path, name, **names):
    """A function or method of a source file by itself, with the names that it needs."""
    found = next(n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.FunctionDef) and n.name == name)
    for arg in found.args.args:
        arg.annotation = None
    exec(compile(ast.Module([found], []), str(path), "exec"), names)
    return names[name]


def vllm_generator(root):
    """What makes vLLM's sizes from a maximum, and rounds them for speculation."""
    modes, folder = SimpleNamespace(NONE="NONE"), root / "vllm/config"
    generate = alone(folder / "vllm.py", "_set_cudagraph_sizes", CUDAGraphMode=modes, logger=MagicMock())
    adjust = "adjust_cudagraph_sizes_for_spec_decode"
    round_for = alone(folder / "compilation.py", adjust, round_up=lambda size, unit: -(-size // unit) * unit)
    ranks = [1] * (round_for.__code__.co_argcount - 2)  # tensor parallel ranks, in the releases that ask for them

    def sizes(maximum, tokens):
        made = MagicMock(cudagraph_mode="FULL", max_cudagraph_capture_size=maximum, cudagraph_capture_sizes=None)
        config = MagicMock(compilation_config=made)
        config.model_config.enforce_eager = False
        config.scheduler_config.max_num_batched_tokens = 8192
        config.parallel_config.tensor_parallel_size = 1
        generate(config)
        round_for(made, tokens, *ranks)
        return made.cudagraph_capture_sizes

    return sizes


@pytest.mark.parametrize("root", versions("vllm"))
def test_vllm_reaches_what_its_maximum_was_set_for(root):
    if number(root) < (0, 11, 1):
        pytest.skip("makes its sizes in no function of their own")
    version, sizes_from = root.name.removeprefix("vllm-"), vllm_generator(root)
    for tokens, batch in product((1, 2, 3, 4, 5, 10), BATCHES):
        top = tokens * batch
        maximum = int(ceiling_flag("vllm", top, version, (), tokens).split()[-1])
        sizes = sizes_from(maximum, tokens)
        assert sizes[-1] >= top, (tokens, batch)
        grown = ceiling_flag("vllm", top, version, sizes, tokens)
        assert grown == f"--max-cudagraph-capture-size {maximum}", "its own sizes are not taken for a list"


def sglang_generator(root):
    """What makes SGLang's batch sizes from its arguments and the maximum, where it is not among them."""
    for place, name in (
        ("server_args.py", "_generate_cuda_graph_batch_sizes"),
        ("server_args.py", "_generate_decode_cuda_graph_batch_sizes"),
        ("arg_groups/cuda_graph_hook.py", "generate_decode_cuda_graph_batch_sizes"),
    ):
        path = root / "sglang/srt" / place
        if path.exists() and f"def {name}(" in path.read_text():
            return alone(path, name, Any=object, resolving_view=lambda args: args)
    raise AssertionError("its sizes are made elsewhere")


@pytest.mark.parametrize("root", versions("sglang"))
@pytest.mark.parametrize("speculation", [None, "EAGLE"])
def test_sglang_reaches_what_its_maximum_was_set_for(root, speculation):
    version, generate = root.name.removeprefix("sglang-"), sglang_generator(root)
    for batch in BATCHES:
        flag = ceiling_flag("sglang", batch, version)
        maximum = int(flag.split()[-1])
        args = SimpleNamespace(
            disable_cuda_graph_padding=False, speculative_algorithm=speculation, cuda_graph_max_bs=maximum
        )
        sizes = generate(args, *[maximum] * (generate.__code__.co_argcount - 1))
        assert sizes[-1] >= batch
        assert ceiling_flag("sglang", batch, version, sizes) == flag
