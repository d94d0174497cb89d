"""Scripts of known shape: eager decode, one graph a step, piecewise graphs."""

from __future__ import annotations

from tracer.fake_world import Copy, Eager, Replay, Script

LAYERS = 6
PER_LAYER = 5


def eager_steps(steps: int, kernel_ns: int = 3000, gap_ns: int = 7000, rest_ns: int = 40_000) -> Script:
    """Steps of an embedding, some layers and a head; `rest_ns` between steps."""
    work: list[Eager | Copy | Replay] = []
    at = 0
    for _ in range(steps):
        names = ["embedding", *(f"layer_{k}" for _ in range(LAYERS) for k in range(PER_LAYER)), "lm_head", "argmax"]
        for name in names:
            work.append(Eager(name, at, at + kernel_ns))
            at += kernel_ns + gap_ns
        at += rest_ns - gap_ns
    return Script(work)


def replay_at(graph: int, at: int, nodes: int, node_ns: int = 2500, gap_ns: int = 420, **more: object) -> Replay:
    """A chain of nodes on one stream."""
    starts = tuple(at + i * (node_ns + gap_ns) for i in range(nodes))
    return Replay(graph, starts, tuple(s + node_ns for s in starts), **more)  # type: ignore[arg-type]


def graph_steps(steps: int, nodes: int = 50, copies: int = 2, rest_ns: int = 6000, **more: object) -> Script:
    """One replay a step, after some copies into its inputs and before one back to the host."""
    work: list[Eager | Copy | Replay] = []
    at = 0
    for _ in range(steps):
        for _ in range(copies):
            work.append(Copy(8, 4096, at, at + 1500))
            at += 2000
        replay = replay_at(1, at, nodes, **more)
        work.append(replay)
        at = replay.ends[-1] + 1000
        work.append(Copy(2, 512, at, at + 1200))
        at += 1200 + rest_ns
    return Script(work)


def piecewise_steps(steps: int, pieces: int = 4, nodes: int = 8) -> Script:
    """Several small graphs a step with eager attention between them."""
    work: list[Eager | Copy | Replay] = []
    at = 0
    for _ in range(steps):
        for piece in range(pieces):
            replay = replay_at(piece + 1, at, nodes)
            work.append(replay)
            at = replay.ends[-1] + 3000
            work.append(Eager("attention", at, at + 9000))
            at += 12_000
        work.append(Eager("sample", at, at + 4000))
        at += 4000 + 30_000
    return Script(work)
