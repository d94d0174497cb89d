"""Somebody else computes on the device, and replays take longer for it (D12); and a device that is slow by itself."""

from __future__ import annotations

from typing import ClassVar, Final

from replaywatch.contract.verdict import Blind, Cause, EvidenceItem, Finding, Healthy, Verdict
from replaywatch.detectors import readings
from replaywatch.detectors.device_clock import SLOW_CLOCK_RATIO, clock_ratio
from replaywatch.detectors.evidence import Evidence
from replaywatch.detectors.peers import deviations, is_odd

SLOWER_RATIO: Final = 0.15
_BENIGN: Final = ("idle", "application_clocks", "display_clock", "sync_boost")


class Contention:
    """Replays take 15 % longer than before, or than on the peers, with full clocks and a second process on the device.

    Neighbours alone are no finding: processes may share a device on purpose.

    Bad at: a neighbour that was there from the start and has no peers to compare with; neighbours in another container
    that NVML does not count.
    """

    name: ClassVar[str] = "contention"

    def judge(self, evidence: Evidence) -> Verdict:
        """See the class."""
        device = evidence.recent.device
        if device is None or device.processes is None:
            return Blind(self.name, "the processes on the device are not known")
        if device.processes < 2:
            return Healthy(self.name, "alone on its device")
        ratio = clock_ratio(evidence.recent)
        if ratio is not None and ratio < SLOW_CLOCK_RATIO:
            return Healthy(self.name, "the device's clock explains a slower replay")
        slower = _against_before(evidence) or _against_peers(evidence)
        if slower is None:
            return Healthy(self.name, f"{device.processes} processes share the device, without longer replays")
        gap, usual_us, now_us, source = slower
        return Finding(
            detector=self.name,
            subject=evidence.workload.key,
            severity="warn",
            title=f"Replays take {readings.percent(gap)} longer while {device.processes} processes share the device",
            evidence=(
                EvidenceItem("device time of a replay, usual", round(usual_us, 1), "us", source),
                EvidenceItem("device time of a replay", round(now_us, 1), "us", "recent windows"),
                EvidenceItem("processes on the device", device.processes, "", "NVML"),
                EvidenceItem("of them through MPS", device.mps_processes or 0, "", "NVML"),
            ),
            causes=(Cause("another process computes at the same time", 0.8, "process list, steady clocks"),),
            remedy="Move the other process, give it less, or cut the device (MIG); expect longer steps until then.",
        )


class SlowDevice:
    """The device runs below 85 % of its clock while it works, for a reason that is not its setting.

    Information: it explains slow steps, and no graph setting mends it.

    Bad at: clocks are read once a window; a device that throttles in between is not seen.
    """

    name: ClassVar[str] = "slow_device"

    def judge(self, evidence: Evidence) -> Verdict:
        """See the class."""
        device, ratio = evidence.recent.device, clock_ratio(evidence.recent)
        if device is None or ratio is None:
            return Blind(self.name, "the device's clock is not known, or it rests")
        reasons = [r for r in device.throttle_reasons or () if r not in _BENIGN]
        if ratio >= SLOW_CLOCK_RATIO or not reasons:
            return Healthy(self.name, f"the device runs at {readings.percent(ratio)} of its clock")
        why = ", ".join(r.replace("_", " ") for r in reasons)
        return Finding(
            detector=self.name,
            subject=evidence.workload.key,
            severity="info",
            title=f"The device runs at {readings.percent(ratio)} of its clock ({why}): steps are slow for that reason",
            evidence=(
                EvidenceItem("clock", round(ratio, 4), "ratio", "NVML"),
                EvidenceItem("reasons", why, "", "NVML"),
                *(
                    (EvidenceItem("temperature", device.temperature_celsius, "°C", "NVML"),)
                    if device.temperature_celsius is not None
                    else ()
                ),
            ),
            causes=tuple(Cause(r.replace("_", " "), 0.8, "reported by the device") for r in reasons[:3]),
            remedy="Look at power limit, cooling and clocks of this device; graphs do not change it.",
            is_fault=False,
        )


def _against_before(evidence: Evidence) -> tuple[float, float, float, str] | None:
    """How much longer replays take than the same workload's did; share, before, since, source."""
    channels = evidence.sudden.channels if evidence.sudden is not None else ()
    shift = next((c.shift for c in channels if c.name == "replay_us"), None)
    if shift is None or shift.before <= 0 or shift.after < (1 + SLOWER_RATIO) * shift.before:
        return None
    return shift.after / shift.before - 1, shift.before, shift.after, "earlier windows at this load"


def _against_peers(evidence: Evidence) -> tuple[float, float, float, str] | None:
    if evidence.peers is None:
        return None
    found = deviations(evidence.peers, evidence.figures)
    slow = next((d for d in found if d.figure == "replay_us" and is_odd(d, evidence.peers.n)), None)
    if slow is None or slow.gap < SLOWER_RATIO:
        return None
    return slow.gap, slow.expected, slow.value, "median of peers"
