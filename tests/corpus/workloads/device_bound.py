"""Controls whose time is the device's: there is nothing, or little, for a graph to recover."""

from __future__ import annotations

from collections.abc import Callable

import torch
from item import BARE, CUDA_ONLY, FULL, Forms, Item, Step, TraceSpec

from bench import Bench
from workloads.decoder_model import Decoder, Shape, rope_tables

GROUP = "steady"


def _plain(bench: Bench, step: Step, batch: int) -> Forms:
    step()
    return Forms(step, bench.capture(step), batch)


def one_stream(bench: Bench) -> Forms:
    """Four large matrix products in a row, about 1.4 ms each."""
    width = bench.shrink(8192, 32)
    a, b = bench.randn(width, width), bench.randn(width, width)
    out = torch.empty_like(a)

    def step() -> None:
        for _ in range(4):
            torch.mm(a, b, out=out)

    return _plain(bench, step, width)


def two_streams(bench: Bench) -> Forms:
    """Two streams of products that fill the device together (M23): forked from and joined to the current stream."""
    width = bench.shrink(4096, 32)
    pairs = [(bench.randn(width, width), bench.randn(width, width)) for _ in range(2)]
    outs = [torch.empty_like(a) for a, _ in pairs]

    def products(which: int) -> None:
        for _ in range(8):
            torch.mm(*pairs[which], out=outs[which])

    if not bench.cuda:

        def in_a_row() -> None:
            products(0)
            products(1)

        return _plain(bench, in_a_row, width)
    sides = [torch.cuda.Stream(bench.device) for _ in range(2)]  # type: ignore[no-untyped-call]

    def step() -> None:
        current = torch.cuda.current_stream(bench.device)
        for which, side in enumerate(sides):
            side.wait_stream(current)
            with torch.cuda.stream(side):
                products(which)
        for side in sides:
            current.wait_stream(side)

    return _plain(bench, step, width)


def prefill(bench: Bench, hidden: int, tokens: int) -> Forms:
    """A prompt of `tokens` through eight layers, eager."""
    shape = Shape(64, 2, vocab=128, head_dim=16) if bench.smoke else Shape(hidden, 8)
    model = bench.once(f"prefill-{shape.hidden}", lambda: Decoder(shape, bench.device))
    time_tokens = bench.shrink(tokens, 8)
    x = bench.randn(1, time_tokens, shape.hidden)
    cos, sin = rope_tables(torch.arange(time_tokens, device=bench.device), shape.head_dim)
    first = bench.randn(1, shape.vocab)

    def step() -> None:
        first.copy_(model.logits(model.sequence(x, cos, sin)))

    return _plain(bench, step, time_tokens)


def one_long_kernel(bench: Bench) -> Forms:
    """One persistent kernel of about 5 ms and two small ones, as a megakernel's step looks."""
    x = bench.randn(1, bench.shrink(32_000, 64))
    chosen = torch.zeros(1, dtype=torch.int64, device=bench.device)

    def step() -> None:
        if bench.cuda:
            torch.cuda._sleep(9_000_000)  # type: ignore[no-untyped-call]
        chosen.copy_(x.argmax(-1))

    return _plain(bench, step, 1)


def elementwise(bench: Bench, million: int, passes: int) -> Forms:
    """Memory-bound passes over `million` * 2^20 bf16 numbers; small sizes are near the launch bound."""
    x = bench.randn(bench.shrink(million << 20, 256))
    y = torch.empty_like(x)

    def step() -> None:
        for _ in range(passes):
            torch.mul(x, 1.0001, out=y)
            torch.add(y, 0.5, out=y)

    return _plain(bench, step, passes)


def _item(family: str, size: str, build: Callable[[Bench], Forms], traces: tuple[TraceSpec, ...] = (FULL,)) -> Item:
    return Item(family, size, "steady", GROUP, build, ("disabled",), observed_is_eager=True, traces=traces)


def items() -> list[Item]:
    """Labelled by their measured rho like every eager item; most should come out as controls."""
    return [
        _item("two-streams", "mm4096x8", two_streams, (FULL, CUDA_ONLY)),
        _item("prefill", "h4096-t2048", lambda b: prefill(b, 4096, 2048)),
        _item("elementwise", "16m-x60", lambda b: elementwise(b, 16, 60)),
        _item("one-stream", "mm8192x4", one_stream, (BARE,)),
        _item("long-kernel", "5ms", one_long_kernel),
        _item("prefill", "h2048-t2048", lambda b: prefill(b, 2048, 2048)),
        _item("elementwise", "256m-x20", lambda b: elementwise(b, 256, 20)),
        _item("elementwise", "8m-x100", lambda b: elementwise(b, 8, 100), (FULL, CUDA_ONLY)),
        _item("prefill", "h2048-t4096", lambda b: prefill(b, 2048, 4096)),
        _item("elementwise", "32m-x60", lambda b: elementwise(b, 32, 60)),
        _item("elementwise", "4m-x100", lambda b: elementwise(b, 4, 100)),
    ]
