"""transformers' real `generate` on a tiny model; the CPU stands for the device."""

import copy
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
            torch.full((batch, 3), 5), do_sample=False,
            **{"max_new_tokens": tokens, "min_new_tokens": tokens, **options},
        )  # fmt: skip


def test_eager_generate_counts_one_prefill_and_the_decode_steps(parts, model, adapter):
    generate(model)
    taken = parts.taken()
    assert taken[None, "prefill"]["steps"] == {"eager": 1}
    assert taken[DECODE]["steps"] == {"eager": 5}
    assert taken[DECODE]["fallbacks"] == {"dynamic_shape": 5}
    assert taken[DECODE]["batch_sizes"] == {"2": 5}
    assert adapter.config()["graphs_enabled"] is False
    assert adapter.config()["settings"] == {"cache": "DynamicCache"}
    # The first step after a prompt of three: its own token is in the cache by then.
    assert (taken[DECODE]["context_tokens"], taken[DECODE]["context_sequences"]) == (2 * 4, 2)


def test_static_cache_without_compilation_is_forced_eager(parts, model, adapter):
    generate(model, cache_implementation="static", disable_compile=True)
    taken = parts.taken()[DECODE]
    assert taken["fallbacks"] == {"forced_eager": 5}
    assert taken["context_tokens"] == 2 * 8  # a static cache is read whole: room for three tokens, and five or six more
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


def test_an_assistant_inside_generate_is_a_component_of_its_own(parts, model, adapter):
    """What the target does with its drafts is counted once for each round, its first forward as prefill."""
    assistant = copy.deepcopy(model)
    assistant.generation_config.num_assistant_tokens = 3
    assistant.generation_config.num_assistant_tokens_schedule = "constant"
    assistant.generation_config.assistant_confidence_threshold = 0
    generate(model, tokens=9, batch=1, assistant_model=assistant, min_new_tokens=None)
    taken = parts.taken()
    drafted = taken["draft", None]["steps"]["eager"] + taken["draft", "prefill"]["steps"]["eager"]
    rounds = taken[DECODE]["steps"]["eager"] + taken[None, "prefill"]["steps"]["eager"]
    assert taken["draft", "prefill"]["steps"] == {"eager": 1}
    assert taken[None, "prefill"]["steps"] == {"eager": 1}
    assert rounds < drafted


def test_a_generate_that_fails_leaves_the_next_one_alone(parts, model, adapter):
    with pytest.raises(ValueError, match="max_new_tokens"):
        generate(model, tokens=0)
    generate(model)
    assert parts.taken()[None, "prefill"]["steps"] == {"eager": 1}


@pytest.mark.filterwarnings("ignore")
def test_real_continuous_batching_counts_its_batches_and_no_warm_up(parts, model, adapter):
    from transformers import GenerationConfig

    own = copy.deepcopy(model)
    given = GenerationConfig(
        max_new_tokens=6, do_sample=False, eos_token_id=-1, num_blocks=16, block_size=32, max_batch_tokens=64
    )
    done = own.generate_batch([[5, 5, 5], [5, 6, 7]], generation_config=given, progress_bar=False)
    if len(done) < 2:
        pytest.skip("continuous batching of this version needs a device")
    taken = parts.taken()
    assert taken[None, "mixed"]["steps"] == {"eager": 1}
    assert taken[DECODE]["steps"] == {"eager": 5}
    assert taken[DECODE]["batch_sizes"] == {"2": 5}
    assert "transformers continuous batching" not in parts.blind()
