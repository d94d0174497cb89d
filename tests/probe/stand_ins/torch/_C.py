"""The native base class, and the few calls that the probe makes."""

from torch import device, generation


def _cuda_getCurrentRawStream(index):
    return device.stream()


def _cuda_hasPrimaryContext(index):
    return index in device.contexts


class _CUDAGraph:
    def __new__(cls, keep_graph=False):
        return object.__new__(cls)

    def __init__(self, keep_graph=False):
        self._keep_graph = keep_graph
        self._has_graph_exec = False
        self.duration_ns = 100_000

    def capture_begin(self, pool=None, capture_error_mode="global"):
        device.maybe_fail("capture_begin")
        device.capturing_streams.add(device.stream())
        self._pool = pool or (0, id(self))

    def capture_end(self):
        device.capturing_streams.discard(device.stream())
        device.maybe_fail("capture_end")
        if not self._keep_graph and not generation.since(2, 14):
            _CUDAGraph.instantiate(self)

    def instantiate(self):
        device.maybe_fail("instantiate")
        self._has_graph_exec = True

    def replay(self):
        device.maybe_fail("replay")
        self._has_graph_exec = True
        device.launch(self.duration_ns)

    def reset(self):
        device.maybe_fail("reset")
        self._has_graph_exec = False

    def pool(self):
        return self._pool

    def raw_cuda_graph(self):
        if not self._keep_graph:
            raise RuntimeError("You cannot access the raw cudaGraph_t instance unless keep_graph=True")
        return 1
