"""What every detector is: a small pure object that judges evidence, and says what it is bad at."""

from __future__ import annotations

from typing import ClassVar, Protocol

from replaywatch.contract.verdict import Verdict
from replaywatch.detectors.evidence import Evidence


class Detector(Protocol):
    """Judges one kind of fault.

    `name` is the stable identifier in reports, metrics and incidents.
    """

    name: ClassVar[str]

    def judge(self, evidence: Evidence) -> Verdict:
        """The verdict on some evidence; pure, the same evidence gives the same verdict."""
        ...
