"""The simulated device: one clock per stream, work that takes time, and failures on demand."""

import threading
import time

initialised = False
contexts = {0}
here = threading.local()
busy_until_ns = {}
# What the next calls do: names of calls mapped to the exception they raise.
fail = {}
hang = False
capturing_streams = set()
queries_while_capturing = []


class AcceleratorError(RuntimeError):
    error_code = 0


def error(code, text):
    found = AcceleratorError(f"CUDA error: {text}")
    found.error_code = code
    return found


def maybe_fail(call):
    if call in fail:
        raise fail.pop(call)


def stream():
    return getattr(here, "stream", 0)


def launch(duration_ns):
    now = time.perf_counter_ns()
    begin = max(now, busy_until_ns.get(stream(), 0))
    busy_until_ns[stream()] = float("inf") if hang else begin + duration_ns


def end_of_work_ns():
    return max(time.perf_counter_ns(), busy_until_ns.get(stream(), 0))
