"""Builds small Chrome traces as torch.profiler writes them. Times are microseconds."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

Event = dict[str, Any]


class ChromeTrace:
    """Events being put together; `now` is the host's clock, `free` when each stream is idle again."""

    def __init__(self, start_us: float = 1_000.0) -> None:
        self.events: list[Event] = []
        self.now = start_us
        self.free: dict[tuple[int, int], float] = {}
        self.correlation = 100

    def call(self, name: str, dur: float = 4.0, category: str = "cuda_runtime", tid: int = 1) -> int:
        """A runtime call at `now`, which moves on; its correlation id."""
        self.correlation += 1
        self.add(category, name, self.now, dur, tid=tid, args={"correlation": self.correlation})
        self.now += dur
        return self.correlation

    def add(self, cat: str, name: str, ts: float, dur: float, tid: int = 1, pid: int = 42, **more: Any) -> None:
        self.events.append({"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, **more})

    def activity(
        self, cat: str, name: str, correlation: int, dur: float, stream: int = 7, device: int = 0, **args: Any
    ) -> float:
        """Something on a stream, as soon as it was launched and the stream is free; when it ends."""
        begin = max(self.now, self.free.get((device, stream), 0.0))
        numbers = {"device": device, "stream": stream, "correlation": correlation, **args}
        self.add(cat, name, begin, dur, tid=stream, pid=device, args=numbers)
        self.free[device, stream] = begin + dur
        return begin + dur

    def kernel(self, name: str, dur: float = 3.0, api: str = "cudaLaunchKernel", **where: Any) -> None:
        """A kernel and the call that launches it."""
        self.activity("kernel", name, self.call(api), dur, **where)

    def copy(self, name: str = "Memcpy HtoD (Pinned -> Device)", dur: float = 2.0, size: int = 64) -> None:
        self.activity("gpu_memcpy", name, self.call("cudaMemcpyAsync"), dur, bytes=size)

    def replay(
        self, kernels: int, dur: float = 3.0, gap: float = 0.5, api: str = "cudaGraphLaunch", **more: Any
    ) -> None:
        """A graph launch and its kernels, which share its correlation id."""
        correlation = self.call(api, 9.0)
        for number in range(kernels):
            if number:
                self.free[0, 7] = self.free[0, 7] + gap
            self.activity("kernel", f"node_{number}", correlation, dur, **more)

    def wait(self, api: str = "cudaStreamSynchronize") -> None:
        """Wait for everything that was launched."""
        ready = max([self.now + 1.0, *self.free.values()])
        self.correlation += 1
        self.add("cuda_runtime", api, self.now, ready - self.now, args={"correlation": self.correlation})
        self.now = ready

    def annotate(self, name: str, begin: float, category: str = "user_annotation", tid: int = 1) -> None:
        """An annotation from a moment until now."""
        self.add(category, name, begin, self.now - begin, tid=tid)

    def eager_step(self, kernels: int = 20, dur: float = 3.0, host: float = 10.0) -> None:
        """A step whose every kernel waits for its launch, with a wait for the device at its end."""
        for number in range(kernels):
            self.add("cpu_op", "aten::op", self.now, host)
            self.now += host
            self.kernel(f"kernel_{number % 7}" if 0 < number < kernels - 1 else f"edge_{number}", dur)
        self.wait()

    def graph_step(self, kernels: int = 20, prepare: float = 30.0) -> None:
        """A step that copies its inputs and replays one graph."""
        self.now += prepare
        self.copy()
        self.replay(kernels)
        self.kernel("argmax")
        self.wait()

    def steps(self, count: int, graph: bool = False, name: str | None = "ProfilerStep#{}", **how: Any) -> ChromeTrace:
        """Several steps of one sort, each annotated."""
        for number in range(count):
            begin = self.now
            self.graph_step(**how) if graph else self.eager_step(**how)
            if name is not None:
                self.annotate(name.format(number), begin)
            self.now += 1.0
        return self

    def document(self, **metadata: Any) -> dict[str, Any]:
        return {"schemaVersion": 1, **metadata, "traceEvents": self.events}

    def write(self, path: Path, **metadata: Any) -> Path:
        """As one JSON object, compressed when the name says so."""
        return write_json(path, self.document(**metadata))


def write_json(path: Path, content: Any) -> Path:
    data = json.dumps(content).encode()
    path.write_bytes(gzip.compress(data, 1) if path.suffix == ".gz" else data)
    return path
