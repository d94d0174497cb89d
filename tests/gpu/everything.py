"""All measurements on GPUs in one go, into one folder: what a release must show again.

    python3 tests/gpu/everything.py --out OUT [--budget-s 1500] [--vllm SITE] [--server SITE] [--only bench soak ...]

The benchmark runs alone on the machine. After it there is one lane a device, whose steps run one after another; a lane
takes the next step that nobody has begun. A step that the budget does not hold any more is left out, and told. OUT gets
a log and a file of results for each step, and summary.json with how each ended. The last line says it in short.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
OUT = "OUT"


@dataclass(frozen=True)
class Step:
    """A command, the seconds that it takes at most, and whether it needs the machine for itself.

    `needs`: the option without which it is left out, whose folder goes on the path. OUT stands for the step's results.
    """

    name: str
    command: tuple[str, ...]
    seconds: float
    is_alone: bool = False
    needs: str = ""


def _script(path: str, *arguments: str) -> tuple[str, ...]:
    return (sys.executable, str(ROOT / "tests" / path), *arguments)


def _vllm(*arguments: str) -> tuple[str, ...]:
    return _script("engines_gpu/vllm_matrix.py", "--out", OUT, "--without-kernels", *arguments)


STEPS = (
    Step("bench", _script("bench/bench_probe.py", "--json", OUT, "--share", "0.75"), 600, is_alone=True),
    Step("soak", _script("gpu/soak.py", "--seconds", "604", "--alone-seconds", "12", "--json", OUT), 680),
    Step("stamps", _script("gpu/against_stamps.py", "--json", OUT), 240),
    Step("tests", (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "gpu",
                   str(ROOT / "tests/gpu/test_probe_gpu.py")), 180),
    Step("profiles", _script("gpu/after_profiles.py", "--json", OUT), 280),
    Step("vllm", _vllm("--only", "default", "piecewise", "--pairs", "12", "--budget-s", "300"), 305, needs="vllm"),
    Step("drafts", _vllm("--only", "draft", "ngram", "--pairs", "10", "--budget-s", "300"), 305, needs="vllm"),
    Step("counters", _script("gpu/device_counters.py", "--json", OUT), 150, needs="server"),
    Step("windows", _script("gpu/soak.py", "--profiles", "last", "--seconds", "200", "--alone-seconds", "12",
                            "--json", OUT), 300),
    Step("injected", _script("gpu/injected.py", "--json", OUT), 60),
    Step("demo", _script("gpu/live_demo.py", "--seconds", "42", "--json", OUT), 330, needs="server"),
    Step("queued", _script("gpu/queued.py", "--json", OUT), 90),
    Step("attach", _script("gpu/attach.py", "--json", OUT), 260),
    Step("kineto", _script("gpu/against_kineto.py", "--json", OUT, "--rounds", "5"), 200),
    Step("silent", _script("gpu/silent.py", "--json", OUT), 440),
)  # fmt: skip


class Pass:
    """The steps that are left, and what became of the others."""

    def __init__(self, steps: list[Step], out: Path, end_s: float, folders: dict[str, str | None]) -> None:
        self.out, self.end_s, self.folders = out, end_s, folders
        self._left, self._lock = list(steps), threading.Lock()
        self.told: list[dict[str, Any]] = []

    def take(self, is_alone: bool) -> Step | None:
        """The next step that fits into the budget; those that do not are told."""
        with self._lock:
            for step in [s for s in self._left if s.is_alone == is_alone]:
                self._left.remove(step)
                if step.needs and not self.folders.get(step.needs):
                    self._tell(step, skipped=f"--{step.needs} was not given")
                elif step.seconds > self.end_s - time.monotonic():
                    self._tell(step, skipped="the budget does not hold it any more")
                else:
                    return step
        return None

    def run(self, step: Step, device: int) -> None:
        """One step on one device."""
        results = self.out / (step.name if "engines_gpu" in " ".join(step.command) else f"{step.name}.json")
        command = [str(results) if part == OUT else part for part in step.command]
        begin_s = time.monotonic()
        with (self.out / f"{step.name}.log").open("wb") as log:
            process = subprocess.Popen(
                command, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, cwd=ROOT,
                env=self._environment(step, device), start_new_session=True,
            )  # fmt: skip
            try:
                code: int | str = process.wait(step.seconds)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)  # with all that it started
                process.wait()
                code = "too long"
        with self._lock:
            self._tell(step, code=code, device=device, seconds=round(time.monotonic() - begin_s, 1))

    def _environment(self, step: Step, device: int) -> dict[str, str]:
        folder = self.folders.get(step.needs) if step.needs else None
        paths = [str(ROOT / "agent"), str(ROOT / "detectors"), os.environ.get("PYTHONPATH"), folder]
        if step.needs == "vllm":  # the engines' path is put together by the step
            paths = [folder]
        return {
            **os.environ, "CUDA_VISIBLE_DEVICES": str(device), "PYTHONPATH": os.pathsep.join(p for p in paths if p),
        }  # fmt: skip

    def _tell(self, step: Step, **how: Any) -> None:
        self.told.append({"step": step.name, **how})
        print(json.dumps(self.told[-1]), flush=True)
        (self.out / "summary.json").write_text(json.dumps(self.told, indent=1) + "\n")

    def lane(self, device: int) -> None:
        """Steps on one device until none is left."""
        while (step := self.take(is_alone=False)) is not None:
            self.run(step, device)


def main() -> int:
    """Run the steps; 1 where one of them failed or was left out."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--budget-s", type=float, default=1500.0, help="seconds for everything (default: 1500)")
    parser.add_argument("--devices", type=int, nargs="+", default=[0], help="a lane each (default: 0)")
    parser.add_argument("--vllm", help="folder of an unpacked vLLM, for its engines' steps")
    parser.add_argument("--server", help="folder of the server's packages, for the demo")
    parser.add_argument("--only", nargs="+", choices=[s.name for s in STEPS], default=[s.name for s in STEPS])
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    steps = [s for s in STEPS if s.name in given.only]
    whole = Pass(steps, given.out.resolve(), time.monotonic() + given.budget_s, vars(given))
    while (step := whole.take(is_alone=True)) is not None:
        whole.run(step, given.devices[0])
    lanes = [threading.Thread(target=whole.lane, args=(device,)) for device in given.devices]
    for thread in lanes:
        thread.start()
    for thread in lanes:
        thread.join()
    bad = [told["step"] for told in whole.told if told.get("code") != 0]
    print("all went well" if not bad else f"failed or left out: {', '.join(bad)}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
