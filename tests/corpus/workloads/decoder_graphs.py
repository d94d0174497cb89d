"""Decoding with graphs: healthy replay, and graphs that are half used, overfed, outgrown or cut to pieces."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable

import torch
from item import BARE, BARE_CUDA, CUDA_ONLY, FULL, STACK, Forms, Item, Step, TraceSpec
from torch import Tensor

from bench import Bench
from workloads.decoder_model import Kit, make_kit

GROUP = "decoder-graphs"
MEGABYTE = 1 << 20


def in_order(steps: list[Step]) -> Step:
    """One step made of several."""

    def run() -> None:
        for step in steps:
            step()

    return run


def in_turn(steps: list[Step]) -> Step:
    """A step that does the next of `steps` each time it is called."""
    turns = itertools.cycle(steps)

    def run() -> None:
        next(turns)()

    return run


def busy_wait(milliseconds: float) -> None:
    """Hold the interpreter, as a scheduler written in Python does."""
    end_ns = time.perf_counter_ns() + int(milliseconds * 1e6)
    while time.perf_counter_ns() < end_ns:
        pass


def cut_at_attention(kit: Kit, bench: Bench) -> Step:
    """Piecewise: graphs between the attentions, attention eager, as vLLM's PIECEWISE mode."""
    if not bench.cuda:
        return kit.eager
    model, state, pool = kit.model, kit.state, bench.new_pool()
    steps: list[Step] = []

    def first() -> tuple[Tensor, Tensor]:
        x = model.embed(state)
        return x, model.before_attention(0, x, state)

    replay, (x, q) = bench.capture_value(first, pool)
    steps.append(replay)
    for index in range(kit.layers):
        context = torch.empty_like(q)
        steps.append(_eager_attention(kit, q, context))
        replay, (x, q) = bench.capture_value(_between(kit, index, x, context), pool)
        steps.append(replay)
    return in_order(steps)


def _eager_attention(kit: Kit, q: Tensor, context: Tensor) -> Step:
    def attend() -> None:
        context.copy_(kit.model.attend(q, kit.state))

    return attend


def _between(kit: Kit, index: int, x: Tensor, context: Tensor) -> Callable[[], tuple[Tensor, Tensor]]:
    """From the end of attention `index` to the start of the next one, or to the sampled token."""

    def run() -> tuple[Tensor, Tensor]:
        out = kit.model.after_attention(index, x, context)
        if index + 1 < kit.layers:
            return out, kit.model.before_attention(index + 1, out, kit.state)
        kit.model.choose(out, kit.state)
        return out, out

    return run


def cut_in_fragments(kit: Kit, bench: Bench) -> Step:
    """Three graphs a layer and one for the head: coverage is complete, the launches are many."""
    if not bench.cuda:
        return kit.eager
    model, state, pool = kit.model, kit.state, bench.new_pool()
    replay, x = bench.capture_value(lambda: model.embed(state), pool)
    steps: list[Step] = [replay]
    kept: list[Tensor] = [x]
    for index in range(kit.layers):
        for stage in ("project", "attend", "finish"):
            replay, value = bench.capture_value(_stage(kit, index, stage, kept), pool)
            kept = [value] if stage == "finish" else [*kept, value]
            steps.append(replay)
    last = kept[0]
    steps.append(bench.capture(lambda: model.choose(last, state), pool, warmups=1))
    return in_order(steps)


def _stage(kit: Kit, index: int, stage: str, kept: list[Tensor]) -> Callable[[], Tensor]:
    inputs = tuple(kept)  # bound now: the residual, then the queries, then the attention's output

    def run() -> Tensor:
        if stage == "project":
            return kit.model.before_attention(index, inputs[0], kit.state)
        if stage == "attend":
            return kit.model.attend(inputs[1], kit.state)
        return kit.model.after_attention(index, inputs[0], inputs[2])

    return run


def cover_share(kit: Kit, bench: Bench, share: float) -> Step:
    """The first `share` (0..1) of the layers in one graph, the others eager."""
    if not bench.cuda:
        return kit.eager
    model, state = kit.model, kit.state
    covered = round(share * kit.layers)
    replay, x = bench.capture_value(lambda: model.run_layers(model.embed(state), state, 0, covered))

    def run() -> None:
        replay()
        model.choose(model.run_layers(x, state, covered, kit.layers), state)

    return run


def _with_gap(kit: Kit, gap_ms: float) -> Step:
    def run() -> None:
        kit.graph()
        kit.state.tokens.tolist()
        busy_wait(gap_ms)

    return run


def _with_sync(kit: Kit) -> Step:
    def run() -> None:
        kit.graph()
        kit.state.tokens.tolist()

    return run


