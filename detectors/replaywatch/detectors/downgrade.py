"""The engine resolved a weaker graph mode than was asked for (D2)."""

from __future__ import annotations

from typing import ClassVar, Final

from replaywatch.contract.verdict import Blind, Cause, Estimate, EvidenceItem, Finding, Healthy, Verdict, Vote
from replaywatch.detectors import causes, readings
from replaywatch.detectors.counterfactual import estimate_recoverable
from replaywatch.detectors.evidence import Evidence
from replaywatch.detectors.voting import peers_vote

# How much of a decode step a mode captures; unknown words compare equal only to themselves.
_STRENGTH: Final = {
    "NONE": 0,
    "DISABLED": 0,
    "PIECEWISE": 1,
    "BREAKABLE": 1,
    "TC_PIECEWISE": 1,
    "FULL_DECODE_ONLY": 2,
    "FULL": 2,
    "FULL_AND_PIECEWISE": 3,
}


class Downgrade:
    """Requested and resolved mode differ, and the resolved one captures less; or graphs are off unasked.

    What it costs is said by the detectors that measure it (disabled, partial coverage); this one names both modes and
    the engine's reason, as information: PIECEWISE costs a small model three times a token and a large one nothing.

    Bad at: requests that were never written down have nothing to compare with but the engine's reason for being off.
    """

    name: ClassVar[str] = "downgrade"

    def judge(self, evidence: Evidence) -> Verdict:
        """See the class."""
        config = evidence.config
        seen = causes.observations(evidence, "mode_downgrade")
        if config is None or config.resolved_mode is None:
            return Blind(self.name, "the resolved graph mode is unknown; give the engine's log or attach the probe")
        resolved, requested = config.resolved_mode, config.requested_mode
        off = _strength(resolved) == 0
        if causes.eager_was_asked(config) and (off or config.graphs_enabled is False):
            return Blind(self.name, f"the resolved mode is {resolved}, as asked for; another detector judges that")
        if off and not config.mode_reason and not seen:
            return Blind(
                self.name, f"the resolved mode is {resolved}, and why is unknown; another detector judges that"
            )
        weaker = off or (requested is not None and _is_weaker(resolved, requested))
        if not weaker and not seen:
            seen_running = evidence.is_recording or bool(evidence.lifetime.steps)
            return Healthy(self.name, f"graph mode {resolved} is what was asked for", seen_running)
        reason = config.mode_reason or (seen[0].detail if seen else "the engine gave no reason")
        estimate = estimate_recoverable(evidence)
        return Finding(
            detector=self.name,
            subject=evidence.workload.key,
            severity="info",
            title=f"Graph mode {requested or 'of the default'} was downgraded to {resolved}: {reason}",
            evidence=(
                EvidenceItem("requested mode", requested or "default", "", "configuration"),
                EvidenceItem("resolved mode", resolved, "", "configuration"),
                *(EvidenceItem("seen in the log", o.detail, "", o.where or "log") for o in seen[:3]),
                *(readings.estimate_items(estimate) if estimate else ()),
            ),
            estimate=estimate,
            causes=(Cause(reason, 0.9, "the engine's own words"),),
            remedy=(
                "Choose an attention backend (and speculative decoding setting) that supports the requested mode, "
                "or ask for the mode you can have so that the choice is visible. What it costs shows in a trace."
            ),
            votes=(
                Vote("intent", "for", f"{requested or 'the default'} was asked for, {resolved} runs"),
                peers_vote(evidence),
                _counterfactual(estimate),
            ),
        )


def _strength(mode: str) -> int | None:
    return _STRENGTH.get(mode.upper().rsplit(".", 1)[-1])


def _is_weaker(resolved: str, requested: str) -> bool:
    a, b = _strength(resolved), _strength(requested)
    return a is not None and b is not None and a < b


def _counterfactual(estimate: Estimate | None) -> Vote:
    if estimate is None:
        return Vote("counterfactual", "abstains", "no kernels were traced")
    if estimate.severity == "none":
        return Vote("counterfactual", "against", "little of the step is recoverable")
    return Vote("counterfactual", "for", "the step has recoverable time")
