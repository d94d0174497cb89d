"""transformers' real `generate` on a tiny model; the CPU stands for the device."""

import sys
import warnings

import pytest

pytest.importorskip("torch", reason="needs torch (the CPU build is enough)")
pytest.importorskip("transformers", reason="needs transformers")

from replaywatch.probe.engines.transformers import TransformersAdapter

pytestmark = pytest.mark.torch
DECODE = (None, None)


@pytest.fixture(scope="module")
def model():
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return LlamaForCausalLM(
            LlamaConfig(
                vocab_size=64, hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
                num_key_value_heads=2, max_position_embeddings=64, bos_token_id=1, eos_token_id=2, pad_token_id=0,
            )
        )  # fmt: skip


@pytest.fixture
def adapter(parts, model):
    made = parts.attach(TransformersAdapter, devices=("cpu",))
    yield made
    made.remove()


def generate(model, tokens=6, batch=2, **options):
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.generate(
            torch.full((batch, 3), 5), max_new_tokens=tokens, min_new_tokens=tokens, do_sample=False, **options
        )


def test_eager_generate_counts_one_prefill_and_the_decode_steps(parts, model, adapter):
    generate(model)
    taken = parts.taken()
    assert taken[None, "prefill"]["steps"] == {"eager": 1}
    assert taken[DECODE]["steps"] == {"eager": 5}
    assert taken[DECODE]["fallbacks"] == {"dynamic_shape": 5}
    assert taken[DECODE]["batch_sizes"] == {"2": 5}
    assert adapter.config()["graphs_enabled"] is False
    assert adapter.config()["settings"] == {"cache": "DynamicCache"}


def test_static_cache_without_compilation_is_forced_eager(parts, model, adapter):
    generate(model, cache_implementation="static", disable_compile=True)
    assert parts.taken()[DECODE]["fallbacks"] == {"forced_eager": 5}
    config = adapter.config()
    assert config["requested_mode"] == "cache_implementation=static"
    assert config["enforced_by"] == "disable_compile=True"


def test_replays_between_forwards_make_a_step_full(parts, model, adapter):
    counts = iter(range(1, 100))
    parts.port.replays_here = lambda: next(counts)
    generate(model)
    assert parts.taken()[DECODE]["steps"] == {"full": 5}


def test_forward_that_the_caller_compiled_is_left_to_inductors_hooks(parts, model, adapter):
    import torch

    plain = model.forward
    try:
        model.forward = torch.compile(plain, backend="eager")
        generate(model)
    finally:
        del model.forward
    assert DECODE not in parts.taken()


def test_output_is_the_same_with_hooks_and_without(parts, model, adapter):
    import torch

    hooked = generate(model)
    adapter.remove()
    assert torch.equal(hooked, generate(model))


def test_other_devices_are_not_counted(parts, model):
    made = parts.attach(TransformersAdapter)
    generate(model)
    made.remove()
    assert parts.taken() == {}


def test_continuous_batching_has_the_point_that_is_hooked(parts, adapter):
    __import__("transformers.generation.continuous_batching.model_runner")
    module = sys.modules["transformers.generation.continuous_batching.model_runner"]
    hooked = [
        k for k in vars(module).values() if isinstance(k, type) and hasattr(vars(k).get("compute_batch"), "__wrapped__")
    ]
    assert len(hooked) == 1
    assert "transformers continuous batching" not in parts.blind()
