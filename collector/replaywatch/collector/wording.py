"""Numbers and times as people read them on the page."""

from __future__ import annotations

import re
from datetime import datetime, timezone
from typing import Final

from markupsafe import Markup, escape

VERDICT_WORDS: Final = {
    "finding": "finding",
    "healthy": "healthy",
    "warming_up": "warming up",
    "blind": "cannot see",
    "stale": "silent",
}
NOTHING: Final = "–"
GAP: Final = "\N{NO-BREAK SPACE}"
_UNIT: Final = re.compile(r"(?<=\d) (?=(?:%|[nuµm]?s|min|h|d|[KMGT]?i?B|GPUs?|steps?|kernels?)(?!\w))")
_OPTION: Final = re.compile(r"(?<![\w-])(\(?)(--?[A-Za-z][\w-]*(?:\.[\w-]+)*(?:=(?:\.\.\.|[\w.:+-]*\w))?)")


def percent(ratio: float | None) -> str:
    """A ratio as a percentage: one decimal below 10 %."""
    if ratio is None:
        return NOTHING
    value = ratio * 100
    if value == 0 or abs(value) >= 99.95:
        return f"{value:.0f}{GAP}%"
    return f"{value:.1f}{GAP}%" if abs(value) < 10 or abs(value) > 99 else f"{value:.0f}{GAP}%"


def prose(text: str) -> Markup:
    """A sentence in which no line ends between a number and its unit, or inside a command line's option."""
    return Markup(_OPTION.sub(r'<span class="option">\1<code>\2</code></span>', _UNIT.sub(GAP, str(escape(text)))))


def breaks(name: str) -> Markup:
    """A setting's name, whose line may end after an underscore and nowhere else that matters."""
    return Markup(str(escape(name)).replace("_", "_<wbr>"))


def duration_us(value: float | None) -> str:
    """Microseconds in the unit that fits."""
    if value is None:
        return NOTHING
    if value >= 1e6:
        return f"{value / 1e6:.2f}{GAP}s"
    if value >= 1000:
        return f"{value / 1000:.2f}{GAP}ms" if value < 100_000 else f"{value / 1000:.0f}{GAP}ms"
    return f"{value:.0f}{GAP}µs"


def size_bytes(value: int | None) -> str:
    """Bytes in binary units."""
    if value is None:
        return NOTHING
    amount = float(value)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(amount) < 1024:
            return f"{amount:.0f}{GAP}{unit}" if unit == "B" else f"{amount:.1f}{GAP}{unit}"
        amount /= 1024
    return f"{amount:.1f}{GAP}TiB"


def gpus(value: float) -> str:
    """GPU equivalents."""
    return f"{value:.2f}" if value < 10 else f"{value:,.1f}"


def count(value: float | None) -> str:
    """A count with thin groups."""
    return NOTHING if value is None else f"{value:,.0f}".replace(",", GAP)


def span(ns: int) -> str:
    """A length of time in its two largest units."""
    seconds = max(0, ns) // 10**9
    if seconds < 60:
        return f"{seconds} s"
    if seconds < 3600:
        return f"{seconds // 60} min {seconds % 60} s" if seconds < 600 else f"{seconds // 60} min"
    if seconds < 86400:
        return f"{seconds // 3600} h {seconds % 3600 // 60} min"
    return f"{seconds // 86400} d {seconds % 86400 // 3600} h"


def ago(then_ns: int, now_ns: int) -> str:
    """How long ago something was."""
    return "now" if now_ns - then_ns < 2 * 10**9 else f"{span(now_ns - then_ns)} ago"


def clock_text(unix_ns: int, with_date: bool = False) -> str:
    """Time of day in UTC."""
    stamp = datetime.fromtimestamp(unix_ns // 10**9, timezone.utc)
    return stamp.strftime("%Y-%m-%d %H:%M:%S" if with_date else "%H:%M:%S")


def evidence_value(value: object, unit: str) -> str:
    """A number of evidence with its unit, without false precision."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return f"{value} {unit}".rstrip()
    if unit == "ratio":
        return percent(value)
    if unit == "us":
        return duration_us(value)
    if isinstance(value, int) or abs(value) >= 100:
        return f"{count(value)} {unit}".rstrip()
    return f"{value:.3g} {unit}".rstrip()
