"""Steps with a host part that no graph removes: look-alikes of lost graphs, and an RL-like loop of tiny kernels."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from item import BARE, FULL, Forms, Item, Step, TraceSpec
from torch import Tensor, nn

from bench import Bench
from workloads.decoder_model import make_kit

GROUP = "steady"
STALL_S = 0.005


def after_stall(step: Step, bench: Bench, stall_s: float = STALL_S) -> Step:
    """A step that waits for its batch first, as with a slow data loader, and copies it to the device."""
    batch = torch.randn(bench.shrink(1 << 18, 64))
    batch = batch.pin_memory() if bench.cuda else batch
    target = batch.to(bench.device)
    wait_s = 0.0 if bench.smoke else stall_s

    def run() -> None:
        time.sleep(wait_s)
        target.copy_(batch, non_blocking=True)
        step()

    return run


def stalled(bench: Bench, graphed: bool) -> Forms:
    """The stall in front of a decode step; with `graphed` the observed step is already the best one."""
    kit = make_kit(bench, 2048, 8, 4, 512)
    graph, eager = after_stall(kit.graph, bench), after_stall(kit.eager, bench)
    extras = {"without_gap": kit.graph}
    if graphed:
        return Forms(graph, graph, kit.state.batch, eager=eager, extras=extras)
    return Forms(eager, graph, kit.state.batch, extras=extras)


def reading_token(step: Step, tokens: Tensor) -> Step:
    """A step whose token the host waits for."""

    def run() -> None:
        step()
        tokens[0, 0].item()

    return run


def read_each_step(bench: Bench, graphed: bool) -> Forms:
    """`.item()` after every step, in front of an eager step or a replay."""
    kit = make_kit(bench, 2048, 8, 4, 512)
    graph = reading_token(kit.graph, kit.state.tokens)
    eager = reading_token(kit.eager, kit.state.tokens)
    if graphed:
        return Forms(graph, graph, kit.state.batch, eager=eager)
    return Forms(eager, graph, kit.state.batch)


def sampled_on_host(bench: Bench, graphed: bool) -> Forms:
    """The logits go to the host, which draws the next token (softmax and multinomial there)."""
    kit = make_kit(bench, 2048, 8, 4, 512)
    model, state = kit.model, kit.state
    logits = bench.randn(state.batch, model.shape.vocab)

    def forward() -> None:
        logits.copy_(model.logits(model.run_layers(model.embed(state), state, 0, kit.layers)))

    replay = bench.capture(forward)

    def with_sampling(step: Step) -> Step:
        def run() -> None:
            step()
            chances = torch.softmax(logits.cpu().float(), dim=-1)
            state.tokens.copy_(torch.multinomial(chances, 1))

        return run

    graph, eager = with_sampling(replay), with_sampling(forward)
    if graphed:
        return Forms(graph, graph, state.batch, eager=eager)
    return Forms(eager, graph, state.batch)


def rollout(bench: Bench, kernels: int, env_us: float) -> Forms:
    """A policy of tiny kernels on one fixed observation; with `env_us` the action goes to a Python environment."""
    width = 64
    layers = [nn.Linear(width, width, device=bench.device) for _ in range(max(1, kernels // 3))]
    observation = bench.randn(1, width, dtype=torch.float32)
    action = torch.zeros(1, dtype=torch.int64, device=bench.device)

    def policy() -> None:
        x = observation
        for layer in layers:
            x = torch.tanh(layer(x)) + x
        action.copy_(x.argmax(-1))

    def in_environment(step: Step) -> Step:
        def run() -> None:
            step()
            int(action.item())
            end_ns = time.perf_counter_ns() + int(env_us * 1e3)
            while time.perf_counter_ns() < end_ns:
                pass

        return run

    graph = bench.capture(policy)
    if env_us == 0:
        return Forms(policy, graph, 1)
    return Forms(in_environment(policy), in_environment(graph), 1)


def _item(
    family: str, size: str, build: Callable[[Bench], Forms], graphed: bool, traces: tuple[TraceSpec, ...] = (FULL,)
) -> Item:
    findings = () if graphed else ("disabled",)
    return Item(
        family,
        size,
        "look-alike",
        GROUP,
        build,
        findings,
        ("gap", "host_stall", "host_sync"),
        observed_is_eager=not graphed,
        traces=traces,
    )


def items() -> list[Item]:
    """The ones that mislead most come first."""
    return [
        _item("data-stall", "5ms-graph", lambda b: stalled(b, True), True, (FULL, BARE)),
        _item("data-stall", "5ms-eager", lambda b: stalled(b, False), False),
        _item("item-sync", "l8-b4-eager", lambda b: read_each_step(b, False), False),
        _item("item-sync", "l8-b4-graph", lambda b: read_each_step(b, True), True),
        _item("rollout", "50-kernels", lambda b: rollout(b, 50, 0), False, (FULL, BARE)),
        _item("rollout", "50-kernels-env1ms", lambda b: rollout(b, 50, 1000), False),
        _item("host-sampling", "l8-b4-eager", lambda b: sampled_on_host(b, False), False),
        _item("host-sampling", "l8-b4-graph", lambda b: sampled_on_host(b, True), True),
        _item("rollout", "50-kernels-env4ms", lambda b: rollout(b, 50, 4000), False),
        _item("rollout", "150-kernels", lambda b: rollout(b, 150, 0), False),
    ]
