"""Graphs that are captured again and again: the cost of capture in every step, or in every third."""

from __future__ import annotations

import torch
from item import BARE, FULL, Forms, Item, Step

from bench import Bench
from workloads.decoder_model import Kit, make_kit

GROUP = "recapture"


def _recapturing(kit: Kit, bench: Bench, every: int) -> Step:
    """Capture anew in one step of `every`, replay the last capture in the others. Its memory pool is new each time."""
    if not bench.cuda:
        return kit.eager
    held: list[torch.cuda.CUDAGraph] = []
    calls = 0

    def run() -> None:
        nonlocal calls
        if calls % every == 0:
            held.clear()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                kit.eager()
            held.append(graph)
        calls += 1
        held[0].replay()

    return run


def _item(every: int, layers: int) -> Item:
    def build(bench: Bench) -> Forms:
        kit = make_kit(bench, 2048, layers, 4, 512)
        thrash = _recapturing(kit, bench, every)
        return Forms(thrash, kit.graph, kit.state.batch, eager=kit.eager, period_calls=every)

    traces = (FULL, BARE) if every == 1 else (FULL,)
    return Item(
        "recapture",
        f"l{layers}-every{every}",
        "decode",
        GROUP,
        build,
        ("thrash",),
        ("disabled", "gap"),
        True,
        traces=traces,
        trace_steps=max(4, 3 * every),
        estimate_s=4.0,
    )


def items() -> list[Item]:
    """In a process of their own: a failing capture must not spoil other items."""
    return [_item(1, 8), _item(3, 8), _item(10, 8)]
