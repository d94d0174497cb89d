"""The score: what the detectors found of what they should have found, and what the peers' methods make of the same.

python tests/score/score.py            # print
python tests/score/score.py --write    # and write docs/score.md
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
if __name__ == "__main__":
    # In the place of this folder, whose own name is that of the package.
    sys.path[:1] = [str(ROOT / part) for part in ("agent", "detectors", "collector", "tests")]

from replaywatch.detectors.catalogue import DETECTORS  # noqa: E402
from score.measured import DAYS, OURS, Measured, measure  # noqa: E402
from score.situation import Count, Situation, count, quantile, total  # noqa: E402

PAGE = ROOT / "docs" / "score.md"
SOURCES = {"corpus": "recordings", "timed": "recordings with step times", "fleet": "replicas", "case": "cases",
           "engine": "engines", "composed": "composed", "live": "live processes", "public": "public files",
           "log": "written logs"}  # fmt: skip
KINDS = {"corpus": "recorded", "timed": "recorded", "engine": "recorded", "fleet": "composed", "composed": "composed",
         "case": "rebuilt", "live": "recorded", "public": "recorded", "log": "rebuilt"}  # fmt: skip
# What these lose, a capture does not bring back.
NOT_CAPTURED = frozenset({"padding", "replay_gap"})
ABOUT_CAPTURE = frozenset({"disabled", "partial_coverage", "fragmented"})
BANDS = ((0.0, 0.05), (0.05, 0.10), (0.10, 0.15), (0.15, 1.01))


def share(part: int, whole: int) -> str:
    """A share with its count."""
    return f"{part / whole:.2f} ({part} of {whole})" if whole else "-"


def number(value: float | None, digits: int = 1, unit: str = "") -> str:
    """A number, or a dash where there is none."""
    return "-" if value is None else f"{value:.{digits}f}{unit}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def by_detector(m: Measured) -> str:
    """Per detector: precision, recall, false incidents a day, time to detect, each with its count."""
    counts = count(m.situations)
    seconds = [s for (method, _), found in m.seconds.items() if method == OURS for s in found]
    live = counts.setdefault("sudden", Count())
    live.tp += sum(s is not None for s in seconds)
    live.fn += sum(s is None for s in seconds)
    kinds: dict[str, set[str]] = {"sudden": {"made"}}
    for s in m.situations:
        for name in s.expected:
            kinds.setdefault(name, set()).add(KINDS[s.source])
    rows = [(*_detector_row(d.name, counts.get(d.name), m, seconds), _words(kinds, d.name)) for d in DETECTORS]
    whole = total(counts)
    large = total(count(s for s in m.situations if s.rho is None or s.rho >= 0.10 or not s.is_fault))
    large.tp, large.fn = large.tp + sum(s is not None for s in seconds), large.fn + sum(s is None for s in seconds)
    incidents = sum(m.daily[OURS])
    told = f"{incidents / DAYS:.1f} ({incidents} in {DAYS} days)"
    for name, c, day in (("all together", whole, told), ("without those that lose less than 10 %", large, "")):
        rows.append((f"**{name}**", share(c.tp, c.tp + c.fp), share(c.tp, c.tp + c.fn), day, "", ""))
    return table(
        ("detector", "precision", "recall", "false incidents in 24 h", "time to detect: median, worst", "faults are"),
        rows,
    )


def _words(kinds: dict[str, set[str]], name: str) -> str:
    return ", ".join(sorted(kinds.get(name, set()))) or "-"


def _detector_row(name: str, counts: Count | None, m: Measured, seconds: list[float | None]) -> tuple[str, ...]:
    c = counts or Count()
    incidents = m.daily_by_detector.get(name, 0)
    found = [s for s in seconds if s is not None]
    when = f"{number(quantile(found, 0.5), 0)} s, {number(max(found), 0)} s ({len(found)})" if name == "sudden" else "-"
    return (
        f"`{name}`",
        share(c.tp, c.tp + c.fp),
        share(c.tp, c.tp + c.fn),
        f"{incidents / DAYS:.1f}",
        when,
    )


def by_source(m: Measured) -> str:
    """Where the situations come from, and how many are controls."""
    rows = []
    for source, word in SOURCES.items():
        here = [s for s in m.situations if s.source == source]
        faults, controls = [s for s in here if s.is_fault], [s for s in here if not s.is_fault]
        rows.append(
            (
                word,
                str(len(here)),
                share(sum(s.is_found for s in faults), len(faults)),
                share(sum(bool(s.false_alarms) for s in controls), len(controls)),
            )
        )
    return table(("source", "situations", "faults found", "controls with a false alarm"), rows)


def by_truth(m: Measured) -> str:
    """The stable faults of the corpus by what was measured to be recoverable."""
    rows = []
    for low, high in BANDS:
        label = f"{low:.0%} to {high:.0%}" if high <= 1 else f"{low:.0%} and more"
        row: list[str] = []
        for source in ("corpus", "timed"):
            here = [s for s in m.situations if s.source == source and s.rho is not None and low <= s.rho < high]
            about = [s for s in here if s.expected & ABOUT_CAPTURE or not s.is_fault]
            row = row or [label, str(len(about))]
            row.append(share(sum(bool(s.spoke & ABOUT_CAPTURE) for s in about), len(about)))
            row.append(share(sum(bool(s.alarms & ABOUT_CAPTURE) for s in about), len(about)))
        rows.append(row)
    return table(
        (
            "recoverable, measured", "recordings", "trace alone: told", "a warning or more",
            "with step times: told", "a warning or more",
        ),
        rows,
    )  # fmt: skip


def estimates(m: Measured) -> str:
    """The estimate against what was measured while the host kept its speed."""
    rows = []
    sure = [
        s
        for s in m.situations
        if s.truth is not None and s.judgement.estimate is not None and not s.expected & NOT_CAPTURED
    ]
    parts = {
        f"{words}{half}": [s for s in sure if s.source == source and s.split in halves]
        for source, words in (("corpus", "trace alone"), ("timed", "with step times"))
        for half, halves in (("", ("fit", "holdout")), (", fit", ("fit",)), (", holdout", ("holdout",)))
    }
    parts["engines"] = [s for s in sure if s.source == "engine"]
    for name, part in parts.items():
        errors = [abs(_ratio(s) - (s.truth or 0.0)) for s in part]
        covered = sum(_covers(s) for s in part)
        median, high = quantile(errors, 0.5), quantile(errors, 0.9)
        rows.append(
            (
                name,
                str(len(part)),
                number(None if median is None else 100 * median),
                number(None if high is None else 100 * high),
                share(covered, len(part)),
            )
        )
    return table(
        ("recordings", "count", "median error, points", "90th percentile, points", "interval holds the truth"), rows
    )


def _ratio(situation: Situation) -> float:
    estimate = situation.judgement.estimate
    return estimate.ratio if estimate is not None else 0.0


def _covers(situation: Situation) -> bool:
    estimate, truth = situation.judgement.estimate, situation.truth or 0.0
    return estimate is not None and estimate.low - 1e-9 <= truth <= estimate.high + 1e-9


def by_fleet(m: Measured) -> str:
    """Fleets composed from recordings."""
    rows = []
    fleet = [s for s in m.situations if s.source == "fleet"]
    for name in dict.fromkeys(s.group for s in fleet):
        here = [s for s in fleet if s.group == name]
        faulty = [s for s in here if s.is_fault]
        by = sorted({d for s in faulty for d in s.expected & s.spoke})
        rows.append(
            (
                name,
                str(len(here)),
                share(sum(s.is_found for s in faulty), len(faulty)),
                str(sum(bool(s.false_alarms) for s in here)),
                ", ".join(f"`{d}`" for d in by) or "-",
            )
        )
    return table(("fleet", "replicas", "faulty ones found", "false alarms", "found by"), rows)


def by_kind(m: Measured) -> str:
    """Sudden faults by kind."""
    kinds = dict.fromkeys(kind for _, kind in m.seconds)
    methods = dict.fromkeys(method for method, _ in m.seconds)
    rows = []
    for kind in kinds:
        cells = []
        for method in methods:
            found = m.seconds[method, kind]
            hit = [s for s in found if s is not None]
            cells.append(f"{len(hit)} of {len(found)}" + (f", {number(quantile(hit, 0.5), 0)} s" if hit else ""))
        rows.append((kind, *cells))
    return table(("fault", *methods), rows)


def by_live(m: Measured) -> str:
    """Sudden faults that were recorded, and when they were found."""
    rows = [(name.replace("_", " "), number(seconds, 1, " s")) for name, seconds in m.live]
    return table(("fault", "second alarm in a row after"), rows)


def by_method(m: Measured) -> str:
    """The peers' methods beside ours."""
    rows = []
    for method in dict.fromkeys(name for name, _ in m.seconds):
        found, due, alarmed, controls = m.at_start[method]
        seconds = [s for (name, _), some in m.seconds.items() if name == method for s in some]
        hit = [s for s in seconds if s is not None]
        rows.append(
            (
                method,
                share(found, due),
                share(alarmed, controls),
                share(len(hit), len(seconds)),
                number(quantile(hit, 0.5), 0, " s"),
                number(sum(m.daily[method]) / DAYS),
            )
        )
    return table(
        (
            "method",
            "faults since the start found",
            "controls with an alarm",
            "sudden faults found",
            "median time to detect",
            "false episodes in 24 h",
        ),
        rows,
    )