def _copying(kit: Kit, bench: Bench, megabytes: int) -> tuple[Step, Step]:
    """(replay after copies into its eight static inputs, the same replay with the inputs in place)."""
    width = bench.shrink(megabytes * MEGABYTE // 16, 2048)
    static = [bench.randn(width) for _ in range(8)]
    fresh = [bench.randn(width) for _ in range(8)]

    def work() -> None:
        for buffer in static:
            torch.mul(buffer[: kit.model.shape.head_dim], 0.5, out=kit.state.k_cache[0, 0, 0])
        kit.eager()

    replay = bench.capture(work)

    def run() -> None:
        for target, source in zip(static, fresh, strict=True):
            target.copy_(source)
        replay()

    return run, replay


def item_of(
    family: str,
    size: str,
    build: Callable[[Bench], Forms],
    findings: tuple[str, ...],
    allowed: tuple[str, ...] = (),
    traces: tuple[TraceSpec, ...] = (FULL,),
    always_fault: bool = False,
    trace_steps: int = 3,
    estimate_s: float = 2.5,
) -> Item:
    """An item of this group."""
    return Item(
        family, size, "decode", GROUP, build, findings, allowed, always_fault, False, traces, trace_steps, estimate_s
    )


def _healthy(layers: int, batch: int, kv_len: int, traces: tuple[TraceSpec, ...]) -> Item:
    def build(bench: Bench) -> Forms:
        kit = make_kit(bench, 2048, layers, batch, kv_len)
        return Forms(kit.graph, kit.graph, kit.state.batch, eager=kit.eager)

    return item_of("decoder-replay", f"h2048-l{layers}-b{batch}-k{kv_len}", build, (), traces=traces)


def _shaped(
    family: str,
    size: str,
    layers: int,
    batch: int,
    kv_len: int,
    finding: str,
    make: Callable[[Kit, Bench], Step],
    traces: tuple[TraceSpec, ...] = (FULL,),
) -> Item:
    """An item whose observed form is a rearrangement of one decode step."""

    def build(bench: Bench) -> Forms:
        kit = make_kit(bench, 2048, layers, batch, kv_len)
        return Forms(make(kit, bench), kit.graph, kit.state.batch, eager=kit.eager)

    return item_of(family, size, build, (finding,), ("gap",), traces, estimate_s=3.4)


def _gap(gap_ms: float, traces: tuple[TraceSpec, ...]) -> Item:
    def build(bench: Bench) -> Forms:
        kit = make_kit(bench, 2048, 22, 4, 512)
        gapped = _with_gap(kit, 0.0 if bench.smoke else gap_ms)
        return Forms(gapped, gapped, kit.state.batch, extras={"without_gap": _with_sync(kit)})

    return item_of("replay-gap", f"{gap_ms:g}ms".replace(".", "p"), build, ("gap",), traces=traces, always_fault=True)


def _copy(megabytes: int, traces: tuple[TraceSpec, ...]) -> Item:
    def build(bench: Bench) -> Forms:
        kit = make_kit(bench, 2048, 8, 4, 512)
        copying, in_place = _copying(kit, bench, megabytes)
        return Forms(copying, in_place, kit.state.batch, notes={"copied_mb": float(megabytes)})

    return item_of("replay-copies", f"{megabytes}mb", build, ("copy_bound",), traces=traces)


def _padding(real: int, padded: int, kv_len: int) -> Item:
    def build(bench: Bench) -> Forms:
        fit = make_kit(bench, 2048, 8, bench.shrink(real, 2), kv_len)
        wide = make_kit(bench, 2048, 8, padded, kv_len)
        notes = {"real_batch": float(real), "padded_batch": float(padded)}
        return Forms(wide.graph, fit.graph, wide.state.batch, extras={"eager_fit": fit.eager}, notes=notes)

    return item_of("replay-padding", f"b{real}to{padded}-k{kv_len}", build, ("padding",))


def _ceiling(eager_of_four: int) -> Item:
    def build(bench: Bench) -> Forms:
        small = make_kit(bench, 2048, 8, 32, 512)
        large = make_kit(bench, 2048, 8, 48, 512)
        order = [large.eager] * eager_of_four + [small.graph] * (4 - eager_of_four)
        best = [large.graph] * eager_of_four + [small.graph] * (4 - eager_of_four)
        if eager_of_four == 2:
            order, best = order[::2] * 2, best[::2] * 2
        return Forms(in_turn(order), in_turn(best), large.state.batch, period_calls=4)

    return item_of("ceiling", f"b48eager-{eager_of_four}of4", build, ("overflow",), ("partial",), trace_steps=12)


def items() -> list[Item]:
    """The most important first."""
    return [
        _healthy(22, 4, 512, (FULL, CUDA_ONLY, STACK, BARE)),
        _shaped("piecewise", "l22-b4", 22, 4, 512, "downgrade", cut_at_attention, (FULL, CUDA_ONLY)),
        _shaped("partial", "l22-b4-70pct", 22, 4, 512, "partial", lambda k, b: cover_share(k, b, 0.7)),
        _ceiling(2),
        _gap(2, (FULL, BARE)),
        _copy(256, (FULL,)),
        _shaped("fragments", "l20-b4-61graphs", 20, 4, 512, "fragmented", cut_in_fragments),
        _padding(9, 16, 512),
        _shaped("partial", "l8-b4-30pct", 8, 4, 512, "partial", lambda k, b: cover_share(k, b, 0.3), (FULL, CUDA_ONLY)),
        _padding(9, 32, 4096),
        _copy(1024, (FULL,)),
        _shaped("partial", "l8-b32-k4096-90pct", 8, 32, 4096, "partial", lambda k, b: cover_share(k, b, 0.9)),
        _gap(0.5, (FULL,)),
        _healthy(8, 1, 512, (BARE_CUDA,)),
        _shaped("piecewise", "l8-b48-k2048", 8, 48, 2048, "downgrade", cut_at_attention),
        _ceiling(1),
        _copy(64, (FULL,)),
        _shaped("fragments", "l8-b1-25graphs", 8, 1, 512, "fragmented", cut_in_fragments),
        _gap(5, (FULL,)),
        _padding(33, 64, 2048),
        _shaped("partial", "l8-b16-k2048-70pct", 8, 16, 2048, "partial", lambda k, b: cover_share(k, b, 0.7)),
        _ceiling(3),
        _healthy(8, 48, 2048, (FULL,)),
    ]
