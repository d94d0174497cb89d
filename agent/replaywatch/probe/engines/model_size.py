"""What a step must read at least: bytes of the weights on this device, layers, bytes of cache for a token of context.

Read once, from attributes alone: no tensor's content is touched.
"""

from __future__ import annotations

from typing import Any

# What configurations call the routed experts of a layer: Qwen, Mixtral and gpt-oss, DeepSeek.
EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")
# In names of parameters, of routed experts alone: those that every token takes are `shared_experts`.
ROUTED = ".experts."
# Kinds of layers that see the last tokens only, and what configurations call how many: Gemma, gpt-oss; Llama 4.
WINDOWS = {"sliding_attention": "sliding_window", "chunked_attention": "attention_chunk_size"}
FULL_CACHE_BYTES, EIGHT_BIT_CACHE_BYTES = 2, 1


def model_size(
    model: Any, config: Any, *, pipeline: int = 1, tensor: int = 1, cache_dtype: object = None
) -> dict[str, int]:
    """Fields of EngineConfig, as far as they can be told.

    Shape: `model` a torch module, `config` a Hugging Face configuration of the text model; `pipeline` and `tensor` how
    many ways layers and heads are divided, `cache_dtype` the engine's name for the type of its key-value cache.
    """
    is_narrow = str(cache_dtype).removeprefix("torch.").startswith(("fp8", "float8", "int8"))
    width = EIGHT_BIT_CACHE_BYTES if is_narrow else FULL_CACHE_BYTES
    weights = _weights(model)
    sparse = _experts(model, config) if weights else {}
    return {**weights, **sparse, **_layers(config, max(1, pipeline), max(1, tensor), width)}


def _weights(model: Any) -> dict[str, int]:
    parameters = getattr(model, "parameters", None)
    if parameters is None:
        return {}
    total = sum(_bytes(p) for p in parameters())
    return {"weight_bytes": total} if total else {}


def _experts(model: Any, config: Any) -> dict[str, int]:
    """Of a sparse model: how much of it a token may leave alone."""
    experts = next((n for name in EXPERTS if (n := _number(config, name))), 0)
    taken, named = _number(config, "num_experts_per_tok"), getattr(model, "named_parameters", None)
    if not taken or taken >= experts or named is None:
        return {}
    routed = sum(_bytes(p) for name, p in named() if ROUTED in f".{name}")
    return {"expert_bytes": routed, "experts": experts, "experts_per_token": taken} if routed else {}


def _layers(config: Any, pipeline: int, tensor: int, value_bytes: int) -> dict[str, int]:
    layers = _number(config, "num_hidden_layers")
    if not layers:
        return {}
    fields = {"layers": -(-layers // pipeline)}
    latent = _number(config, "kv_lora_rank")
    if latent:  # multi-head latent attention: one vector for all heads, whole on each rank
        values = latent + _number(config, "qk_rope_head_dim")
    else:
        heads = _number(config, "num_attention_heads")
        cached = _number(config, "num_key_value_heads") or heads
        width = _number(config, "head_dim") or (_number(config, "hidden_size") // heads if heads else 0)
        values = 2 * max(1, cached // tensor) * width if cached else 0
    if values:
        fields["cache_bytes_per_token"] = fields["layers"] * values * value_bytes
    if values and not latent:
        fields |= _windows(config, layers, fields["layers"] * values * value_bytes)
    return fields


def _windows(config: Any, layers: int, cache_bytes: int) -> dict[str, int]:
    """Of a model in which some layers see the last tokens only: their part of the cache, and how many tokens."""
    kinds = getattr(config, "layer_types", None)
    if not isinstance(kinds, (list, tuple)) or len(kinds) != layers:
        return {}
    found = {kind: n for kind, name in WINDOWS.items() if kind in kinds and (n := _number(config, name))}
    if not found:
        return {}
    part = cache_bytes * sum(kind in found for kind in kinds) // layers
    return {"window_bytes_per_token": part, "window_tokens": max(found.values())}


def _bytes(parameter: Any) -> int:
    return int(parameter.numel()) * int(parameter.element_size())


def _number(config: Any, name: str) -> int:
    value = getattr(config, name, None)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
