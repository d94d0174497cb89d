"""`Evidence`: all that a detector may look at for one workload; put together from windows, whoever made them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from functools import reduce

from replaywatch.contract.record import record
from replaywatch.contract.snapshot import EngineConfig, Fingerprint
from replaywatch.contract.window import Window, Workload, merge_windows
from replaywatch.detectors.figures import Figures, figures_of
from replaywatch.detectors.peers import CohortSummary
from replaywatch.detectors.sudden_state import SuddenState, advance


@record(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What is known of one workload.

    `recent` is the last horizon (a minute or two live, the whole file for a recording), `lifetime` everything since
    the process started or the recording began. `is_recording` says that nothing more will come: a recording is judged
    on what it has, a live workload may still warm up. `peers` is what replicas with the same fingerprint show, where
    somebody knows them; `sudden` what its windows taught one by one; `previous_fingerprint` the one before a change;
    `read` what somebody has read out of `recent` already.
    """

    workload: Workload
    recent: Window
    lifetime: Window
    config: EngineConfig | None = None
    fingerprint: Fingerprint | None = None
    is_recording: bool = False
    peers: CohortSummary | None = None
    sudden: SuddenState | None = None
    previous_fingerprint: Fingerprint | None = None
    read: tuple[Window, Figures] | None = field(default=None, compare=False, repr=False)

    @property
    def figures(self) -> Figures:
        """The figures of `recent`; read anew unless `read` holds those of this very window."""
        if self.read is not None and self.read[0] is self.recent:
            return self.read[1]
        return figures_of(self.recent)


def gather(
    windows: Iterable[Window],
    *,
    fingerprints: Mapping[str, Fingerprint] | None = None,
    configs: Mapping[str, EngineConfig] | None = None,
    horizon_ns: int | None = None,
    is_recording: bool = False,
) -> Evidence:
    """The evidence in the windows of one workload, in any order.

    `horizon_ns` bounds `recent` to windows that end within it before the last one; None takes all.
    Raises: ValueError when there are no windows.
    """
    ordered = sorted(windows, key=lambda w: (w.end_ns, w.start_ns))
    if not ordered:
        raise ValueError("evidence needs at least one window")
    since = ordered[-1].end_ns - horizon_ns if horizon_ns is not None else None
    recent = reduce(merge_windows, [w for w in ordered if since is None or w.end_ns > since])
    lifetime = reduce(merge_windows, ordered)
    sudden = reduce(advance, ordered, SuddenState())
    return Evidence(
        workload=lifetime.workload,
        recent=recent,
        lifetime=lifetime,
        config=(configs or {}).get(lifetime.config_id or ""),
        fingerprint=(fingerprints or {}).get(lifetime.fingerprint_id or ""),
        is_recording=is_recording,
        sudden=sudden,
        previous_fingerprint=(fingerprints or {}).get(sudden.previous_fingerprint_id or ""),
    )
