"""torch.compile in its modes: graphs not asked for, graphs asked for and skipped, graphs fed by copies, shape churn."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import torch
import torch.nn.functional as F
from item import BARE, FULL, Forms, Item, Step, TraceSpec
from torch import Tensor, nn

from bench import Bench

GROUP = "compiled"
Net = Callable[[Tensor], Tensor]


class Block(nn.Module):
    """Norm, two linear layers, a residual."""

    def __init__(self, width: int, device: torch.device) -> None:
        super().__init__()
        options = {"device": device, "dtype": torch.bfloat16}
        self.norm = nn.LayerNorm(width, **options)  # type: ignore[arg-type]
        self.up = nn.Linear(width, 4 * width, **options)  # type: ignore[arg-type]
        self.down = nn.Linear(4 * width, width, **options)  # type: ignore[arg-type]

    def forward(self, x: Tensor) -> Tensor:
        """Shape: [batch, width] to the same."""
        return x + self.down(F.gelu(self.up(self.norm(x))))  # type: ignore[no-any-return]


def net_of(bench: Bench, width: int, depth: int) -> nn.Module:
    """A stack of blocks."""
    width, depth = bench.shrink(width, 16), bench.shrink(depth, 2)
    return nn.Sequential(*[Block(width, bench.device) for _ in range(depth)])


def compiled(bench: Bench, work: Callable[..., Tensor], mode: str, dynamic: bool = False) -> Callable[..., Tensor]:
    """torch.compile in `mode`; under smoke on a CPU the backend that compiles nothing.

    Items share code objects, and each form is an entry in Dynamo's cache of such an object, hence the higher limit.
    """
    torch._dynamo.config.recompile_limit = 64
    if bench.smoke and not bench.cuda:
        return torch.compile(work, backend="eager", dynamic=dynamic)
    return torch.compile(work, mode=mode, dynamic=dynamic)


def calling(work: Callable[..., Tensor], *inputs: Tensor) -> Step:
    """A step that begins a new generation of cudagraph trees and drops the result."""

    def run() -> None:
        torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
        work(*inputs)

    return run


def warmed(step: Step, times: int = 4) -> Step:
    """Compile, warm up, record: cudagraph trees replay from the third call on."""
    for _ in range(times):
        step()
    return step


def by_mode(bench: Bench, width: int, depth: int, batch: int, mode: str) -> Forms:
    """Compiled without graphs, or healthy with them. The best full graph is a capture of the compiled kernels."""
    net = net_of(bench, width, depth)
    x = bench.randn(bench.shrink(batch, 2), bench.shrink(width, 16))
    eager = warmed(calling(net, x))
    plain = warmed(calling(compiled(bench, net, "default"), x))
    captured = bench.capture(plain)
    if mode == "default":
        return Forms(plain, captured, int(x.shape[0]), eager=eager)
    observed = warmed(calling(compiled(bench, net, mode), x))
    if mode == "reduce-overhead":
        return Forms(observed, observed, int(x.shape[0]), eager=eager, extras={"manual_graph": captured})
    return Forms(observed, bench.capture(observed), int(x.shape[0]), eager=eager)


def plain_weights(bench: Bench, width: int, depth: int) -> Forms:
    """reduce-overhead over weights that are plain tensors: every step copies them into static inputs (M18)."""
    width = bench.shrink(width, 16)
    weights = [bench.randn(width, width) * width**-0.5 for _ in range(depth)]
    x = bench.randn(16, width)

    def work(x: Tensor) -> Tensor:
        for weight in weights:
            x = F.relu(x @ weight)
        return x

    observed = warmed(calling(compiled(bench, work, "reduce-overhead"), x))
    plain = warmed(calling(compiled(bench, work, "default"), x))
    return Forms(observed, bench.capture(plain), 16, extras={"compiled_default": plain})


def skipped(bench: Bench, width: int, depth: int, reason: str) -> Forms:
    """reduce-overhead that Inductor gives up or cuts: a mutated input, or a tensor on the CPU."""
    net = net_of(bench, width, depth)
    x = bench.randn(16, bench.shrink(width, 16))
    total = bench.randn(16, bench.shrink(width, 16))
    scale = torch.tensor(0.5)

    def mutating(x: Tensor, total: Tensor) -> Tensor:
        out: Tensor = net(x)
        total.mul_(0.9).add_(out)
        return out

    def scaled(x: Tensor, scale: Tensor) -> Tensor:
        return net(x * scale)  # type: ignore[no-any-return]

    if reason == "mutated-input":
        observed = warmed(calling(compiled(bench, mutating, "reduce-overhead"), x, total))
        plain = warmed(calling(compiled(bench, mutating, "default"), x, total))
        return Forms(observed, bench.capture(plain), 16, extras={"compiled_default": plain})
    observed = warmed(calling(compiled(bench, scaled, "reduce-overhead"), x, scale))
    plain = warmed(calling(compiled(bench, scaled, "default"), x, scale.to(bench.device)))
    return Forms(observed, bench.capture(plain), 16, extras={"compiled_default": plain})


def shape_churn(bench: Bench, width: int, depth: int) -> Forms:
    """A new batch size in every third step, with dynamic shapes: cudagraph trees warm up, record and replay each once.

    The best full graph pads to the largest size.
    """
    net = net_of(bench, width, depth)
    work = compiled(bench, net, "reduce-overhead", dynamic=True)
    widest = bench.shrink(2048, 40)
    x = bench.randn(widest, bench.shrink(width, 16))
    sizes = itertools.cycle(size for size in range(2, widest) for _ in range(3))

    def run() -> None:
        torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
        work(x[: next(sizes)])

    padded = warmed(calling(compiled(bench, net, "default"), x))
    return Forms(warmed(run, 6), bench.capture(padded), widest, period_calls=3)


def _item(
    size: str,
    build: Callable[[Bench], Forms],
    findings: tuple[str, ...],
    allowed: tuple[str, ...] = (),
    traces: tuple[TraceSpec, ...] = (FULL,),
    estimate_s: float = 11.0,
    group: str = GROUP,
    trace_steps: int = 4,
) -> Item:
    return Item(
        "compiled",
        size,
        "compile",
        group,
        build,
        findings,
        (*allowed, "gap"),
        traces=traces,
        trace_steps=trace_steps,
        estimate_s=estimate_s,
    )


def items() -> list[Item]:
    """What people meet most comes first; max-autotune has a process of its own at the end, for it is slow."""
    return [
        _item(
            "default-w1024-d12-b64", lambda b: by_mode(b, 1024, 12, 64, "default"), ("disabled",), traces=(FULL, BARE)
        ),
        _item("reduce-overhead-w1024-d12-b64", lambda b: by_mode(b, 1024, 12, 64, "reduce-overhead"), ()),
        _item("plain-weights-w2048-d12", lambda b: plain_weights(b, 2048, 12), ("copy_bound",)),
        _item("mutated-input-w1024-d8", lambda b: skipped(b, 1024, 8, "mutated-input"), ("downgrade", "disabled")),
        _item("default-w4096-d6-b1024", lambda b: by_mode(b, 4096, 6, 1024, "default"), ("disabled",)),
        _item("shape-churn-w512-d4", lambda b: shape_churn(b, 512, 4), ("thrash",), estimate_s=14.0, trace_steps=6),
        _item("cpu-tensor-w1024-d8", lambda b: skipped(b, 1024, 8, "cpu-tensor"), ("downgrade", "disabled")),
        _item(
            "max-autotune-w512-d4",
            lambda b: by_mode(b, 512, 4, 16, "max-autotune-no-cudagraphs"),
            ("disabled",),
            estimate_s=60.0,
            group="autotune",
        ),
    ]
