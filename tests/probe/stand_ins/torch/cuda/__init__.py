import os
import threading
import time

from torch import device

_initialization_lock = threading.Lock()
_queued_calls = []
reserved_bytes = 1 << 20


def is_initialized():
    return device.initialised


def _lazy_call(callable, **kwargs):
    with _initialization_lock:
        if is_initialized():
            callable()
        else:
            _queued_calls.append(callable)


def init():
    if device.initialised:
        return
    device.initialised = True
    for call in _queued_calls:
        call()


def current_device():
    """Per thread, as in CUDA: a new thread is on device 0 whatever the others chose."""
    return getattr(device.here, "index", 0)


def set_device(index):
    device.here.index = index
    device.contexts.add(index)


def device_count():
    return 4


def memory_reserved(index=0):
    return reserved_bytes + index


def get_device_properties(index):
    class Properties:
        name = "Simulated device"
        uuid = "00000000-0000-0000-0000-000000000000"

    return Properties()


def is_current_stream_capturing():
    return device.stream() in device.capturing_streams


class Stream:
    """Odd ids are torch's own streams, 0 is the default one, any other even id one that torch was handed."""

    def __init__(self, stream_id):
        self.stream_id = self.cuda_stream = stream_id

    def query(self):
        return time.perf_counter_ns() >= device.busy_until_ns.get(self.stream_id, 0)


def current_stream():
    return Stream(device.stream())


class Event:
    def __init__(self, enable_timing=False):
        self.at_ns = None
        self.pid = os.getpid()

    def __del__(self, pid_now=os.getpid, end=os.abort):
        # The real one's destructor throws in a forked child, which ends it.
        if pid_now() != self.pid:
            end()

    def record(self):
        assert not is_current_stream_capturing(), "an event was recorded into a capture"
        self.at_ns = device.end_of_work_ns()

    def query(self):
        if device.capturing_streams:
            device.queries_while_capturing.append(self)
        return time.perf_counter_ns() >= self.at_ns

    def elapsed_time(self, end):
        return (end.at_ns - self.at_ns) / 1e6


from torch.cuda.graphs import CUDAGraph as CUDAGraph  # noqa: E402
from torch.cuda.graphs import graph as graph  # noqa: E402
