"""Eager decoding, from launch-bound to device-bound: the fault that most people have, and its controls."""

from __future__ import annotations

from ab_timing import time_step_us
from item import BARE, BARE_CUDA, CUDA_ONLY, FULL, STACK, Forms, Item, TraceSpec

from bench import Bench
from workloads.decoder_model import Kit, make_kit

GROUP = "decoder-eager"
FIXED: tuple[tuple[int, int, int, int, tuple[TraceSpec, ...]], ...] = (
    (2048, 22, 4, 512, (FULL, CUDA_ONLY, STACK)),
    (2048, 8, 1, 512, (FULL, CUDA_ONLY)),
    (2048, 8, 8, 1024, (FULL, BARE)),
    (4096, 8, 4, 512, (FULL,)),
    (8192, 8, 4, 512, (FULL, CUDA_ONLY)),
    (2048, 8, 48, 1024, (FULL,)),
    (1024, 8, 1, 512, (BARE,)),
    (8192, 8, 48, 4096, (FULL, CUDA_ONLY)),
    (2048, 22, 1, 512, (FULL,)),
    (4096, 8, 48, 2048, (FULL, BARE_CUDA)),
)
"""hidden, layers, batch, kv_len, traces; the most important first. Device-bound ones are labelled by their rho."""

TUNED: tuple[tuple[int, int, int, int, tuple[TraceSpec, ...]], ...] = (
    (2048, 8, 32, 4, (FULL, CUDA_ONLY)),
    (2048, 8, 32, 8, (FULL,)),
    (2048, 8, 32, 12, (FULL, CUDA_ONLY)),
    (2048, 8, 32, 16, (FULL,)),
    (4096, 4, 8, 10, (FULL,)),
    (4096, 4, 8, 6, (FULL,)),
    (2048, 8, 32, 6, (FULL,)),
    (2048, 8, 32, 10, (FULL,)),
    (2048, 8, 32, 14, (FULL,)),
    (2048, 8, 32, 20, (FULL, STACK)),
    (4096, 4, 8, 14, (BARE,)),
    (2048, 8, 32, 25, (CUDA_ONLY,)),
    (4096, 4, 8, 20, (FULL,)),
    (2048, 8, 32, 35, (FULL,)),
    (4096, 4, 8, 50, (FULL,)),
    (2048, 8, 32, 3, (FULL,)),
)
"""hidden, layers, batch, aimed rho in percent, traces. The KV length is chosen on the spot to come near the aim."""

_SPACING_US = 0.8
"""Assumed extra GPU time per kernel launched from a full queue instead of a graph; it only chooses sizes."""
_MOST_KV = 40_000


def _forms(kit: Kit, kv_len: int) -> Forms:
    return Forms(observed=kit.eager, graph=kit.graph, batch=kit.state.batch, notes={"kv_len": float(kv_len)})


def _calibrate(bench: Bench, hidden: int, layers: int, batch: int) -> tuple[float, float, float]:
    """Host-bound eager step (us), and intercept (us) and slope (us per cached token) of the graph step."""
    near, far = 256, 4096
    short = make_kit(bench, hidden, layers, batch, near)
    long = make_kit(bench, hidden, layers, batch, far)
    host_us = time_step_us(short.eager, bench.sync)
    near_us, far_us = (time_step_us(kit.graph, bench.sync) for kit in (short, long))
    slope = max((far_us - near_us) / (far - near), 1e-4)
    return host_us, near_us - slope * near, slope


def kv_len_for(bench: Bench, hidden: int, layers: int, batch: int, aim: float) -> int:
    """The KV length at which the recoverable share is about `aim` (0..1).

    Eager time is the larger of the host's time and the device's; below rho of about 5 % the device's counts, whose
    kernels are a little further apart without a graph.
    """
    if bench.smoke:
        return 16
    key = f"calibration-{hidden}-{layers}-{batch}"
    host_us, base_us, slope = bench.once(key, lambda: _calibrate(bench, hidden, layers, batch))
    apart_us = 41 * layers * _SPACING_US
    graph_us = max((1 - aim) * host_us, apart_us * (1 - aim) / aim)
    return max(128, min(_MOST_KV, round((graph_us - base_us) / slope)))


def _fixed(hidden: int, layers: int, batch: int, kv_len: int, traces: tuple[TraceSpec, ...]) -> Item:
    def build(bench: Bench) -> Forms:
        return _forms(make_kit(bench, hidden, layers, batch, kv_len), kv_len)

    size = f"h{hidden}-l{layers}-b{batch}-k{kv_len}"
    return Item("decoder-eager", size, "decode", GROUP, build, ("disabled",), observed_is_eager=True, traces=traces)


def _tuned(hidden: int, layers: int, batch: int, aim_pct: int, traces: tuple[TraceSpec, ...]) -> Item:
    def build(bench: Bench) -> Forms:
        kv_len = kv_len_for(bench, hidden, layers, batch, aim_pct / 100)
        return _forms(make_kit(bench, hidden, layers, batch, kv_len), kv_len)

    size = f"h{hidden}-l{layers}-b{batch}-aim{aim_pct:02d}"
    return Item(
        "decoder-tuned",
        size,
        "decode",
        GROUP,
        build,
        ("disabled",),
        observed_is_eager=True,
        traces=traces,
        estimate_s=2.5,
    )


def items() -> list[Item]:
    """Fixed sizes and tuned ones in turn, so that a short budget keeps both."""
    fixed, tuned = [_fixed(*row) for row in FIXED], [_tuned(*row) for row in TUNED]
    mixed = [item for pair in zip(fixed, tuned, strict=False) for item in pair]
    return mixed + fixed[len(tuned) :] + tuned[len(fixed) :]
