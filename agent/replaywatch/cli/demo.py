"""`replaywatch demo`"""

from __future__ import annotations

import argparse
import shutil
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from replaywatch.demo.scenario import Scenario
    from replaywatch.demo.stage import Stage

ONCE_SECONDS = 60.0
REFRESH_SECONDS = 1.0
_STYLE = {"healthy": "bold green", "page": "bold red", "warn": "bold yellow", "info": "bold blue"}


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments."""
    parser.add_argument("--host", default="127.0.0.1", help="address of the page (default: 127.0.0.1)")
    parser.add_argument("--port", type=int, default=0, help="port of the page (default: a free one)")
    parser.add_argument("--once", action="store_true", help="end as soon as every workload has its verdict")
    parser.add_argument("--seconds", type=float, help="end after so many seconds")


def main(arguments: argparse.Namespace) -> int:
    """Run the stage until interrupted, or once."""
    from rich.console import Console

    from replaywatch.demo.scenario import load_scenarios
    from replaywatch.demo.stage import Stage

    console = Console(highlight=False)
    scenarios = load_scenarios()
    with Stage(scenarios, arguments.host, arguments.port) as stage:
        _introduce(console, scenarios, stage)
        try:
            return _watch(console, stage, scenarios, arguments)
        except KeyboardInterrupt:
            console.print("stopping")
            return 0


def _introduce(console: Console, scenarios: tuple[Scenario, ...], stage: Stage) -> None:
    origin = scenarios[0].origin if scenarios else {}
    machine = ", ".join(origin[k] for k in ("gpu", "driver", "engine", "recorded") if k in origin)
    console.print(f"Recordings of a real GPU ({machine}), played through a real agent and collector.")
    for scenario in scenarios:
        console.print(f"  {scenario.pod}: {scenario.what}")
    console.print(f"\npage      {stage.url}/\nmetrics   {stage.metrics_url}\n")
    if shutil.which("nvidia-smi"):
        console.print("This machine has an NVIDIA GPU. To watch your own process, see `replaywatch run --help`;")
        console.print("for a small live decoder: replaywatch run -- python -m replaywatch.demo.live eager\n")


def _watch(console: Console, stage: Stage, scenarios: tuple[Scenario, ...], arguments: argparse.Namespace) -> int:
    """Show the table until the end that was asked for; exit status 1 when --once did not get its verdicts."""
    from rich.live import Live

    start = time.monotonic()
    patience = ONCE_SECONDS if arguments.once else arguments.seconds
    with Live(console=console, auto_refresh=False, transient=arguments.once) as live:
        while True:
            workloads = stage.workloads()
            table = verdict_table(workloads)
            live.update(table, refresh=True)
            elapsed = time.monotonic() - start
            if arguments.once and all_judged(workloads, scenarios):
                break
            if patience is not None and elapsed >= patience:
                break
            time.sleep(REFRESH_SECONDS)
    if not arguments.once:
        return 0
    console.print(table)
    if not all_judged(workloads, scenarios):
        console.print(f"not every workload had its verdict within {ONCE_SECONDS:.0f} s")
        return 1
    console.print(f"{len(workloads)} workloads judged after {time.monotonic() - start:.0f} s")
    return 0


def all_judged(workloads: list[dict[str, Any]], scenarios: tuple[Scenario, ...]) -> bool:
    """Whether every scenario's pod is healthy or has a finding."""
    judged = {w["workload"]["pod"] for w in workloads if w["verdict"] in ("healthy", "finding")}
    return {s.pod for s in scenarios} <= judged


def verdict_table(workloads: list[dict[str, Any]]) -> Table:
    """One block a workload, worst first as the collector gives them."""
    from rich.table import Table

    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for w in workloads:
        word = w["severity"] if w["verdict"] == "finding" else w["verdict"]
        style = _STYLE.get(word, "dim")
        table.add_row(f"[{style}]{word.upper().replace('_', ' ')}[/]", f"[bold]{w['workload']['pod']}[/]")
        for name, text in _story(w):
            table.add_row(f"[dim]  {name}[/]", text)
        table.add_row("", "")
    return table


def _story(w: dict[str, Any]) -> list[tuple[str, str]]:
    """What, cost, cause and change of the worst fault; the step time of a healthy workload."""
    faults = [f for f in w.get("findings", []) if f["is_fault"]]
    step = w["recent"]["step_us"]
    if not faults:
        return [("step", f"{step / 1000:.2f} ms, replayed")] if step and w["verdict"] == "healthy" else []
    worst = faults[0]
    rows = [("what", worst["title"])]
    if cost := worst.get("cost"):
        rows.append(
            ("cost", f"{cost['ratio']:.0%} of the time ({cost['low']:.0%} to {cost['high']:.0%}) is recoverable")
        )
    if worst["causes"]:
        rows.append(("cause", worst["causes"][0]["text"]))
    if worst["remedy"]:
        rows.append(("change", worst["remedy"]))
    return rows
