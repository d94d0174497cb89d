"""Pieces of PromQL that rules and panels share."""

from __future__ import annotations

from typing import Final

from replaywatch.contract.metrics import WORKLOAD_LABELS

WORKLOAD: Final = ", ".join(WORKLOAD_LABELS)
# What people deploy and roll out as one; burn rates and groups of alerts are about this.
SERVICE: Final = "namespace, engine, model_name"
# A scrape's own identity: what joins an agent's or collector's series with `up` and with the info series.
TARGET: Final = "job, instance"


def matching(metric: str, *matchers: str) -> str:
    """A selector; without matchers the bare name."""
    return f"{metric}{{{', '.join(matchers)}}}" if matchers else metric


def share(part: str, whole: str) -> str:
    """A quotient that is absent, not NaN, where the whole is zero."""
    return f"{part} / ({whole} > 0)"
