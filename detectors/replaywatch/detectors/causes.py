"""Why graphs are not used, from intent and observations; and the change that brings them back, by engine."""

from __future__ import annotations

from typing import Final

from replaywatch.contract.snapshot import EngineConfig
from replaywatch.contract.verdict import Cause, Vote
from replaywatch.contract.window import Observation
from replaywatch.detectors.engine_flags import enable
from replaywatch.detectors.environment_switches import harmful_switches
from replaywatch.detectors.evidence import Evidence
from replaywatch.detectors.readings import times

# Observation kinds that explain why work runs outside graphs, with the weight they carry as a cause.
_EXPLAINING = {
    "graphs_disabled": 0.9,
    "mode_downgrade": 0.85,
    "capture_failed": 0.8,
    "out_of_memory": 0.6,
    "inductor_skip": 0.8,
    "inductor_rerecord": 0.7,
    "dynamic_shapes": 0.7,
    "graph_update_failed": 0.7,
    "host_graph_break": 0.6,
}


def enable_remedy(evidence: Evidence) -> str:
    """The change that turns graphs on for the workload's engine."""
    engine = evidence.workload.engine
    if engine == "unknown" and evidence.config is not None:
        engine = evidence.config.engine
    return enable(engine, evidence.fingerprint.engine_version if evidence.fingerprint else None)


def observations(evidence: Evidence, *kinds: str) -> tuple[Observation, ...]:
    """Observations of some kinds over the lifetime, most frequent first."""
    seen = evidence.lifetime.observations
    found = [o for o in seen if o.kind in kinds] if seen else None
    if not found:
        return ()
    return tuple(sorted(found, key=lambda o: (-o.count, o.detail)))


def eager_causes(evidence: Evidence) -> tuple[Cause, ...]:
    """Ranked causes for work outside graphs; the last resort says that nothing explains it."""
    causes = list(_intent_causes(evidence))
    for o in observations(evidence, *_EXPLAINING):
        causes.append(
            Cause(o.detail, _EXPLAINING[o.kind], f"seen {times(o.count)}" + (f" at {o.where}" if o.where else ""))
        )
    causes.extend(_fallback_causes(evidence))
    if not causes:
        causes.append(Cause("nothing captures this work", 0.3, "no graph setting, skip or failed capture is on record"))
    return tuple(sorted(causes, key=lambda c: -c.weight)[:5])


def _intent_causes(evidence: Evidence) -> list[Cause]:
    config = evidence.config
    if config is None:
        return []
    causes = []
    if config.enforced_by:
        causes.append(Cause(f"graphs are switched off by {config.enforced_by}", 0.95, "engine configuration"))
    elif config.graphs_enabled is False:
        why = config.mode_reason or "graphs are switched off in the engine's configuration"
        causes.append(Cause(why, 0.9, "engine configuration"))
    for switch, value in harmful_switches(config):
        causes.append(Cause(f"{switch.name}={value} is set: {switch.does}", 0.6, "environment of the process"))
    if config.compile_mode in ("default", "max-autotune-no-cudagraphs"):
        causes.append(Cause(f'torch.compile mode "{config.compile_mode}" does not use graphs', 0.85, "compile mode"))
    return causes


def _fallback_causes(evidence: Evidence) -> list[Cause]:
    fallbacks = evidence.recent.dispatch.fallbacks or {}
    total = sum(fallbacks.values())
    return [
        Cause(f"steps fall back: {reason.replace('_', ' ')}", 0.9 * n / total, f"{n} of {total} fallbacks")
        for reason, n in sorted(fallbacks.items(), key=lambda kv: -kv[1])
        if n and reason not in ("warm_up", "prefill_by_design")
    ]


_OFF: Final = ("NONE", "DISABLED", "FALSE", "0", "OFF")


def intent_vote(evidence: Evidence) -> Vote:
    """R1: was it wanted so?"""
    config = evidence.config
    if config is None or (config.graphs_enabled is None and config.requested_mode is None):
        return Vote("intent", "abstains", "no configuration was seen")
    if eager_was_asked(config):
        return Vote("intent", "against", f"eager was asked for ({config.enforced_by or 'configuration'})")
    if (config.requested_mode or "").upper() in _OFF:
        return Vote("intent", "abstains", f"{config.requested_mode} was asked for, and graphs run")
    if config.graphs_enabled is not False:
        return Vote("intent", "for", f"graphs were asked for ({config.requested_mode or 'enabled'})")
    by = config.enforced_by or config.mode_reason or "something"
    if config.requested_mode is None:
        return Vote("intent", "abstains", f"nobody is known to have asked for eager: {by}")
    return Vote("intent", "for", f"{config.requested_mode} was asked for, and graphs are off: {by}")


def eager_was_asked(config: EngineConfig) -> bool:
    """Whether eager runs that somebody asked for: as the mode, or through a switch where no mode was asked for."""
    if config.graphs_enabled:
        return False
    if config.requested_mode is not None:
        return config.requested_mode.upper() in _OFF
    return config.graphs_enabled is False and config.enforced_by is not None
