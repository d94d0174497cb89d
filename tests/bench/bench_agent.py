"""What the agent costs: processor share, resident memory, and what arrived, at a usual and at a hundredfold load.

    python tests/bench/bench_agent.py [--seconds 20] [--json docs/data/bench_agent.json]

Eight probe processes send over the real socket, a receiver in this process stores the batches; only the agent's own
process is measured, by /proc. The budget is 1 % of a core and 80 MB at the usual load (8 processes, a window each 5 s).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from datetime import datetime, timezone
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "agent"), str(ROOT / "tests")]

from agent.frames import frame, window  # noqa: E402
from agent.receiver import Receiver  # noqa: E402

PROCESSES = 8
BUDGET_CORE_SHARE, BUDGET_BYTES = 0.01, 80 << 20
SENDER = """
import socket, sys, time
place, rank, period, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3]), float(sys.argv[4])
data = sys.stdin.buffer.read()
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM); s.connect(place); s.setblocking(False)
start = time.monotonic() + period * int(rank) / 8; n = dropped = 0
while (due := start + n * period) < start + seconds:
    time.sleep(max(0, due - time.monotonic()))
    try:
        s.send(data.replace(b"KEY", b"%s-%d" % (rank.encode(), n)))
    except BlockingIOError:
        dropped += 1
    n += 1
print(n, dropped)
"""


def cpu_seconds(pid: int) -> float:
    """Processor time of a process, all threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def peak_bytes(pid: int) -> int:
    """Largest resident memory of a process so far."""
    line = next(x for x in Path(f"/proc/{pid}/status").read_text().splitlines() if x.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def start_agent(folder: Path, url: str) -> subprocess.Popen[bytes]:
    """An agent with everything at its defaults but the addresses and the rate that one process may send at."""
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from pathlib import Path\nfrom replaywatch.agent.options import AgentOptions\n"
        "from replaywatch.agent.serve import run\n"
        "run(AgentOptions(socket=Path(sys.argv[2]), spool_dir=Path(sys.argv[3]), collector_url=sys.argv[4],\n"
        "    listen='127.0.0.1:0', frames_per_second=1000.0))\n"
    )
    place = folder / "agent.sock"
    agent = subprocess.Popen([sys.executable, "-c", code, str(ROOT / "agent"), str(place), str(folder / "spool"), url])
    while not place.exists():
        time.sleep(0.05)
    time.sleep(1)
    return agent


def machine() -> dict[str, str]:
    """What the figures were measured on; `devices` as the agent's own reading of NVML says."""
    from replaywatch.agent.devices import Nvml

    reading = Nvml().read()
    model = next((s for s in Path("/proc/cpuinfo").read_text().splitlines() if s.startswith("model name")), "")
    return {
        "cores": str(os.cpu_count()),
        "cpu": model.partition(":")[2].strip(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "devices": ", ".join(str(d.model) for d in reading.devices) or f"none ({reading.blind})",
    }


def measure(windows_per_second: float, seconds: float) -> dict[str, float]:
    """What one load cost."""
    with tempfile.TemporaryDirectory(prefix="rw-") as folder, Receiver() as receiver:
        agent = start_agent(Path(folder), receiver.url)
        period = PROCESSES / windows_per_second
        arguments = [str(Path(folder) / "agent.sock"), "", str(period), str(seconds)]
        began, before = time.monotonic(), cpu_seconds(agent.pid)
        senders = []
        for rank in range(PROCESSES):
            arguments[1] = str(rank)
            sender = subprocess.Popen(
                [sys.executable, "-c", SENDER, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
            assert sender.stdin is not None
            sender.stdin.write(frame("KEY", window(rank, rank=rank)))
            sender.stdin.close()
            senders.append(sender)
        counts = [s.stdout.read().split() for s in senders if s.stdout is not None]
        share = (cpu_seconds(agent.pid) - before) / (time.monotonic() - began)
        sent, dropped = (sum(int(c[i]) for c in counts) for i in (0, 1))
        deadline = time.monotonic() + 15
        while len(receiver.windows) < sent - dropped and time.monotonic() < deadline:
            time.sleep(0.1)
        peak = peak_bytes(agent.pid)
        agent.terminate()
        agent.wait()
        return {
            "windows_per_second": windows_per_second,
            "core_share": round(share, 5),
            "peak_bytes": peak,
            "sent": sent,
            "dropped_at_the_socket": dropped,
            "arrived": len(receiver.windows),
        }


def main() -> None:
    """Print both loads beside the budget."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    print(f"budget: {BUDGET_CORE_SHARE:.0%} of a core, {BUDGET_BYTES / 2**20:.0f} MiB at {PROCESSES / 5} windows/s")
    loads = []
    for load in (PROCESSES / 5, 100.0, 1000.0):
        found = measure(load, given.seconds)
        loads.append(found)
        print(
            f"{load:7.1f} windows/s: {found['core_share']:7.2%} of a core, "
            f"{found['peak_bytes'] / 2**20:5.1f} MiB peak; "
            f"sent {found['sent']}, dropped at the socket {found['dropped_at_the_socket']}, "
            f"arrived {found['arrived']}",
            flush=True,
        )
    if given.json is not None:
        when = datetime.now(timezone.utc).strftime("%Y-%m-%d")
        told = {"measured": when, "machine": machine(), "seconds": given.seconds, "loads": loads}
        given.json.write_text(json.dumps(told, indent=2) + "\n")


if __name__ == "__main__":
    main()
