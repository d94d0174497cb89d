"""Training steps: forward, backward and Adam, from launch-bound to device-bound."""

from __future__ import annotations

from collections.abc import Callable

import torch
from item import BARE, CUDA_ONLY, FULL, Forms, Item, TraceSpec
from torch import Tensor, nn

from bench import Bench
from workloads.decoder_model import Decoder, Shape, rope_tables

GROUP = "steady"


def train_forms(bench: Bench, model: nn.Module, loss_of: Callable[[], Tensor], batch: int) -> Forms:
    """The eager step and the whole step in one graph. Both update the same weights, so they may alternate.

    Gradients are set to None first in either form: the graph's own live in its pool, at fixed addresses.
    `capturable` keeps Adam's step counter on the device in both forms, so that the work is the same.
    """
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-5, foreach=True, capturable=bench.cuda)

    @torch.enable_grad()
    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        loss_of().backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    if bench.cuda:
        bench.warm_on_side_stream(step, 3)
    optimizer.zero_grad(set_to_none=True)
    graph = bench.capture(step, warmups=0)
    optimizer.zero_grad(set_to_none=True)
    return Forms(step, graph, batch)


def mlp(bench: Bench, width: int, depth: int, batch: int) -> Forms:
    """A small perceptron in float32."""
    width, batch = bench.shrink(width, 8), bench.shrink(batch, 4)
    layers: list[nn.Module] = []
    for _ in range(depth):
        layers += [nn.Linear(width, width, device=bench.device), nn.ReLU()]
    model = nn.Sequential(*layers)
    x = bench.randn(batch, width, dtype=torch.float32)
    y = bench.randn(batch, width, dtype=torch.float32)
    return train_forms(bench, model, lambda: nn.functional.mse_loss(model(x), y), batch)


def blocks(bench: Bench, hidden: int, layers: int, tokens: int, batch: int) -> Forms:
    """Transformer layers over whole sequences in bf16."""
    shape = Shape(64, 2, vocab=64, head_dim=16) if bench.smoke else Shape(hidden, layers, vocab=64)
    time_tokens, batch = bench.shrink(tokens, 8), bench.shrink(batch, 2)
    model = Decoder(shape, bench.device)
    trained = nn.ModuleList(model.layers)
    cos, sin = rope_tables(torch.arange(time_tokens, device=bench.device), shape.head_dim)
    x = bench.randn(batch, time_tokens, shape.hidden)
    return train_forms(bench, trained, lambda: model.sequence(x, cos, sin).float().pow(2).mean(), batch)


def _item(size: str, build: Callable[[Bench], Forms], traces: tuple[TraceSpec, ...] = (FULL,)) -> Item:
    return Item(
        "training", size, "training", GROUP, build, ("disabled",), observed_is_eager=True, traces=traces, estimate_s=2.8
    )


def items() -> list[Item]:
    """Sizes chosen to lie apart; the label is the measured rho's."""
    return [
        _item("mlp-w256-d8-b64", lambda b: mlp(b, 256, 8, 64)),
        _item("block-h1024-l4-t512-b8", lambda b: blocks(b, 1024, 4, 512, 8), (FULL, CUDA_ONLY)),
        _item("block-h4096-l2-t2048-b4", lambda b: blocks(b, 4096, 2, 2048, 4)),
        _item("block-h2048-l4-t512-b8", lambda b: blocks(b, 2048, 4, 512, 8)),
        _item("block-h512-l4-t256-b4", lambda b: blocks(b, 512, 4, 256, 4), (BARE,)),
        _item("block-h1024-l4-t1024-b16", lambda b: blocks(b, 1024, 4, 1024, 16)),
        _item("mlp-w4096-d8-b4096", lambda b: mlp(b, 4096, 8, 4096)),
    ]
