"""transformers' own `generate`, untouched: eager with the dynamic cache, compiled with the static one."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from item import BARE, BARE_CUDA, Forms, Item, Step, TraceSpec

from bench import Bench

if TYPE_CHECKING:
    from transformers import LlamaForCausalLM

NEW_TOKENS = 24
TRACED_TOKENS = 6
PROMPT_TOKENS = 32


def build_model(bench: Bench, width: int, layers: int) -> LlamaForCausalLM:
    """A Llama of the given size with random bf16 weights; nothing is read from a hub."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        hidden_size=bench.shrink(width, 64),
        intermediate_size=11 * bench.shrink(width, 64) // 4,
        num_hidden_layers=bench.shrink(layers, 2),
        num_attention_heads=max(4, bench.shrink(width, 64) // 64),
        num_key_value_heads=4,
        vocab_size=bench.shrink(32_000, 128),
        max_position_embeddings=2048,
    )
    with torch.device(bench.device):
        model: LlamaForCausalLM = LlamaForCausalLM(config)
    model = model.bfloat16()
    model.eval()  # type: ignore[no-untyped-call]
    model.generation_config.eos_token_id = None
    model.generation_config.pad_token_id = 0
    return model


def generating(bench: Bench, model: LlamaForCausalLM, batch: int, tokens: int, static: bool) -> Step:
    """One call of `generate` for `tokens` new tokens, greedy."""
    prompt = torch.randint(1, 100, (batch, PROMPT_TOKENS), device=bench.device)
    mask = torch.ones_like(prompt)
    cache = {"cache_implementation": "static"} if static else {}

    def run() -> None:
        model.generate(prompt, attention_mask=mask, max_new_tokens=tokens, do_sample=False, **cache)

    return run


def forms(bench: Bench, width: int, layers: int, batch: int, static: bool) -> Forms:
    """Time per token of both caches; the trace holds one call of the observed one (its prefill included)."""
    tokens = bench.shrink(NEW_TOKENS, 4)
    model = bench.once(f"llama-{width}-{layers}", lambda: build_model(bench, width, layers))
    compiled = generating(bench, model, batch, tokens, static=True)
    eager = generating(bench, model, batch, tokens, static=False)
    if static:
        return Forms(
            compiled, compiled, batch, eager=eager, steps_per_call=tokens, traced=compiled, steps_per_traced_call=tokens
        )
    few = min(TRACED_TOKENS, tokens)
    return Forms(
        eager,
        compiled,
        batch,
        steps_per_call=tokens,
        steps_per_traced_call=few,
        traced=generating(bench, model, batch, few, static=False),
    )


def _item(
    size: str,
    group: str,
    width: int,
    layers: int,
    batch: int,
    static: bool,
    traces: tuple[TraceSpec, ...],
    estimate_s: float,
) -> Item:
    def build(bench: Bench) -> Forms:
        return forms(bench, width, layers, batch, static)

    findings = () if static else ("disabled",)
    return Item(
        "generate",
        size,
        "generate",
        group,
        build,
        findings,
        ("gap", "host_sync"),
        observed_is_eager=not static,
        traces=traces,
        trace_steps=1,
        estimate_s=estimate_s,
    )


def items() -> list[Item]:
    """The first item of each model pays for its compilation."""
    make: Callable[..., Item] = _item
    return [
        make("w1024-l16-b1-dynamic", "generate", 1024, 16, 1, False, (BARE, BARE_CUDA), 60.0),
        make("w1024-l16-b1-static", "generate", 1024, 16, 1, True, (BARE,), 8.0),
        make("w2048-l24-b8-dynamic", "generate-big", 2048, 24, 8, False, (BARE,), 70.0),
        make("w2048-l24-b8-static", "generate-big", 2048, 24, 8, True, (BARE,), 10.0),
    ]
