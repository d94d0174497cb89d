"""The sentences of a message, the same in every destination: verdict, cost, cause, remedy, who, and where to look."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from replaywatch.notify.notice import Notice

ELLIPSIS: Final = "…"
URL_MAX: Final = 600
LINK_NAMES: Final = (
    ("incident", "Incident"),
    ("workload", "Workload"),
    ("dashboard", "Dashboard"),
    ("runbook", "What it means"),
)


def cut(text: str, limit: int) -> str:
    """A text of at most so many characters, with a sign where it was cut."""
    return text if len(text) <= limit else text[: limit - 1] + ELLIPSIS


def headline(notice: Notice) -> str:
    """One line: what, and on whom."""
    test = "Test: " if notice.is_test else ""
    done = {"opened": "", "raised": "worse: ", "grown": "more: ", "closed": "over: "}[notice.event]
    whom = notice.label if notice.members == 1 else f"{notice.members} workloads, such as {notice.label}"
    return f"{test}{done}{notice.title} – {whom}"


def cost(notice: Notice) -> str:
    """One sentence about what is lost."""
    c = notice.cost
    if notice.event == "closed":
        return "The finding is gone, or the workload is."
    if c is None:
        return "What it costs is not known."
    share = f"about {_percent(c.ratio)} of the step time ({_percent(c.low)} to {_percent(c.high)})"
    if c.saved_us is not None and c.step_us is not None:
        share += f", {_duration(c.saved_us)} of every {_duration(c.step_us)} step"
    if not c.is_recoverable:
        return f"Lost: {share}. Graphs do not bring that back."
    where = "" if notice.members == 1 else f", on the worst of {notice.members} workloads"
    return f"Could be won back: {share}{where}."


def cause(notice: Notice) -> str | None:
    """The likeliest causes; None when none is known."""
    return "; or ".join(notice.causes[:3]) or None


def facts(notice: Notice) -> list[tuple[str, str]]:
    """Name and value of what identifies the workload; what is unknown is left out."""
    w = notice.workload
    place = "/".join(str(w[k]) for k in ("namespace", "pod", "container") if w.get(k))
    gpu = " ".join(str(w[k]) for k in ("gpu_index", "gpu_uuid") if w.get(k) is not None)
    known = (
        ("Severity", notice.severity),
        ("Workload", place or notice.label),
        ("Affected", f"{notice.members} workloads, {notice.open_members} still" if notice.members > 1 else ""),
        ("Engine", str(w.get("engine") or "")),
        ("Model", str(w.get("model_name") or "")),
        ("Node", str(w.get("node") or "")),
        ("GPU", gpu),
        ("Since", notice.opened_at),
        ("Detector", notice.detector),
    )
    return [(name, value) for name, value in known if value]


def evidence(notice: Notice) -> str:
    """The numbers behind it, in one line."""
    return "; ".join(f"{e.get('name')} {_value(e)}" for e in notice.evidence[:6])


def links(notice: Notice) -> list[tuple[str, str]]:
    """Name and address, in the order of use; only web addresses, since others cannot be followed."""
    found = ((title, notice.links.get(name, "")) for name, title in LINK_NAMES)
    return [(title, url) for title, url in found if url.startswith(("http://", "https://")) and len(url) <= URL_MAX]


def plain(notice: Notice) -> str:
    """The whole message as text without markup, for previews and screens without it."""
    parts: Iterable[str | None] = (
        headline(notice),
        cost(notice),
        f"Cause: {cause(notice)}" if cause(notice) else None,
        f"To do: {notice.remedy}" if notice.remedy and notice.event != "closed" else None,
    )
    return "\n".join(p for p in parts if p)


def _percent(ratio: float) -> str:
    return f"{max(0.0, ratio):.0%}" if ratio >= 0.1 else f"{max(0.0, ratio):.1%}"


def _duration(us: float) -> str:
    return f"{us:.0f} µs" if us < 1000 else f"{us / 1000:.1f} ms" if us < 1e6 else f"{us / 1e6:.2f} s"


def _value(item: object) -> str:
    assert isinstance(item, dict)
    value, unit = item.get("value"), str(item.get("unit") or "")
    if unit == "ratio" and isinstance(value, (int, float)):
        return _percent(float(value))
    shown = f"{value:.4g}" if isinstance(value, float) else str(value)
    return f"{shown} {unit}".rstrip()