def missed(m: Measured) -> str:
    """What was not found, by name."""
    rows = [
        (f"`{s.name}`", ", ".join(f"`{d}`" for d in sorted(s.expected - s.spoke)), number(_percent(s.rho), 1, " %"))
        for s in sorted(m.situations, key=lambda s: (-(s.rho or 0.0), s.name))
        if s.expected - s.spoke
    ]
    return table(("situation", "not said", "recoverable, measured"), rows)


def _percent(ratio: float | None) -> float | None:
    return None if ratio is None else 100 * ratio


def numenta(m: Measured) -> str:
    """Numenta's benchmark."""
    if m.nab is None:
        return "The benchmark's data are not beside this checkout."
    rows = [
        (name.replace("_", " "), number(r.score), f"{r.found} of {r.windows}", str(r.false_positives))
        for name, r in m.nab.items()
    ]
    return table(("profile", "score", "windows found", "false records"), rows)


def render(m: Measured) -> str:
    """The page."""
    template = (Path(__file__).parent / "score.md.in").read_text()
    parts = {
        "by_source": by_source, "by_detector": by_detector, "by_truth": by_truth, "estimates": estimates,
        "by_fleet": by_fleet, "by_kind": by_kind, "by_method": by_method, "by_live": by_live, "missed": missed,
        "numenta": numenta,
    }  # fmt: skip
    for name, make in parts.items():
        template = template.replace(f"{{{{{name}}}}}", make(m))
    return template.replace("{{noise}}", f"{100 * m.noise:.1f}")


def main(arguments: Sequence[str]) -> int:
    """Print the score, and write the page when asked."""
    page = render(measure())
    print(page)
    if "--write" in arguments:
        PAGE.write_text(page)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
