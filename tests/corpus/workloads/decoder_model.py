"""A Llama-shaped bf16 decoder written as people write them: 41 kernels a layer when it decodes one token eagerly."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bench import Bench

Step = Callable[[], None]


@dataclass(frozen=True)
class Shape:
    """Sizes of the model. Heads are 128 wide (16 under smoke)."""

    hidden: int
    layers: int
    vocab: int = 32_000
    head_dim: int = 128

    @property
    def heads(self) -> int:
        """Attention heads; keys and values have as many."""
        return self.hidden // self.head_dim


class RmsNorm(nn.Module):
    """RMS norm in eight small kernels, as in the reference model code."""

    def __init__(self, width: int, device: torch.device) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width, device=device, dtype=torch.bfloat16))

    def forward(self, x: Tensor) -> Tensor:
        """Shape: [..., width] to the same."""
        wide = x.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
        out: Tensor = self.weight * wide.to(x.dtype)
        return out


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary position embedding. Shape: x [batch, heads, time, head_dim]; cos, sin [time, head_dim]."""
    half = x.shape[-1] // 2
    turned = torch.cat((-x[..., half:], x[..., :half]), dim=-1)
    return x * cos + turned * sin


def rope_tables(positions: Tensor, head_dim: int) -> tuple[Tensor, Tensor]:
    """Cosine and sine for the positions. Shape: [time, head_dim] each, bf16."""
    speed = 1.0 / 10_000 ** (torch.arange(0, head_dim, 2, device=positions.device).float() / head_dim)
    angle = positions.float()[:, None] * speed[None, :]
    both = torch.cat((angle, angle), dim=-1)
    return both.cos().to(torch.bfloat16), both.sin().to(torch.bfloat16)


