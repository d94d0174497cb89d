"""The device that the corpus is recorded on: synchronising, capturing graphs, sharing what is costly to build."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar, cast

import torch

T = TypeVar("T")
Pool = object


@dataclass(frozen=True)
class Replay:
    """A captured step: calling it replays the graph, whose buffers live as long as `source`."""

    replay: Callable[[], None]
    source: Callable[[], object]

    def __call__(self) -> None:
        """Replay."""
        self.replay()


@dataclass
class Bench:
    """One device, one seed. Under `smoke` every shape is tiny and, on a CPU, a captured step is the step itself."""

    device: torch.device
    smoke: bool
    seed: int
    shared: dict[str, object] = field(default_factory=dict)

    @property
    def cuda(self) -> bool:
        """Whether there are graphs, streams and kernels."""
        return self.device.type == "cuda"

    def sync(self) -> None:
        """Wait for the device."""
        if self.cuda:
            torch.cuda.synchronize(self.device)

    def shrink(self, full: int, tiny: int) -> int:
        """`full`, or under smoke the smaller of it and `tiny`."""
        return min(full, tiny) if self.smoke else full

    def randn(self, *shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
        """Normal random numbers on the device (never zeros: they run faster than data)."""
        return torch.randn(*shape, device=self.device, dtype=dtype)

    def once(self, key: str, make: Callable[[], T]) -> T:
        """Build a thing the first time it is asked for; items of one process share it."""
        if key not in self.shared:
            self.shared[key] = make()
        return cast(T, self.shared[key])

    def new_pool(self) -> Pool | None:
        """A private memory pool that several graphs replayed in a fixed order may share."""
        return torch.cuda.graph_pool_handle() if self.cuda else None

    def capture(self, step: Callable[[], None], pool: Pool | None = None, warmups: int = 3) -> Callable[[], None]:
        """Capture `step` after warm-up on a side stream; the result replays it. Without CUDA it is `step`.

        The result keeps `step` alive, and with it the static buffers that the graph reads and writes.
        """
        if not self.cuda:
            return step
        self.warm_on_side_stream(step, warmups)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool):  # type: ignore[arg-type]
            step()
        return Replay(graph.replay, step)

    def capture_value(self, make: Callable[[], T], pool: Pool | None = None) -> tuple[Callable[[], None], T]:
        """Capture `make`; the result is the replay and the tensors that each replay writes (kept alive by the caller).

        Without CUDA the replay does nothing, so callers must fall back to the whole eager step there.
        """
        if not self.cuda:
            return (lambda: None), make()
        self.warm_on_side_stream(make, 1)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool):  # type: ignore[arg-type]
            value = make()
        return Replay(graph.replay, make), value

    def warm_on_side_stream(self, make: Callable[[], object], times: int) -> None:
        """Run outside the default stream before a capture, as PyTorch's notes on graphs ask."""
        side = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(side):
            for _ in range(times):
                make()
        torch.cuda.current_stream(self.device).wait_stream(side)
        torch.cuda.synchronize(self.device)

    def raise_clocks(self, seconds: float = 0.5) -> None:
        """Load the device until its clocks are up (they idle low; M22 in the field facts)."""
        if not self.cuda:
            return
        a = self.randn(4096, 4096)
        end_s = time.perf_counter() + seconds
        while time.perf_counter() < end_s:
            for _ in range(20):
                a @ a
            self.sync()


def open_bench(device: str, smoke: bool, seed: int) -> Bench:
    """Seed everything, turn gradients off for this thread (training turns them on itself) and fix the attention kernel.

    cuDNN's attention is off because it builds a plan per shape, which costs seconds that belong to no item.
    """
    torch.manual_seed(seed)
    torch.set_grad_enabled(False)
    bench = Bench(torch.device(device), smoke, seed)
    if bench.cuda:
        torch.cuda.set_device(0)
        torch.backends.cuda.enable_cudnn_sdp(False)
        bench.raise_clocks()
    else:
        torch.set_num_threads(1)
    return bench
