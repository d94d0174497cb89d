"""What the first traced stretch of a process leaves behind, from recordings of live processes (tests/data/live).

    python tests/bench/bench_attached.py [--json docs/data/attached_cost.json]

The load of these recordings swings with a period of 20 s, and their first stretch runs 3 s after the work began. So the
two seconds before it are compared with the same two of the next period, in which nothing is traced either.
"""

from __future__ import annotations

import argparse
import gzip
import json
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / name) for name in ("agent",)]

from replaywatch.contract.window import Window  # noqa: E402
from replaywatch.contract.wire import decode  # noqa: E402

LIVE = ROOT / "tests" / "data" / "live"
NAMES = ("healthy", "contention", "host_stopped", "host_busy", "graphs_lost")
PERIOD_S = 20.0
BEFORE_S = (0.6, 2.8)
FIGURES: dict[str, Callable[[Window], float | None]] = {
    "replay on the device, us": lambda w: _middle_us(w.timing.replay),
    "step, us": lambda w: _middle_us(w.timing.step_period),
    "steps per second": lambda w: sum((w.dispatch.steps or {}).values()) / ((w.end_ns - w.start_ns) / 1e9),
}


def _middle_us(histogram: Any) -> float | None:
    return histogram.quantile(0.5) / 1e3 if histogram is not None else None


def compare(name: str) -> dict[str, Any]:
    """One recording: medians before the first stretch and one period later, and how they changed."""
    lines = gzip.decompress((LIVE / f"{name}.jsonl.gz").read_bytes()).splitlines()
    windows = sorted((w for line in lines for w in decode(line).windows), key=lambda w: w.start_ns)
    steps = [w for w in windows if "full" in (w.dispatch.steps or {})]
    begin_ns = steps[0].start_ns
    first_s = min((w.start_ns - begin_ns) / 1e9 for w in windows if w.traced is not None)

    def median(of: Callable[[Window], float | None], since_s: float, until_s: float) -> float:
        inside = (w for w in steps if since_s <= (w.start_ns - begin_ns) / 1e9 < until_s)
        return statistics.median(value for value in map(of, inside) if value is not None)

    row: dict[str, Any] = {"recording": name, "first_stretch_s": round(first_s, 1), "figures": {}}
    for figure, of in FIGURES.items():
        before = median(of, *BEFORE_S)
        after = median(of, BEFORE_S[0] + PERIOD_S, BEFORE_S[1] + PERIOD_S)
        row["figures"][figure] = {"before": round(before, 1), "after": round(after, 1), "ratio": after / before}
    return row


def main() -> None:
    """Print one line per recording and figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    machine = json.loads((LIVE / "situations.json").read_text())[0]["machine"]
    rows = [compare(name) for name in NAMES]
    for row in rows:
        for figure, f in row["figures"].items():
            print(f"{row['recording']:14} {figure:26} {f['before']:8.1f} -> {f['after']:8.1f}  {f['ratio'] - 1:+.1%}")
    if given.json:
        given.json.write_text(json.dumps({"machine": machine, "recordings": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
