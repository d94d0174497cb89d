"""Plays a trace of a real GPU into an agent's socket, as a probe in a serving process would send it.

    python docs/tutorial/play.py --socket FOLDER/agent.sock TRACE [--seconds 60]

The figures are the trace's own; only pod, namespace and time are made up. A window leaves every two seconds.
"""

from __future__ import annotations

import argparse
import socket
import time
from dataclasses import replace
from pathlib import Path
from typing import Final

from replaywatch.contract.window import Window
from replaywatch.contract.wire import Batch, encode
from replaywatch.sources.reader import read

PERIOD_SECONDS: Final = 2.0


def placed(window: Window, pod: str, end_ns: int) -> Window:
    """The window as if a pod had sent it now."""
    workload = replace(window.workload, namespace="tutorial", pod=pod, container="server")
    start_ns = end_ns - int(PERIOD_SECONDS * 1e9)
    return replace(window, workload=workload, start_ns=start_ns, end_ns=end_ns, origin="probe")


def main() -> None:
    """Play until the time is over or somebody interrupts."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("trace", type=Path)
    parser.add_argument("--socket", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    arguments = parser.parse_args()
    recording = read(arguments.trace)
    pod = arguments.trace.name.split(".")[0]
    print(f"playing {arguments.trace.name} as pod {pod}; Ctrl-C ends it", flush=True)
    started, number = time.monotonic(), 0
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        try:
            while time.monotonic() - started < arguments.seconds:
                now_ns = time.time_ns()
                frame = Batch(
                    key=f"tutorial-{now_ns:x}-{number}",
                    sent_ns=now_ns,
                    windows=tuple(placed(w, pod, now_ns) for w in recording.windows),
                    fingerprints=recording.fingerprints,
                    configs=recording.configs,
                )
                sender.sendto(encode(frame), str(arguments.socket))
                number += 1
                time.sleep(PERIOD_SECONDS)
        except KeyboardInterrupt:
            print("stopping")


if __name__ == "__main__":
    main()
