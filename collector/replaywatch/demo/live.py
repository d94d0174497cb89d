"""A small decoder that decodes for ever: with graphs, eager, or past its ceiling. For machines with a GPU.

    replaywatch run -- python -m replaywatch.demo.live eager

Needs torch with CUDA. No engine adapter knows this loop, so it tells the probe its steps and what its model must read
(`record_step`, `describe_model`), as a loop of your own would. The traffic is made up: batches that wander between 1
and the scenario's top.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

LADDER: Final = (1, 2, 4, 8, 16, 24, 32)
TOP_BATCH: Final = {"graphs": 32, "eager": 32, "past-ceiling": 48}


@dataclass(frozen=True, slots=True)
class Shape:
    """Size of the model: bf16, untrained. About 41 kernels a layer."""

    layers: int = 12
    hidden: int = 2048
    heads: int = 16
    kv_len: int = 512
    vocab: int = 32_000


def sizes_of(shape: Shape) -> dict[str, int]:
    """What a step reads of the weights, and of the cache for a token: bytes of bf16, and layers."""
    weights = shape.layers * 12 * shape.hidden**2 + shape.vocab * shape.hidden
    return {
        "weight_bytes": 2 * weights, "layers": shape.layers, "cache_bytes_per_token": 4 * shape.layers * shape.hidden,
    }  # fmt: skip


def build_step(shape: Shape, batch: int) -> Callable[[], None]:
    """One greedy decode step over static buffers for a batch. Needs a GPU."""
    import torch
    from torch.nn import functional as F

    options: dict[str, Any] = {"device": "cuda", "dtype": torch.bfloat16}
    width, head_dim = 4 * shape.hidden, shape.hidden // shape.heads
    torch.manual_seed(7)
    embedding = torch.randn(shape.vocab, shape.hidden, **options) * 0.02
    layers = [
        {
            "qkv": torch.randn(shape.hidden, 3 * shape.hidden, **options) * 0.02,
            "out": torch.randn(shape.hidden, shape.hidden, **options) * 0.02,
            "up": torch.randn(shape.hidden, width, **options) * 0.02,
            "down": torch.randn(width, shape.hidden, **options) * 0.02,
        }
        for _ in range(shape.layers)
    ]
    cache = torch.randn(2, batch, shape.heads, shape.kv_len, head_dim, **options)
    tokens = torch.zeros(batch, dtype=torch.long, device="cuda")

    def norm(x: Any) -> Any:
        return x * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-6).to(x.dtype)

    def step() -> None:
        x = embedding[tokens]
        for layer in layers:
            q, k, v = (norm(x) @ layer["qkv"]).view(batch, 3, shape.heads, 1, head_dim).unbind(1)
            cache[0, :, :, -1:].copy_(k)
            cache[1, :, :, -1:].copy_(v)
            attended = F.scaled_dot_product_attention(q, cache[0], cache[1])
            x = x + attended.reshape(batch, shape.hidden) @ layer["out"]
            x = x + F.gelu(norm(x) @ layer["up"]) @ layer["down"]
        tokens.copy_((norm(x) @ embedding.t()).argmax(-1))

    return step


def capture(step: Callable[[], None]) -> Any:
    """The step as a CUDA graph, after warm-up on a side stream."""
    import torch

    cuda: Any = torch.cuda  # its Stream has no types
    side = cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph


def batch_at(second: float, top: int) -> int:
    """The batch that the made-up traffic gives: a slow wave between a quarter of the top and the top."""
    wave = 0.5 - 0.5 * math.cos(second * 2 * math.pi / 40)
    return max(1, round(top * (0.25 + 0.75 * wave)))


def serve(scenario: str, seconds: float, shape: Shape) -> tuple[int, int]:
    """Decode for some seconds; returns (steps, of them replayed)."""
    import torch

    from replaywatch.probe import describe_model, record_step

    describe_model(**sizes_of(shape))
    sizes = sorted({*LADDER, TOP_BATCH[scenario]})
    with torch.inference_mode():
        eager = {size: build_step(shape, size) for size in sizes}
        graphs = {} if scenario == "eager" else {size: capture(eager[size]) for size in LADDER}
        steps = replayed = 0
        start = time.monotonic()
        while (now := time.monotonic() - start) < seconds:
            batch = batch_at(now, TOP_BATCH[scenario])
            size = next(s for s in sizes if s >= batch)
            told: dict[str, int] = {"batch": batch, "real_tokens": batch, "context_tokens": batch * shape.kv_len}
            if size in graphs:
                graphs[size].replay()
                record_step("full", padded_tokens=size, **told)
                replayed += 1
            else:
                eager[size]()
                reason = "above_ceiling" if graphs else "mode_none"
                record_step("eager", padded_tokens=batch, reason=reason, **told)
            torch.cuda.synchronize()
            steps += 1
    return steps, replayed


def main(argv: Sequence[str] | None = None) -> int:
    """Run a scenario."""
    parser = argparse.ArgumentParser(prog="python -m replaywatch.demo.live", description=__doc__.split("\n")[0])
    parser.add_argument("scenario", choices=sorted(TOP_BATCH))
    parser.add_argument("--seconds", type=float, default=math.inf, help="how long (default: until interrupted)")
    parser.add_argument("--layers", type=int, default=Shape().layers)
    arguments = parser.parse_args(argv)
    try:
        import torch
    except ModuleNotFoundError:
        print("this needs torch with CUDA: install torch, or see `replaywatch demo` without a GPU", file=sys.stderr)
        return 2
    if not torch.cuda.is_available():
        print("torch sees no CUDA device here; see `replaywatch demo` without a GPU", file=sys.stderr)
        return 2
    try:
        steps, replayed = serve(arguments.scenario, arguments.seconds, Shape(layers=arguments.layers))
    except KeyboardInterrupt:
        return 130
    print(f"{arguments.scenario}: {steps} steps, {replayed} replayed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
