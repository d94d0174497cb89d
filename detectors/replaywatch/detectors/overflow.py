"""Batches grow past the largest captured size and run eager (D4), and may never come back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final

from replaywatch.contract.verdict import (
    Blind,
    Cause,
    Estimate,
    EvidenceItem,
    Finding,
    Healthy,
    Severity,
    Verdict,
    Vote,
    WarmingUp,
    severity_rank,
)
from replaywatch.detectors import causes, readings
from replaywatch.detectors.counterfactual import estimate_recoverable
from replaywatch.detectors.engine_flags import ceiling_flag, sums_ranks
from replaywatch.detectors.evidence import Evidence
from replaywatch.detectors.ladder_flags import advice_text, tokens_of_a_sequence
from replaywatch.detectors.own_steps import BOTH_WAYS
from replaywatch.detectors.voting import peers_vote

OVERFLOW_SHARE: Final = 0.01
ABSORBING_SHARE: Final = 0.5
ABSORBING_SECONDS: Final = 45.0


class Overflow:
    """Steps whose batch is larger than the largest captured size are not replayed.

    A page when at least half of the steps overflow for most of a minute: the eager steps are slower, so the batch
    grows and stays past the ceiling. Before any traffic, an admission limit above the ceiling is told as information,
    of all ranks together where the engine sums their sizes.

    Bad at: graphs for prefill, whose sizes count tokens of any number of sequences; with traffic, data parallel ranks
    whose sizes are summed need the summed sizes from the engine.
    """

    name: ClassVar[str] = "overflow"

    def judge(self, evidence: Evidence) -> Verdict:
        """See the class."""
        ceiling = _ceiling_in_sequences(evidence)
        share = _overflow_share(evidence, ceiling)
        if share is None:
            return self._lint(evidence, ceiling)
        steps = sum((evidence.recent.dispatch.batch_sizes or evidence.recent.dispatch.steps or {}).values())
        if not evidence.is_recording and steps < readings.MIN_LIVE_STEPS:
            return WarmingUp(self.name, f"{readings.MIN_LIVE_STEPS - steps} more steps")
        if share < OVERFLOW_SHARE:
            return self._lint(evidence, ceiling, share)
        estimate = _estimate(evidence, share)
        absorbing = share >= ABSORBING_SHARE and readings.window_seconds(evidence.recent) >= ABSORBING_SECONDS
        return self._finding(evidence, ceiling, share, estimate, absorbing)

    def _finding(
        self, evidence: Evidence, ceiling: int | None, share: float, estimate: Estimate | None, absorbing: bool
    ) -> Verdict:
        severity: Severity = estimate.severity if estimate else "info"
        if severity == "none":
            return Healthy(self.name, f"{readings.percent(share)} of the steps overflow, at no measurable cost")
        if absorbing and severity_rank(severity) >= severity_rank("info"):
            severity = "page" if estimate else "warn"
        sizes = evidence.recent.dispatch.batch_sizes or {}
        beyond = f"past the largest captured size {ceiling}" if ceiling else "past the largest captured size"
        stays = "; it does not come back" if absorbing else ""
        items = [
            EvidenceItem("steps past the ceiling", round(share, 4), "ratio", evidence.recent.origin),
            EvidenceItem("largest captured size", ceiling if ceiling is not None else "unknown", "", "configuration"),
        ]
        if sizes:
            items.append(EvidenceItem("largest batch seen", max(sizes), "sequences", evidence.recent.origin))
        items.extend(_mode_times(evidence))
        return Finding(
            detector=self.name,
            subject=evidence.workload.key,
            severity=severity,
            title=f"{readings.percent(share)} of the steps run eager because their batch is {beyond}{stays}",
            evidence=(*items, *(readings.estimate_items(estimate) if estimate else ())),
            estimate=estimate,
            causes=(Cause(f"batches are admitted {beyond}", 0.9, "batch sizes of the steps that were not replayed"),),
            remedy=_remedy(evidence, sizes, ceiling),
            votes=(
                causes.intent_vote(evidence),
                peers_vote(evidence),
                Vote("counterfactual", "for", "replayed and eager steps of the same process differ"),
            ),
        )

    def _lint(self, evidence: Evidence, ceiling: int | None, share: float | None = None) -> Verdict:
        """No overflow was seen; would the admission limit allow it?"""
        config = evidence.config
        limit, ranks = (config.max_batch_size if config else None), _summed_ranks(evidence)
        if ceiling and limit and limit * ranks > ceiling:
            summed = f"{limit} sequences on each of {ranks} ranks, whose sizes are summed to {limit * ranks},"
            admitted = f"{limit} sequences" if ranks == 1 else summed
            items = [EvidenceItem("admission limit", limit, "sequences", "configuration")]
            if ranks > 1:
                items.append(EvidenceItem("ranks that share a graph size", ranks, "", "configuration"))
            return Finding(
                detector=self.name,
                subject=evidence.workload.key,
                severity="info",
                title=f"Up to {admitted} are admitted, but graphs end at {ceiling}: larger batches run eager",
                evidence=(*items, EvidenceItem("largest captured size", ceiling, "", "configuration")),
                remedy=_remedy(evidence, {limit * ranks: 1}, ceiling),
                votes=(Vote("intent", "for", "the configuration allows what it does not capture"),),
                is_fault=False,
            )
        if share is not None:
            return Healthy(self.name, f"{readings.percent(share)} of the steps are past the largest captured size")
        return Blind(self.name, _what_is_unknown(evidence))


def _summed_ranks(evidence: Evidence) -> int:
    """How many data-parallel ranks' sequences one graph must hold."""
    config, prints = evidence.config, evidence.fingerprint
    if config is None or config.settings.get("enable_dp_attention") != "True":
        return 1
    version = prints.engine_version if prints else None
    return (config.data_parallel_size or 1) if sums_ranks(config.engine, version) else 1


