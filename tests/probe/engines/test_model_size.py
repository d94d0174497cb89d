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
