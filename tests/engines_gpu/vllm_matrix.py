"""Real vLLM on a GPU, in the ways people start it: does the probe say what each does, why, and at what cost?

    python tests/engines_gpu/vllm_matrix.py --out OUT --budget-s 520 [--only default eager ceiling32 ...]
        [--site FOLDER of an unpacked vLLM] [--serve] [--tensor-parallel 2] [--pairs 12]

One engine after another, each in a process of its own; stops starting new ones when the budget runs out. Writes into
OUT: summary.json, and one archive per run with frames (JSON lines in the wire form) and logs. Truth is the time per
token in alternating blocks, probe off and on, and of the default engine against the others at the same batch.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(ROOT / name) for name in ("agent", "detectors", "tests")]

from engines_gpu.frames import Receiver, counted, is_decode, judgements  # noqa: E402
from engines_gpu.scenarios import (  # noqa: E402
    DRAFT,
    DRAFT_LAYERS,
    ENGINE,
    SCENARIOS,
    Scenario,
    write_adapter,
    write_model,
    write_plugin,
)
from engines_gpu.served import Server  # noqa: E402
from gpu.gpm import Readings  # noqa: E402
from replaywatch.contract.histogram import merge_histograms  # noqa: E402

START_S = 150.0
LEAST_S = 60.0


def environment(
    work: Path, socket: Path, site: str | None, more: Mapping[str, str], *, without_kernels: bool = False
) -> dict[str, str]:
    """Environment of an engine: offline, its caches in one place, the probe found like an installed one."""
    paths = [str(write_plugin(work / "plugin")), str(ROOT / "agent"), *([site] if site else [])]
    inherited = os.environ.get("PYTHONPATH")
    return {
        **os.environ, "PYTHONPATH": os.pathsep.join([*paths, *([inherited] if inherited else [])]),
        "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1",
        "VLLM_CACHE_ROOT": os.environ.get("VLLM_CACHE_ROOT", str(work / "cache")),
        "VLLM_USE_FLASHINFER_SAMPLER": "0",  # FlashInfer is not in the bundle
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0", "REPLAYWATCH_PROBE_SOCKET": str(socket),
        "REPLAYWATCH_PROBE_WINDOW_SECONDS": "1",
        "REPLAYWATCH_PROBE_KERNELS": "0" if without_kernels else "1",
        "REPLAYWATCH_PROBE_TRACE_EVERY_SECONDS": "3",
        "REPLAYWATCH_PROBE_BUDGET_RATIO": "0.005" if without_kernels else "0.1",  # stretches this dense cost more
        "PYTHONUNBUFFERED": "1", **more,
    }  # fmt: skip


class Matrix:
    """All runs of one call, and what came out of them."""

    def __init__(self, given: argparse.Namespace) -> None:
        self.given = given
        self.out = Path(given.out)
        self.out.mkdir(parents=True, exist_ok=True)
        self.end = time.monotonic() + given.budget_s
        self.work = Path(tempfile.mkdtemp(prefix="matrix-"))
        self.model = write_model(self.work / "model")
        self.runs: list[dict[str, Any]] = []

    def left_s(self) -> float:
        """Seconds of the budget that are left."""
        return self.end - time.monotonic()

    def run_scenario(self, scenario: Scenario, more: Mapping[str, Any], label: str) -> None:
        """One engine in a process of its own."""
        if self.left_s() < LEAST_S:
            self._keep({"name": label, "skipped": "the budget is spent"})
            return
        folder = self.work / label
        folder.mkdir()
        receiver = Receiver(folder / "agent.sock", folder / "frames.jsonl")
        multiple = more.get("tensor_parallel_size", 1) > 1
        changed = dict(scenario.environment)
        if multiple:
            changed["VLLM_ENABLE_V1_MULTIPROCESSING"] = "1"
            changed["VLLM_ALLOW_INSECURE_SERIALIZATION"] = "1"  # the probe is switched inside the workers
        options = {"model": str(self.model), **ENGINE, **self._with_draft(scenario.engine), **more}
        command = [
            sys.executable, str(HERE / "engine_run.py"), "--options", json.dumps(options),
            "--batches", *map(str, scenario.batches), "--seconds", str(self.given.seconds),
            "--tokens", str(self.given.tokens), "--pairs", str(self.given.pairs),
        ]  # fmt: skip
        if scenario.adapter:
            command += ["--adapter", str(write_adapter(self.work / "adapter"))]
        begin, activity = time.monotonic(), Readings(first_device())
        code, text = self._run(command, self._environment(receiver.path, changed))
        receiver.close()
        activity.stop()
        (folder / "engine.log").write_text(text)
        result = _result(text)
        run: dict[str, Any] = {"name": label, "seconds": round(time.monotonic() - begin, 1), "code": code}
        if result is None:
            run["failed"] = text[-1500:]
        else:
            run |= result | {"told": [self._told(receiver, scenario, m) for m in result["measured"]]}
            for measured in result["measured"]:  # the stretch ends with a wait of 1.2 s
                measured["device_active"] = activity.mean(measured["since_ns"], measured["until_ns"] - 1_300_000_000)
        run |= _seen(receiver) | {"activity_problem": activity.problem}
        self._keep(run, folder)

    def _environment(self, socket: Path, changed: Mapping[str, str]) -> dict[str, str]:
        without = self.given.without_kernels
        return environment(self.work, socket, self.given.site, changed, without_kernels=without)

    def _with_draft(self, engine: Mapping[str, Any]) -> dict[str, Any]:
        """The engine's options, with the folder of the draft model where they name one."""
        speculative = engine.get("speculative_config", {})
        if speculative.get("model") != DRAFT:
            return dict(engine)
        folder = write_model(self.work / "draft", DRAFT_LAYERS)
        return {**engine, "speculative_config": {**speculative, "model": str(folder)}}

    def run_served(self) -> None:
        """`vllm serve`, its engine core in another process, and requests over HTTP."""
        if self.left_s() < LEAST_S:
            self._keep({"name": "served", "skipped": "the budget is spent"})
            return
        folder = self.work / "served"
        folder.mkdir()
        receiver = Receiver(folder / "agent.sock", folder / "frames.jsonl")
        changed = {"VLLM_ENABLE_V1_MULTIPROCESSING": "1"}
        flags = ["--cudagraph-capture-sizes", "1", "2", "4", "8", "16", "24", "32"]
        server = Server(self.model, self._environment(receiver.path, changed), folder / "engine.log", flags)
        run: dict[str, Any] = {"name": "served", "measured": [], "server_pid": server.process.pid}
        try:
            if server.wait(min(START_S, self.left_s() - 20)):
                for batch in (8, 48):
                    server.complete(batch, 8)
                    time.sleep(1.2)
                    since_ns = time.time_ns()
                    measured = [server.complete(batch, self.given.tokens)]
                    while time.time_ns() - since_ns < self.given.seconds * 1e9:
                        measured.append(server.complete(batch, self.given.tokens))
                    time.sleep(1.2)
                    run["measured"].append({
                        "batch": batch, "since_ns": since_ns, "until_ns": time.time_ns(),
                        "ms_per_token": min(m["ms_per_token"] for m in measured), "errors": measured[-1]["errors"],
                    })  # fmt: skip
            else:
                run["failed"] = "the server did not answer"
        finally:
            server.close()
            receiver.close()
        scenario = SCENARIOS["ceiling32"]
        run["told"] = [self._told(receiver, scenario, m) for m in run["measured"]]
        self._keep(run | _seen(receiver), folder)

    def _run(self, command: list[str], given: dict[str, str]) -> tuple[int, str]:
        with tempfile.TemporaryFile() as log:
            process = subprocess.Popen(command, env=given, stdout=log, stderr=subprocess.STDOUT)
            try:
                code = process.wait(max(10.0, min(self.left_s() - 5, self.given.run_s)))
            except subprocess.TimeoutExpired:
                process.kill()
                code = process.wait()
            log.seek(0)
            return code, log.read().decode(errors="replace")

    def _told(self, receiver: Receiver, scenario: Scenario, measured: Mapping[str, Any]) -> dict[str, Any]:
        """What the probe and the detectors said of one measurement."""
        windows = receiver.windows(measured["since_ns"], measured["until_ns"])
        counts = counted(windows, is_decode)
        judged = judgements(receiver, measured["since_ns"], measured["until_ns"])
        worst = next(iter(judged.values()), None)
        reason = max(counts["fallbacks"], key=counts["fallbacks"].get, default=None)
        return {
            "batch": measured["batch"], **counts, "reason": reason,
            "expected": scenario.expected.get(measured["batch"]),
            "right": bool(counts["steps"]) and scenario.is_right(measured["batch"], reason),
            "verdict": worst.verdict if worst else None, "severity": worst.severity if worst else None,
            "findings": [[f.detector, f.severity, f.title, f.remedy] for f in worst.findings] if worst else [],
            "rho": _estimate(worst), "context_tokens": _context(windows), "between_forwards_ms": _between(windows),
            "processes": sorted({w.workload.pid or 0 for w in windows}),
            "ranks": sorted({w.workload.rank for w in windows if w.workload.rank is not None}),
        }  # fmt: skip

    def _keep(self, run: dict[str, Any], folder: Path | None = None) -> None:
        self.runs.append(run)
        if folder is not None:
            with tarfile.open(self.out / f"{run['name']}.tar.gz", "w:gz") as archive:
                for file in sorted(folder.iterdir()):
                    if file.is_file() and file.stat().st_size < 60 << 20:
                        archive.add(file, f"{run['name']}/{file.name}")
        (self.out / "summary.json").write_text(json.dumps(self.runs, indent=1))
        print(f"--- {run['name']}: {run.get('skipped') or run.get('failed', 'done')[-400:]}", flush=True)

    def table(self) -> str:
        """What was measured beside what was told, one line per run and batch."""
        healthy = {
            r["name"]: {m["batch"]: m["ms_per_token"] for m in r.get("measured", ())}
            for r in self.runs
            if r["name"] in ("default", "tensor_parallel")
        }
        names = ("run", "batch", "ms/token", "lost", "told", "verdict", "rho", "cost", "same")
        lines = ["{:20} {:>5} {:>8} {:>6} {:>22} {:>16} {:>16} {:>26} {}".format(*names)]
        for run in self.runs:
            costs = {c["batch"]: c for c in run.get("compared", ())}
            for measured, told in zip(run.get("measured", ()), run.get("told", ()), strict=False):
                name = "tensor_parallel" if run["name"].startswith("tensor_parallel") else "default"
                ms, fast = measured["ms_per_token"], healthy.get(name, {}).get(measured["batch"])
                lost = f"{max(0.0, 1 - fast / ms):.1%}" if fast else "-"
                cost = costs.get(measured["batch"])
                extra = "{:+.1%} ({:+.1%} to {:+.1%})".format(*(r - 1 for r in cost["interval"])) if cost else "-"
                lines.append(
                    f"{run['name']:20} {measured['batch']:5} {ms:8.3f} {lost:>6} "
                    f"{(told['reason'] or 'full') + ('' if told['right'] else ' WRONG'):>22} "
                    f"{(told['verdict'] or '-') + '/' + (told['severity'] or '-'):>16} {told['rho'] or '-':>16} "
                    f"{extra:>26} {cost['same_tokens'] if cost else '-'}"
                )
        return "\n".join(lines)


