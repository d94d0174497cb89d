"""What NVML's counters (GPM) say of loops whose busy share is known from the kernels' own stamps.

    python3 tests/gpu/device_counters.py --json out.json        (a Hopper GPU or later, torch, nvcc, pynvml)

They are read from outside of the process and attach nothing to it. Shape of a row: busy by the stamps, and per cents of
time in which the engine and the multiprocessors worked, and of memory bandwidth.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / name) for name in ("agent", "detectors", "tests/corpus", "tests/gpu")]

METRICS = {"graphics_util": 1, "sm_util": 2, "sm_occupancy": 3, "dram_bw_util": 10}
SECONDS = 2.0


class Counters:
    """Two samples of GPM and what lies between them."""

    def __init__(self, uuid: str) -> None:
        import pynvml

        self.nvml = pynvml
        pynvml.nvmlInit()
        self.device = pynvml.nvmlDeviceGetHandleByUUID(uuid)
        self.supported = bool(pynvml.nvmlGpmQueryDeviceSupport(self.device).isSupportedDevice)
        self.samples = [pynvml.nvmlGpmSampleAlloc() for _ in range(2)]

    def read(self, at: int) -> None:
        """Take the first or the second sample."""
        self.nvml.nvmlGpmSampleGet(self.device, self.samples[at])

    def between(self) -> dict[str, float]:
        """The metrics between the samples, in per cent."""
        wanted = self.nvml.c_nvmlGpmMetricsGet_t()
        wanted.version, wanted.numMetrics = self.nvml.NVML_GPM_METRICS_GET_VERSION, len(METRICS)
        wanted.sample1, wanted.sample2 = self.samples
        for at, number in enumerate(METRICS.values()):
            wanted.metrics[at].metricId = number
        self.nvml.nvmlGpmMetricsGet(wanted)
        return {name: float(wanted.metrics[at].value) for at, name in enumerate(METRICS)}


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    import torch
    from against_kineto import Loop
    from against_stamps import WORK, Stamps, compile_stamped, of_intervals, stepper
    from decoder import DecodeLoop
    from machine import describe_machine

    answer: dict[str, Any] = {"machine": describe_machine("cuda"), "seconds": SECONDS, "rows": []}
    counters = Counters(f"GPU-{torch.cuda.get_device_properties(0).uuid}")
    answer["supported"] = counters.supported
    decode = DecodeLoop(8)
    with tempfile.TemporaryDirectory() as folder:
        stamps = Stamps(str(compile_stamped(Path(folder))))
        steps = {name: stepper(stamps, work) for name, work in WORK.items()}
        steps |= {f"a decoder, {mode}": decode.stepper(mode) for mode in ("graph", "eager")}
        for name, step in steps.items():
            stamps.clear()
            loop = Loop(step)
            try:
                time.sleep(0.3)
                counters.read(0)
                time.sleep(SECONDS)
                counters.read(1)
            finally:
                loop.stop()
            seen = stamps.read(0, 1 << 62)
            row = {"loop": name, "busy_by_stamps": of_intervals(seen)["busy"] if len(seen) > 1 else None}
            row |= counters.between()
            answer["rows"].append(row)
            print(json.dumps(row), flush=True)
            if given.json:
                given.json.write_text(json.dumps(answer, indent=1) + "\n")


if __name__ == "__main__":
    main()