class Layer(nn.Module):
    """One transformer layer in three stages: project, attend (outside), finish."""

    def __init__(self, shape: Shape, device: torch.device) -> None:
        super().__init__()
        self.shape = shape
        inner = 11 * shape.hidden // 4

        def linear(width_in: int, width_out: int) -> nn.Linear:
            return nn.Linear(width_in, width_out, bias=False, device=device, dtype=torch.bfloat16)

        self.attention_norm = RmsNorm(shape.hidden, device)
        self.mlp_norm = RmsNorm(shape.hidden, device)
        self.q, self.k, self.v, self.o = (linear(shape.hidden, shape.hidden) for _ in range(4))
        self.gate, self.up = linear(shape.hidden, inner), linear(shape.hidden, inner)
        self.down = linear(inner, shape.hidden)

    def project(self, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Norm, projections, rotation. Shape: x [batch, time, hidden] to q, k, v [batch, heads, time, head_dim]."""
        batch, time, _ = x.shape
        normed = self.attention_norm(x)
        split = (batch, time, self.shape.heads, self.shape.head_dim)
        q = self.q(normed).view(split).transpose(1, 2)
        k = self.k(normed).view(split).transpose(1, 2)
        v = self.v(normed).view(split).transpose(1, 2)
        return rotate(q, cos, sin), rotate(k, cos, sin), v

    def finish(self, x: Tensor, context: Tensor) -> Tensor:
        """Output projection and MLP. Shape: x [batch, time, hidden], context [batch, heads, time, head_dim]."""
        x = x + self.o(context.transpose(1, 2).reshape(x.shape))
        normed = self.mlp_norm(x)
        out: Tensor = x + self.down(F.silu(self.gate(normed)) * self.up(normed))
        return out


@dataclass(frozen=True)
class DecodeState:
    """Static buffers of one batch. All layers share one KV cache: its values mean nothing, its size costs time."""

    tokens: Tensor  # [batch, 1] int64
    position: Tensor  # [1] int64, the place in the cache that is written
    cos: Tensor
    sin: Tensor
    k_cache: Tensor  # [batch, heads, kv_len, head_dim] bf16
    v_cache: Tensor

    @property
    def batch(self) -> int:
        """Sequences decoded together."""
        return int(self.tokens.shape[0])


class Decoder(nn.Module):
    """The model; `decode` runs one step over the first `layers` of its layers."""

    def __init__(self, shape: Shape, device: torch.device) -> None:
        super().__init__()
        self.shape = shape
        self.embedding = nn.Embedding(shape.vocab, shape.hidden, device=device, dtype=torch.bfloat16)
        self.layers = nn.ModuleList([Layer(shape, device) for _ in range(shape.layers)])
        self.norm = RmsNorm(shape.hidden, device)
        self.head = nn.Linear(shape.hidden, shape.vocab, bias=False, device=device, dtype=torch.bfloat16)

    def new_state(self, batch: int, kv_len: int) -> DecodeState:
        """Static buffers for `batch` sequences that attend to `kv_len` cached tokens."""
        device = self.embedding.weight.device
        position = torch.tensor([kv_len - 1], device=device)
        cos, sin = rope_tables(position, self.shape.head_dim)
        cache = (batch, self.shape.heads, kv_len, self.shape.head_dim)
        return DecodeState(
            tokens=torch.randint(self.shape.vocab, (batch, 1), device=device),
            position=position,
            cos=cos,
            sin=sin,
            k_cache=torch.randn(cache, device=device, dtype=torch.bfloat16),
            v_cache=torch.randn(cache, device=device, dtype=torch.bfloat16),
        )

    def layer(self, index: int) -> Layer:
        """Layer `index`, with its type."""
        return cast(Layer, self.layers[index])

    def embed(self, state: DecodeState) -> Tensor:
        """The first stage. Shape: [batch, 1, hidden]."""
        embedded: Tensor = self.embedding(state.tokens)
        return embedded

    def before_attention(self, index: int, x: Tensor, state: DecodeState) -> Tensor:
        """Project layer `index` and write its keys and values; returns the queries."""
        q, k, v = self.layer(index).project(x, state.cos, state.sin)
        state.k_cache.index_copy_(2, state.position, k)
        state.v_cache.index_copy_(2, state.position, v)
        return q

    def attend(self, q: Tensor, state: DecodeState) -> Tensor:
        """Attention of one query over the whole cache."""
        return F.scaled_dot_product_attention(q, state.k_cache, state.v_cache)

    def after_attention(self, index: int, x: Tensor, context: Tensor) -> Tensor:
        """The rest of layer `index`."""
        return self.layer(index).finish(x, context)

    def run_layers(self, x: Tensor, state: DecodeState, first: int, last: int) -> Tensor:
        """Layers first .. last-1."""
        for index in range(first, last):
            q = self.before_attention(index, x, state)
            x = self.after_attention(index, x, self.attend(q, state))
        return x

    def logits(self, x: Tensor) -> Tensor:
        """Shape: [batch, 1, hidden] to [batch, vocab]."""
        scores: Tensor = self.head(self.norm(x[:, -1]))
        return scores

    def choose(self, x: Tensor, state: DecodeState) -> None:
        """Greedy sampling into the static token buffer."""
        state.tokens.copy_(self.logits(x).argmax(-1, keepdim=True))

    def decode(self, state: DecodeState, layers: int) -> None:
        """One decode step."""
        self.choose(self.run_layers(self.embed(state), state, 0, layers), state)

    def sequence(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Causal pass over whole sequences (prefill, training). Shape: [batch, time, hidden] to the same."""
        for index in range(len(self.layers)):
            layer = self.layer(index)
            q, k, v = layer.project(x, cos, sin)
            x = layer.finish(x, F.scaled_dot_product_attention(q, k, v, is_causal=True))
        return x


def decoder_for(bench: Bench, hidden: int, layers: int) -> Decoder:
    """The shared model of a width; a request for fewer layers than it has uses the first of them."""
    if bench.smoke:
        shape = Shape(64, 3, vocab=128, head_dim=16)
        return bench.once("decoder-smoke", lambda: Decoder(shape, bench.device))
    deep = 22 if hidden == 2048 else layers
    return bench.once(f"decoder-{hidden}-{deep}", lambda: Decoder(Shape(hidden, deep), bench.device))


@dataclass(frozen=True)
class Kit:
    """A decoder, a state and its step in both plain forms."""

    model: Decoder
    state: DecodeState
    layers: int
    eager: Step
    graph: Step


def make_kit(bench: Bench, hidden: int, layers: int, batch: int, kv_len: int) -> Kit:
    """Build the eager step and its full-graph capture."""
    model = decoder_for(bench, hidden, layers)
    depth = min(layers, len(model.layers))
    state = model.new_state(bench.shrink(batch, 4), bench.shrink(kv_len, 16))

    def eager() -> None:
        model.decode(state, depth)

    return Kit(model, state, depth, eager, bench.capture(eager))
