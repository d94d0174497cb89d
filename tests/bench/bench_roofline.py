"""What eager and piecewise steps are said to cost without a trace, beside what was measured.

python tests/bench/bench_roofline.py
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / name) for name in ("agent", "detectors", "tests")]

from detectors.test_roofline import MEASURED, estimate  # noqa: E402

# Of the measured runs: prompts of 16 tokens and up to 128 more, half of them on average.
CONTEXT = 80


def main() -> None:
    """Print one row per measured case, as a table of the documentation."""
    print("| batch | mode | step | as full graphs | measured share | told | interval | where the context is told |")
    print("|---|---|---|---|---|---|---|---|")
    for batch, mode, step_ms, graph_ms in MEASURED:
        told = estimate(step_ms, batch, mode)
        known = estimate(step_ms, batch, mode, context=CONTEXT)
        intervals = f"{told.low:.0%} to {told.high:.0%} | {known.ratio:.1%}, {known.low:.0%} to {known.high:.0%}"
        shares = f"{1 - graph_ms / step_ms:.1%} | {told.ratio:.1%} | {intervals}".replace("%", " %")
        print(f"| {batch} | {mode} | {step_ms:.2f} ms | {graph_ms:.2f} ms | {shares} |")


if __name__ == "__main__":
    main()
