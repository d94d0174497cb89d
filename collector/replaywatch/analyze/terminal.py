"""The report for a terminal: verdict first, then cost, cause, remedy, evidence."""

from __future__ import annotations

from typing import Final

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from replaywatch.analyze.result import Report, Result
from replaywatch.analyze.schema import step_us
from replaywatch.contract.verdict import Estimate, EvidenceItem, Finding
from replaywatch.detectors.readings import percent

_STYLE: Final = {
    "page": ("PAGE", "bold white on red"),
    "warn": ("WARN", "bold black on yellow"),
    "info": ("INFO", "bold white on blue"),
    "healthy": ("HEALTHY", "bold black on green"),
    "warming_up": ("WARMING UP", "bold black on cyan"),
    "blind": ("BLIND", "bold white on magenta"),
    "unreadable": ("UNREADABLE", "bold white on red"),
}
MAX_EVIDENCE: Final = 6


def print_report(report: Report, console: Console) -> None:
    """Write a report, worst first, then what could not be read, then one line for the whole."""
    for result in report.results:
        _print_result(result, console)
    for bad in report.unreadable:
        console.print(_headline("unreadable", bad.source))
        console.print(Padding(Text(bad.message), (0, 0, 1, 2)))
    if len(report.results) + len(report.unreadable) > 1:
        console.print(_summary(report))


def _headline(word: str, source: str, detail: str = "") -> Text:
    label, style = _STYLE[word]
    line = Text()
    line.append(f" {label} ", style=style)
    line.append(f" {source}", style="bold")
    if detail:
        line.append(f"  {detail}", style="dim")
    return line


def _print_result(result: Result, console: Console) -> None:
    judgement = result.judgement
    word = judgement.severity if judgement.verdict == "finding" else judgement.verdict
    console.print(_headline(word, result.source, _who(result)))
    for finding in judgement.findings:
        console.print(Padding(_finding_table(finding, first=finding is judgement.findings[0]), (0, 0, 0, 2)))
    if judgement.verdict != "finding":
        console.print(Padding(_why_table(result), (0, 0, 0, 2)))
    console.print()


def _who(result: Result) -> str:
    workload, fingerprint = result.window.workload, result.fingerprint
    parts = [
        workload.engine if workload.engine != "unknown" else None,
        workload.model_name,
        workload.component,
        workload.phase,
        f"rank {workload.rank}" if workload.rank is not None else None,
        f"GPU {workload.gpu_index}" if workload.gpu_index is not None else None,
        fingerprint.gpu_model if fingerprint else None,
    ]
    return ", ".join(p for p in parts if p)


def _grid() -> Table:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True, min_width=8)
    grid.add_column(overflow="fold")
    return grid


def _finding_table(finding: Finding, *, first: bool) -> Table:
    grid = _grid()
    label = "" if finding.is_fault and first else ("note" if not finding.is_fault else finding.severity)
    grid.add_row(label, Text(finding.title, style="bold" if finding.is_fault else ""))
    if finding.estimate is not None and finding.is_fault:
        grid.add_row("cost", cost_text(finding.estimate))
    if finding.causes:
        grid.add_row("cause", "; or ".join(f"{c.text} ({c.because})" for c in finding.causes[:2]))
    if finding.remedy:
        grid.add_row("change", finding.remedy)
    if finding.is_fault:
        shown = [e for e in finding.evidence if not e.name.startswith("recoverable")]
        grid.add_row("seen", "; ".join(evidence_text(e) for e in shown[:MAX_EVIDENCE]))
    return grid


def _why_table(result: Result) -> Table:
    """Why it is healthy, or why nothing can be said."""
    judgement, grid = result.judgement, _grid()
    if judgement.verdict == "healthy":
        grid.add_row("because", "; ".join(dict.fromkeys(h.because for h in judgement.healthy if h.decisive)))
        step = step_us(result)
        if step is not None:
            grid.add_row("step", time_text(step))
    elif judgement.verdict == "warming_up":
        grid.add_row("needs", "; ".join(dict.fromkeys(w.needs for w in judgement.warming_up)))
    else:
        spots = [f"{s.signal}: {s.reason}" for s in result.window.blind]
        grid.add_row("why", "; ".join(spots or dict.fromkeys(b.reason for b in judgement.blind[:3])))
    return grid


def cost_text(estimate: Estimate) -> str:
    """What is lost, for people: share, interval, and the step as it could be."""
    text = f"{percent(estimate.ratio)} of each step ({percent(estimate.low)} to {percent(estimate.high)})"
    if estimate.step_us is not None and estimate.graph_step_us is not None:
        text += f": {time_text(estimate.step_us)} could be {time_text(estimate.graph_step_us)}"
    return text


def time_text(us: float) -> str:
    """Microseconds for people: 840 us, 12.3 ms, 2.10 s."""
    if us < 1000:
        return f"{us:.0f} us"
    return f"{us / 1000:.2f} ms" if us < 1e6 else f"{us / 1e6:.2f} s"


def evidence_text(item: EvidenceItem) -> str:
    """One number for people, in its unit."""
    if item.unit == "ratio" and isinstance(item.value, (int, float)):
        return f"{item.name} {percent(float(item.value))}"
    if item.unit == "us" and isinstance(item.value, (int, float)):
        return f"{item.name} {time_text(float(item.value))}"
    if item.unit == "bytes" and isinstance(item.value, (int, float)):
        return f"{item.name} {item.value / 2**20:,.1f} MiB"
    value = f"{item.value:,}" if isinstance(item.value, int) else str(item.value)
    unit = "" if item.name.endswith(item.unit) else item.unit
    return f"{item.name} {value} {unit}".rstrip()


def _summary(report: Report) -> Text:
    counts: dict[str, int] = {}
    for result in report.results:
        word = result.judgement.severity if result.judgement.verdict == "finding" else result.judgement.verdict
        counts[word] = counts.get(word, 0) + 1
    if report.unreadable:
        counts["unreadable"] = len(report.unreadable)
    words = [f"{n} {word.replace('_', ' ')}" for word, n in counts.items()]
    return Text(f"{len(report.results) + len(report.unreadable)} judged: " + ", ".join(words), style="dim")
