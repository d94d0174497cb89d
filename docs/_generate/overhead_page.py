"""The page on what watching costs, from measurements that a command printed and somebody committed to docs/data."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

INTRODUCTION: Final = """\
# Overhead

What it costs to be watched. Every figure in a table below was printed by a command on the machine that is named; the
page is made from its output by `python docs/_generate/pages.py`. Measure your own:

```console
python3 tests/bench/bench_probe.py --json docs/data/bench_probe.json
```

## The budget

The probe may take 0.5 % of the process's time (`budget-ratio`, see [options](options.md)) and throttles itself: it
times fewer replays and traces more rarely before it passes that. Where replays come so often that this is not enough,
it only counts them, at about half of the hook's cost, and says that launch times are not seen until fewer come. What a
hook costs is measured on the host itself: for replays by practice, in a loop, for steps in place, on every 31st, as far
as a hook can [time itself](engines.md#what-it-costs). What an engine's steps take cannot be saved, since each is told;
sampling and the rest of the probe's thread have two fifths of the budget whatever that is, so a service of very short
steps may pay more than 0.5 %, which the probe's metrics show.

In a loop a hook's code lies in the processor's caches; between two steps of an engine it does not, and the same hook on
a replay takes 4 to 7.5 us instead of 0.3 to 1 (`python tests/bench/bench_hook.py`, no GPU needed). Where the host waits
for the device that is hidden, as in the loops below. Where the device waits for the host, it adds to the step: 5 us and
what an [engine's hook](engines.md#what-it-costs) takes.

- **Always on**: a wrapper or torch's own hook around capture and replay, counted in place; one window of a few
  kilobytes leaves every five seconds over a unix datagram socket that never blocks. What does not fit is dropped and
  counted.
- **One replay in 64** is timed with a pair of CUDA events, at most fifty a second.
- **Kernels are not traced by default.** With `REPLAYWATCH_PROBE_KERNELS=1` 100 ms in every 60 s are, without holding a
  CUPTI subscription, and never during or after a `torch.profiler` run. Inside such a stretch steps are slower: the
  tables have a row with a stretch in every short block, and beside it what that is at 100 ms in 60 s. That is not all:
  CUPTI stays attached after the first stretch. Pairs of blocks in one process cannot show what that costs, since both
  have it; see [what kernel tracing leaves behind](#what-kernel-tracing-leaves-behind). Switch it on for one replica, as
  long as you need it, and start that replica again afterwards.

What happens more rarely than a block of the benchmark lasts is made to happen in every block, and scaled: the last
column of the first table. Where eager steps swing with the host, the median pair says more than the mean.

"""
NONE: Final = """\
## Measured

No measurement is committed yet: `docs/data/bench_probe.json` is missing. Figures from development, on one H200
(torch 2.11, CUDA 13.0), before there was a benchmark: a Python wrapper around `CUDAGraph.replay` adds 0.64 us to a
replay; a pair of CUDA events adds 11 to 12 us to the replay that it times; a decode step inside a traced stretch is
5.3 % longer with graphs, about 4 to 8 % without.
"""


def page(data: Path) -> str:
    """The whole page, with or without measurements."""
    parts: tuple[tuple[str, Callable[[dict[str, Any]], str]], ...] = (
        ("bench_probe.json", measured), ("attached_cost.json", left_behind), ("attach-2026-11-30.json", no_cheaper_way),
        ("detach-2026-11-30.json", no_way_back), ("against_stamps-2026-11-30.json", beside_stamps),
    )  # fmt: skip
    found = [make(json.loads((data / name).read_text())) for name, make in parts if (data / name).is_file()]
    return INTRODUCTION + ("" if (data / "bench_probe.json").is_file() else NONE) + "".join(found)


def no_cheaper_way(results: dict[str, Any]) -> str:
    """What each use of CUPTI leaves behind. Shape: what tests/gpu/attach.py writes with --json."""
    parts = [
        "\n### No cheaper way in\n",
        "Which call leaves that? The first: handing CUPTI buffers is enough, whatever is recorded with them. A",
        "subscription that is given up at once left it on the graph of before. One process each, a step that waits for",
        "its replay, before and after ({gpu}, driver {driver}, CUDA {cuda}):".format(**results["machine"]),
        "`python tests/gpu/attach.py`. Nothing of CUPTI is touched by default.\n",
        "| what was done and undone | a replayed step | of a graph captured afterwards | the same read on the device |",
        "|---|---|---|---|",
    ]
    for row in results["ways"]:
        cells = (
            f"{row['before'][n]:.{digits}f} to {row['after'][n]:.{digits}f} {unit} "
            f"({row['after'][n] / row['before'][n] - 1:+.1%})".replace("%", " %")
            for n, digits, unit in (("old_step_ms", 3, "ms"), ("new_step_ms", 3, "ms"), ("old_device_us", 0, "us"))
        )
        parts.append(f"| {row['way']} | " + " | ".join(cells) + " |")
    return "\n".join(parts) + "\n"


def beside_stamps(results: dict[str, Any]) -> str:
    """How true a traced stretch is. Shape: what tests/gpu/against_stamps.py writes with --json."""
    parts = [
        "\n## How true a traced stretch is\n",
        "Two tracers cannot record the same moment, and each changes what it watches. So every kernel of these loops",
        "stamps the device's clock as it begins and ends, whoever watches; each tracer is compared with the stamps of",
        "its own stretch, and the two with one another by what they add to those, kernel by kernel",
        "({gpu}, driver {driver}, CUDA {cuda}):".format(**results["machine"]),
        "`python tests/gpu/against_stamps.py`. A record is longer than the kernel's own stamps, by what lies around",
        "its first and last instruction; both tracers have that alike. Gaps between short kernels are shorter",
        "than a microsecond: there a small part of the time is a large part of the gap.\n",
        "| loop | figure | ours, to its stamps | Kineto, to its stamps | ours to Kineto, same work | points |",
        "|---|---|---|---|---|---|",
    ]
    for row in results["loops"]:
        for name in ("busy", "idle", "kernel_us"):
            f = row["figures"][name]
            told = (f"{told:.3f} ({_percent(r)})" for told, r in zip(f["told"], f["to_stamps"], strict=True))
            points = "" if name == "kernel_us" else f"{100 * f['told'][0] * (1 - 1 / f['ours_to_kineto']):+.1f}"
            between = f"{_percent(f['ours_to_kineto'])} | {points}"
            parts.append(f"| {row['loop']} | {name} | " + " | ".join(told) + f" | {between} |")
    if results.get("what"):
        parts += ["", f"As recorded: {results['what']}."]
    return "\n".join(parts) + "\n"


def own_time(rows: list[dict[str, Any]]) -> list[str]:
    """The probe's own account. Shape: `own_time` of tests/bench/bench_probe.py."""
    parts = [
        "",
        "What no pair of blocks can show on a host that swings by per cents, adds up: hooks, the probe's thread and",
        "the events that it records, as a share of the loop's time, at the defaults.",
        "",
        "| loop | steps | hooks | thread | timed replays | share |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        hooks, thread = row["hook_ns"] / 1e6, row["helper_cpu_ns"] / 1e6
        told = f"{hooks:.1f} ms | {thread:.1f} ms | {row['timed_replays']} | {row['share'] * 100:.3f} %"
        parts.append(f"| {row['loop']} | {row['steps']} | {told} |")
    return parts


def no_way_back(results: dict[str, Any]) -> str:
    """What became of processes that detached CUPTI. Shape: calls of tests/gpu/detach.py, written with --json."""
    parts = [
        "\n### No way back\n",
        "`cuptiFinalize` would detach CUPTI. Here it takes the process with it: what runs after it fails with",
        "an unspecified launch failure, wherever it is called from, with graphs captured before. torch.profiler's own",
        "teardown (`TEARDOWN_CUPTI=1`) leaves replays right and as slow as before, and the profile after it without",
        "kernels, with windows of ours and without: `python tests/gpu/detach.py`.\n",
        "| detached by | a replayed step, before | and after | the same read on the device | profiles, kernels | |",
        "|---|---|---|---|---|---|",
    ]
    rows = {row["way"]: row for call in results["calls"] for row in call["ways"]}
    parts += [_way(row) for row in rows.values() if row["way"] != "none"]
    return "\n".join(parts) + "\n"


WAYS: Final = {
    "never": "nobody", "idle": "`cuptiFinalize`, device idle", "call": "at the exit of a runtime call",
    "call, driver": "at the exit of a driver call",
    "call, held": "at the exit of a CUDA call, subscribed before the stretch",
    "busy": "at the exit of a runtime call, under load", "busy, driver": "at the exit of a driver call, under load",
    "teardown": "torch.profiler, no window of ours before",
    "teardown after a stretch": "torch.profiler, after a window",
}  # fmt: skip


def _way(row: dict[str, Any]) -> str:
    name = WAYS[row["way"]]
    if row.get("exit"):
        return f"| {name} | | | | | what runs next fails: {row['error']} |"
    before = row["rounds"][0]["before"]
    after = row.get("after_profiles") or row["rounds"][-1]
    profiles = " and ".join(f"{n:,}" for n in row["profiles"])
    step = f"{before['old_step_ms']:.3f} ms | {after['old_step_ms']:.3f} ms"
    device = f"{before['old_device_us']:.0f} to {after['old_device_us']:.0f} us"
    return f"| {name} | {step} | {device} | {profiles} | results right |"


def left_behind(results: dict[str, Any]) -> str:
    """What the first traced stretch leaves behind. Shape: what tests/bench/bench_attached.py writes with --json."""
    parts = [
        "\n## What kernel tracing leaves behind\n",
        "Processes whose load swings every 20 s, before their first traced stretch and one period later, while nothing",
        "is traced ({gpu}, driver {driver}, CUDA {cuda}): `python tests/bench/bench_attached.py`.".format(
            **results["machine"]
        ),
        "With CUPTI attached a launch takes longer before its first node begins: replays that queue behind one another",
        "stay as long as they were, and a step that waits for its replay becomes longer (below). On another day",
        "torch.profiler left the same: a decode step on graphs went from 3.03 to 3.27 ms, an eager one from 12.8",
        "to 16.3 ms (`none_after_profiler_us` in `tests/data/corpus/profiler_cost.json`).\n",
    ]
    names = list(results["recordings"][0]["figures"])
    parts += ["| process | " + " | ".join(names) + " |", "|---|" + "---|" * len(names)]
    for row in results["recordings"]:
        cells = (
            f"{f['before']:.0f} to {f['after']:.0f} ({(f['ratio'] - 1) * 100:+.1f} %)" for f in row["figures"].values()
        )
        parts.append(f"| {row['recording']} | " + " | ".join(cells) + " |")
    return "\n".join(parts) + "\n"


def measured(results: dict[str, Any]) -> str:
    """The tables. Shape: what tests/bench/bench_probe.py writes with --json."""
    parts = ["## Measured\n", *_machine(results["machine"]), ""]
    if "import_ms" in results:
        parts.append(
            f"Import and start in a fresh process: {results['import_ms']:.1f} ms, {results['import_mb']:.1f} MB."
        )
    if "replay_hook_us" in results:
        estimate, low, high = results["replay_hook_us"]
        parts.append(f"The hook on a replay of one kernel: {estimate:.2f} us (95 % interval {low:.2f} to {high:.2f}).")
    parts += ["", "Step time with the probe against without, in pairs of short blocks; 95 % intervals.", ""]
    parts += _table(results.get("loops", []), "mean_by_default")
    parts += own_time(results["own_time"]) if "own_time" in results else []
    parts += ["", f"As recorded: {results['what']}."] if results.get("what") else []
    others = [row for row in results.get("others", []) if "skipped" not in row]
    if others:
        parts += ["", "## Other tools, same machine, same run", ""]
        parts += _table(others, None)
    skipped = [f"{row['what']} ({row['skipped']})" for row in results.get("others", []) if "skipped" in row]
    if skipped:
        parts += ["", f"Not measured: {'; '.join(skipped)}."]
    if results.get("published"):
        parts += ["", "## Published by others", "", "Their figures, on their machines; not measured here.", ""]
        parts += ["| tool | what | published |", "|---|---|---|"]
        parts += [f"| {name} | {what} | {figure} |" for name, what, figure in results["published"]]
    return "\n".join(parts) + "\n"


def _machine(machine: dict[str, Any]) -> list[str]:
    return ["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in machine.items())]


def _table(rows: list[dict[str, Any]], by_default: str | None) -> list[str]:
    extra = " mean, as often as by default |" if by_default else ""
    lines = [
        f"| loop | what | step | mean | median pair | 99th percentile |{extra}",
        "|---|---|---|---|---|---|" + ("---|" if extra else ""),
    ]
    for row in rows:
        figures = " | ".join(_change(row.get(name)) for name in ("mean", "median", "p99"))
        line = f"| {row['loop']} | {row['what']} | {row['step_ms']:.3f} ms | {figures} |"
        if by_default:
            line += f" {_change(row.get(by_default))} |"
        lines.append(line)
    return lines


def _percent(ratio: float) -> str:
    """A ratio as a change in percent."""
    return f"{(ratio - 1) * 100:+.2f} %"


def _change(ratio: list[float] | None) -> str:
    """A ratio with its interval as a change in percent."""
    if ratio is None:
        return ""
    estimate, low, high = ((r - 1) * 100 for r in ratio)
    return f"{estimate:+.2f} % ({low:+.2f} to {high:+.2f})"
