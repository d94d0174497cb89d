"""What a step must read at least, from attributes of models and configurations."""

from types import SimpleNamespace

import pytest

from replaywatch.contract.snapshot import EngineConfig
from replaywatch.probe import snapshots
from replaywatch.probe.engines.model_size import model_size


def model(*sizes):
    return SimpleNamespace(
        parameters=lambda: [SimpleNamespace(numel=lambda n=n: n, element_size=lambda: 2) for n in sizes]
    )


LLAMA = SimpleNamespace(num_hidden_layers=22, num_attention_heads=32, num_key_value_heads=4, hidden_size=2048)


def test_weights_layers_and_cache_of_one_device():
    assert model_size(model(1000, 24), LLAMA) == {
        "weight_bytes": 2048, "layers": 22, "cache_bytes_per_token": 22 * 2 * 4 * 64 * 2
    }  # fmt: skip


class Sparse:
    """A layer of 8 experts of 1,000 numbers each, one for all tokens, a router and attention."""

    def named_parameters(self):
        sizes = {
            "layers.0.mlp.experts.w13_weight": 6000, "layers.0.mlp.experts.w2_weight": 2000,
            "layers.0.mlp.shared_experts.w": 1000, "layers.0.mlp.gate.weight": 30, "layers.0.attn.qkv.weight": 70,
        }  # fmt: skip
        return [(name, SimpleNamespace(numel=lambda n=n: n, element_size=lambda: 2)) for name, n in sizes.items()]

    def parameters(self):
        return [parameter for _, parameter in self.named_parameters()]


@pytest.mark.parametrize("name", ["num_experts", "num_local_experts", "n_routed_experts"])
def test_of_a_sparse_model_the_routed_experts_are_told_apart(name):
    config = SimpleNamespace(num_experts_per_tok=2, **{name: 8})
    assert model_size(Sparse(), config) == {
        "weight_bytes": 18_200, "expert_bytes": 16_000, "experts": 8, "experts_per_token": 2
    }  # fmt: skip


@pytest.mark.parametrize(
    "told", [{"num_experts_per_tok": 8, "num_experts": 8}, {"num_experts": 8}, {"num_experts_per_tok": 2}]
)
def test_a_model_whose_tokens_take_all_or_an_unknown_part_is_read_whole(told):
    assert model_size(Sparse(), SimpleNamespace(**told)) == {"weight_bytes": 18_200}
    assert model_size(model(8), SimpleNamespace(num_experts_per_tok=2, num_experts=8)) == {"weight_bytes": 16}


def test_latent_attention_keeps_one_vector_for_all_heads_on_every_rank():
    deepseek = SimpleNamespace(
        num_hidden_layers=61, num_attention_heads=128, num_key_value_heads=128, hidden_size=7168, kv_lora_rank=512,
        qk_rope_head_dim=64,
    )  # fmt: skip
    for ranks in (1, 8):
        assert model_size(model(8), deepseek, tensor=ranks)["cache_bytes_per_token"] == 61 * 576 * 2


@pytest.mark.parametrize(
    ("dtype", "size"),
    [("auto", 2), (None, 2), ("bfloat16", 2), ("torch.bfloat16", 2), ("fp8", 1), ("fp8_e4m3", 1),
     ("torch.float8_e5m2", 1), ("int8", 1)],
)  # fmt: skip
def test_a_cache_of_eight_bits_is_half_as_large(dtype, size):
    assert model_size(model(8), LLAMA, cache_dtype=dtype)["cache_bytes_per_token"] == 22 * 2 * 4 * 64 * size


GPT_OSS = SimpleNamespace(
    num_hidden_layers=36, num_attention_heads=64, num_key_value_heads=8, head_dim=64, sliding_window=128,
    layer_types=["sliding_attention", "full_attention"] * 18,
)  # fmt: skip


@pytest.mark.parametrize(("pipeline", "here"), [(1, 36), (4, 9)])
def test_layers_that_see_the_last_tokens_only_are_told_apart(pipeline, here):
    told = model_size(model(8), GPT_OSS, pipeline=pipeline)
    assert told["cache_bytes_per_token"] == here * 2 * 8 * 64 * 2
    assert told["window_bytes_per_token"] == told["cache_bytes_per_token"] // 2
    assert told["window_tokens"] == 128


def test_chunks_are_windows_too():
    llama4 = SimpleNamespace(
        num_hidden_layers=4, num_attention_heads=8, head_dim=16, attention_chunk_size=8192,
        layer_types=["chunked_attention"] * 3 + ["full_attention"],
    )  # fmt: skip
    told = model_size(model(8), llama4)
    assert (told["window_bytes_per_token"] * 4, told["window_tokens"]) == (3 * told["cache_bytes_per_token"], 8192)


@pytest.mark.parametrize(
    "changed",
    [{"layer_types": None}, {"sliding_window": None}, {"layer_types": ["sliding_attention"]}, {"kv_lora_rank": 512},
     {"layer_types": ["full_attention"] * 36}, {"layer_types": ["linear_attention"] * 36}],
)  # fmt: skip
def test_where_windows_are_not_known_all_layers_see_everything(changed):
    assert "window_tokens" not in model_size(model(8), SimpleNamespace(**{**vars(GPT_OSS), **changed}))


def test_layers_and_heads_are_divided_but_never_below_one():
    assert model_size(model(8), LLAMA, pipeline=4, tensor=8)["layers"] == 6
    assert model_size(model(8), LLAMA, tensor=8)["cache_bytes_per_token"] == 22 * 2 * 64 * 2


@pytest.mark.parametrize("config", [None, object(), SimpleNamespace(num_hidden_layers="22"), SimpleNamespace()])
def test_an_unknown_configuration_tells_the_weights_only(config):
    assert model_size(model(8), config) == {"weight_bytes": 16}


def test_something_that_is_no_model_tells_nothing():
    assert model_size(object(), None) == {}


def test_ids_of_configurations_are_what_they_were_where_sizes_are_unknown():
    # Taken before these fields existed; recordings and probes of then point to it.
    assert EngineConfig(engine="vllm", resolved_mode="FULL").id == "41315d1d30584bd2"
    known = {"engine": "vllm", "resolved_mode": "FULL", "weight_bytes": 5}
    assert EngineConfig(**known).id != "41315d1d30584bd2"
    assert snapshots.digest(snapshots.CONFIG_FIELDS, dict(known)) == EngineConfig(**known).id
