"""A bf16 decoder of about 900 kernels a step (22 layers, hidden 2048), eager or captured, for tests and benchmarks."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

HIDDEN, LAYERS, HEADS, INNER, VOCABULARY, CONTEXT = 2048, 22, 16, 5632, 32_000, 256


def _norm(x: Tensor, weight: Tensor) -> Tensor:
    wide = x.float()
    return weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), dim=-1) * sin


class DecodeLoop:
    """One batch; `eager()` runs a step, `capture()` gives a graph of it. Tokens feed back, so errors would show."""

    def __init__(self, batch: int, seed: int = 7, layers: int = LAYERS) -> None:
        generator = torch.Generator(device="cuda").manual_seed(seed)

        def made(*shape: int) -> Tensor:
            return (torch.randn(*shape, device="cuda", generator=generator) * 0.02).to(torch.bfloat16)

        self.batch, self.layers = batch, range(layers)
        head = HIDDEN // HEADS
        self.embedding, self.head = made(VOCABULARY, HIDDEN), made(VOCABULARY, HIDDEN)
        self.norms = [torch.ones(HIDDEN, device="cuda", dtype=torch.bfloat16) for _ in range(2 * layers + 1)]
        self.attention = [[made(HIDDEN, HIDDEN) for _ in range(4)] for _ in self.layers]
        self.mlp = [(made(INNER, HIDDEN), made(INNER, HIDDEN), made(HIDDEN, INNER)) for _ in self.layers]
        self.keys = made(batch, HEADS, CONTEXT, head)
        self.values = made(batch, HEADS, CONTEXT, head)
        self.position = torch.tensor([CONTEXT - 1], device="cuda")
        angle = torch.arange(head, device="cuda").float()[None, :] / head
        self.cos, self.sin = angle.cos().to(torch.bfloat16), angle.sin().to(torch.bfloat16)
        self.tokens = torch.randint(VOCABULARY, (batch, 1), device="cuda", generator=generator)

    @torch.no_grad()
    def eager(self) -> None:
        """One decode step, greedy; the token buffer holds the result."""
        x = self.embedding[self.tokens]
        for at in self.layers:
            x = self._layer(at, x)
        scores = _norm(x[:, -1], self.norms[-1]) @ self.head.t()
        self.tokens.copy_(scores.argmax(-1, keepdim=True))

    def _layer(self, at: int, x: Tensor) -> Tensor:
        q, k, v, o = self.attention[at]
        normed = _norm(x, self.norms[2 * at])
        shape = (self.batch, 1, HEADS, HIDDEN // HEADS)
        query = _rotate(F.linear(normed, q).view(shape).transpose(1, 2), self.cos, self.sin)
        key = _rotate(F.linear(normed, k).view(shape).transpose(1, 2), self.cos, self.sin)
        value = F.linear(normed, v).view(shape).transpose(1, 2)
        self.keys.index_copy_(2, self.position, key)
        self.values.index_copy_(2, self.position, value)
        mixed = F.scaled_dot_product_attention(query, self.keys, self.values)
        x = x + F.linear(mixed.transpose(1, 2).reshape(x.shape), o)
        gate, up, down = self.mlp[at]
        normed = _norm(x, self.norms[2 * at + 1])
        return x + F.linear(F.silu(F.linear(normed, gate)) * F.linear(normed, up), down)

    def capture(self) -> torch.cuda.CUDAGraph:
        """A graph of one step, warmed up first."""
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self.eager()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.eager()
        return graph

    def stepper(self, mode: str) -> Callable[[], None]:
        """A step that ends with the tokens on the host, as a serving loop's does. Shape: mode eager or graph."""
        graph = self.capture() if mode == "graph" else None

        def run() -> None:
            if graph is None:
                self.eager()
            else:
                graph.replay()  # looked up by every step: a bound method of before would pass the probe's hook by
            self.tokens.tolist()

        return run