def _what_is_unknown(evidence: Evidence) -> str:
    if not evidence.recent.dispatch.batch_sizes:
        return "batch sizes are unknown; attach the probe or scrape the engine's metrics"
    if evidence.workload.phase == "prefill":
        return "sizes of prefill graphs count tokens, batches count sequences"
    return "the largest captured size is unknown, or there is none"


def _overflow_share(evidence: Evidence, ceiling: int | None) -> float | None:
    """Share of recent steps that were past the ceiling; None when nothing tells."""
    dispatch = evidence.recent.dispatch
    steps = sum((dispatch.steps or {}).values())
    above = (dispatch.fallbacks or {}).get("above_ceiling")
    if above is not None and steps:
        return above / steps
    sizes = dispatch.batch_sizes
    if not sizes or ceiling is None or evidence.workload.phase == "prefill":
        return None
    total = sum(sizes.values())
    not_replayed = dispatch.eager_batch_sizes if dispatch.eager_batch_sizes is not None else sizes
    return sum(n for size, n in not_replayed.items() if size > ceiling) / total if total else None


def _ceiling_in_sequences(evidence: Evidence) -> int | None:
    """Largest batch that a graph holds; None where sizes count tokens of unknown kind (prefill graphs)."""
    config = evidence.config
    if config is None or config.ceiling is None:
        return None
    if config.capture_unit == "tokens" and config.speculative_tokens is None and config.engine != "vllm":
        return None
    return config.ceiling // tokens_of_a_sequence(evidence)


def _mode_times(evidence: Evidence) -> list[EvidenceItem]:
    times = evidence.recent.timing.step_by_mode or {}
    return [
        EvidenceItem(f"{mode} step", round(h.mean / 1000, 1), "us", evidence.recent.origin)
        for mode, h in sorted(times.items())
        if h.mean is not None
    ]


def _estimate(evidence: Evidence, share: float) -> Estimate | None:
    """From the process itself: replayed steps against eager ones, weighted by the time that overflow steps take.

    A replayed step of the larger batch takes longer than the replayed steps seen; at most in proportion to the batch.
    """
    times = evidence.recent.timing.step_by_mode or {}
    eager, full = times.get("eager"), times.get("full") or times.get("piecewise")
    if eager is None or not eager.count:
        return estimate_recoverable(evidence)
    if full is None or full.count < 3:
        lived = evidence.lifetime.timing.step_by_mode or {}
        full = lived.get("full") or lived.get("piecewise")
    if full is None or full.count < 3 or not full.mean or not eager.mean:
        return estimate_recoverable(evidence)
    growth = _batch_growth(evidence)
    one_low = max(0.0, 1 - full.mean * growth / eager.mean)
    one_high = max(0.0, 1 - full.mean / eager.mean)
    everything = sum(h.sum for h in times.values()) or 1
    weight = min(1.0, eager.sum / everything)
    low, high = one_low * weight, one_high * weight
    mean_us = everything / max(1, sum(h.count for h in times.values())) / 1000
    return Estimate((low + high) / 2, low, high, step_us=mean_us, method=BOTH_WAYS)


def _batch_growth(evidence: Evidence) -> float:
    """How much larger the eager batches are than the replayed ones, at least 1."""
    dispatch = evidence.recent.dispatch
    eager = dispatch.eager_batch_sizes or {}
    ceiling = _ceiling_in_sequences(evidence)
    if not eager or not ceiling:
        return 1.5
    mean = sum(size * n for size, n in eager.items()) / sum(eager.values())
    return max(1.0, mean / ceiling)


def _remedy(evidence: Evidence, sizes: Mapping[int, int], ceiling: int | None) -> str:
    top = max(sizes, default=(ceiling or 0) * 2)
    engine = evidence.config.engine if evidence.config else evidence.workload.engine
    version = evidence.fingerprint.engine_version if evidence.fingerprint else None
    present = (evidence.config.capture_sizes if evidence.config else None) or ()
    tokens = tokens_of_a_sequence(evidence)
    flag = ceiling_flag(engine, top * tokens, version, present, tokens)
    advice = advice_text(evidence)
    return (
        f"Capture up to the batches you admit ({flag}), or admit no more than {ceiling or 'the ceiling'} sequences."
        + (f" {advice}" if advice else "")
    )