def first_device() -> int:
    """The first device that an engine sees, as NVML numbers it."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
    return int(visible) if visible.isdecimal() else 0


def _estimate(judged: Any) -> str | None:
    found = [f.estimate for f in judged.findings if f.estimate] if judged else []
    estimate = found[0] if found else (judged.estimate if judged else None)
    return f"{estimate.ratio:.3f} {estimate.low:.2f}..{estimate.high:.2f}" if estimate else None


def _context(windows: list[Any]) -> float | None:
    """Usual context of a decoded sequence, as the windows tell it."""
    tokens, sequences = (
        sum(getattr(w.dispatch, name) or 0 for w in windows) for name in ("context_tokens", "context_sequences")
    )
    return round(tokens / sequences, 1) if sequences else None


def _between(windows: list[Any]) -> float | None:
    """Median of what the host takes between two forwards, in milliseconds."""
    times = merge_histograms(w.timing.between_forwards for w in windows if w.timing.between_forwards is not None)
    return times.quantile(0.5) / 1e6 if times is not None and times.count else None


def _result(text: str) -> dict[str, Any] | None:
    line = next((line for line in reversed(text.splitlines()) if line.startswith("RESULT ")), None)
    return json.loads(line[len("RESULT ") :]) if line else None


def _seen(receiver: Receiver) -> dict[str, Any]:
    """What came in over the whole run: windows, refused frames, blind spots, cost, configuration."""
    windows = receiver.windows()
    costs = [w.cost for w in windows if w.cost]
    return {
        "windows": len(windows), "refused": receiver.refused[:3],
        "pids": sorted({w.workload.pid or 0 for w in windows}),
        "blind": sorted({f"{b.signal}: {b.reason}" for w in windows for b in w.blind}),
        "observations": sorted({f"{o.kind}: {o.detail}" for w in windows for o in w.observations})[:20],
        "captures": counted_captures(windows),
        "steps_by_part": steps_by_part(windows),
        "own_share": sum(c.hook_ns + c.helper_cpu_ns for c in costs)
        / max(1, sum(w.end_ns - w.start_ns for w in windows if w.cost)),
        "probe_errors": sum(c.errors for c in costs), "dropped": sum(c.frames_dropped for c in costs),
        "configs": [c for b in receiver.batches for c in map(_config, b.configs.values())][-1:],
    }  # fmt: skip


def steps_by_part(windows: list[Any]) -> dict[str, dict[str, int]]:
    """Steps by mode of each part of the model and phase: of target and draft, of decode, prefill and mixed batches."""
    total: dict[str, dict[str, int]] = {}
    for window in windows:
        part = f"{window.workload.component or 'model'}, {window.workload.phase or 'decode'}"
        for mode, n in (window.dispatch.steps or {}).items():
            modes = total.setdefault(part, {})
            modes[mode] = modes.get(mode, 0) + n
    return total


def counted_captures(windows: list[Any]) -> dict[str, int]:
    """Captures by outcome over all windows."""
    total: dict[str, int] = {}
    for window in windows:
        for outcome, n in (window.dispatch.captures or {}).items():
            total[outcome] = total.get(outcome, 0) + n
    return total


def _config(config: Any) -> dict[str, Any]:
    from replaywatch.contract.wire import jsonable

    return dict(jsonable(config))


def main() -> int:
    """Run the scenarios that were asked for, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True)
    parser.add_argument("--site", help="folder of an unpacked vLLM, put on the path of the engines")
    parser.add_argument(
        "--only", nargs="*", default=["default", "eager", "ceiling32", "piecewise"], choices=[*SCENARIOS]
    )
    parser.add_argument("--without-kernels", action="store_true", help="the probe as it is by default: no CUPTI")
    parser.add_argument("--serve", action="store_true", help="also `vllm serve`")
    parser.add_argument("--tensor-parallel", type=int, default=1, help="also the default engine over so many GPUs")
    parser.add_argument("--budget-s", type=float, default=520, help="seconds for everything")
    parser.add_argument("--run-s", type=float, default=200, help="seconds for one engine at most")
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--pairs", type=int, default=40)
    matrix = Matrix(parser.parse_args())
    for name in matrix.given.only:
        matrix.run_scenario(SCENARIOS[name], {}, name)
    if matrix.given.serve:
        matrix.run_served()
    if matrix.given.tensor_parallel > 1:
        more = {"tensor_parallel_size": matrix.given.tensor_parallel}
        matrix.run_scenario(SCENARIOS["default"], more, "tensor_parallel")
        matrix.run_scenario(SCENARIOS["eager"], more, "tensor_parallel_eager")
    table = matrix.table()
    (matrix.out / "table.txt").write_text(table + "\n")
    print(table)
    told = [t for r in matrix.runs for t in r.get("told", ())]
    return 0 if told and all(t["right"] for t in told) and not any("failed" in r for r in matrix.runs) else 1


if __name__ == "__main__":
    sys.exit(main())
