"""What a step must read at least: bytes of the weights on this device, layers, bytes of cache for a token of context.

Read once, from attributes alone: no tensor's content is touched.
"""

from __future__ import annotations

from typing import Any


def model_size(model: Any, config: Any, *, pipeline: int = 1, tensor: int = 1) -> dict[str, int]:
    """Fields of EngineConfig, as far as they can be told.

    Shape: `model` a torch module, `config` a Hugging Face configuration of the text model; `pipeline` and `tensor` how
    many ways layers and heads are divided.
    """
    return {**_weights(model), **_layers(config, max(1, pipeline), max(1, tensor))}


def _weights(model: Any) -> dict[str, int]:
    parameters = getattr(model, "parameters", None)
    if parameters is None:
        return {}
    total = sum(int(p.numel()) * int(p.element_size()) for p in parameters())
    return {"weight_bytes": total} if total else {}


def _layers(config: Any, pipeline: int, tensor: int) -> dict[str, int]:
    layers = _number(config, "num_hidden_layers")
    if not layers:
        return {}
    fields = {"layers": -(-layers // pipeline)}
    heads = _number(config, "num_attention_heads")
    cached = _number(config, "num_key_value_heads") or heads
    width = _number(config, "head_dim") or (_number(config, "hidden_size") // heads if heads else 0)
    if cached and width:
        fields["cache_bytes_per_token"] = fields["layers"] * 2 * max(1, cached // tensor) * width * 2
    return fields


def _number(config: Any, name: str) -> int:
    value = getattr(config, name, None)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
