"""`Emitter`: takes what all ledgers counted and sends it, one window per workload, with its own cost."""

from __future__ import annotations

import os
from time import perf_counter_ns, time_ns
from typing import TYPE_CHECKING, Any

from replaywatch.probe import snapshots, windows, workload
from replaywatch.probe.budget import cost_of_call_ns

if TYPE_CHECKING:
    from replaywatch.probe.session import Session

# After so many emissions snapshots are sent again, for an agent that lost them.
REPEAT_SNAPSHOTS = 60
LAUNCHES = "graph launch times"
COUNTED_ONLY = (
    "replays come so often that seeing each would cost more than budget-ratio allows, so they are only counted: "
    "no host time of launches, no steps from the order of replays, no timed replays, no watch for hangs"
)


class Emitter:
    """The windows of one session. `start_ns` is where the next one begins, `cpu_ns` the helper thread's time so far."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.start_ns = time_ns()
        self.cpu_ns = 0
        self.replayed = False
        self.judging_ns = 0  # of the helper's time since the last window, what judging steps took
        self._first_ns = self.start_ns
        self._frames = 0
        self._cpu_seen_ns = 0
        self._errors = 0
        self._sent = 0
        self._dropped = 0
        self._last_replays = 0
        self._known: tuple[str, str, int] | None = None  # ids of the snapshots that an agent got, and which agent
        self._since_snapshots = 0

    def emit(self, now: int, leaving: bool = False) -> None:
        """Take all counts and send them as one window per workload."""
        session = self._session
        for port in session.ports():
            port.flush()
        if not (
            session.ledger.ever
            or workload.cuda_ready()
            or session.inductor.compile_modes
            or session.steps.any()
            or session.compiled.any()
        ):
            self.start_ns = now
            return
        session.inductor.poll_counters()
        self._notice_overwritten()
        parts, memory = session.ledger.take()
        replays = sum(counts["replays"] for counts, _ in parts.values())
        dispatch, timing = parts.pop(None)
        for adapter in session.adapters:
            memory = adapter.memory() | memory  # what the allocator says goes before the engine's own figure
        timing |= {
            name: tally
            for name, tally in (("replay", session.timer.replay.take()), ("replay_gap", session.timer.gap.take()))
            if tally is not None
        }
        timed = timing.get("replay", {}).get("n", 0)
        results, traced_windows, traced_ns = session.tracing.take()
        traced, traced_timing = windows.merge_traced(results)
        windows.add_traced_timing(timing, traced_timing)
        self._after_first_replays(replays)
        steps, compiled = session.steps.take(), session.compiled.take()
        told = sum(sum(counts.get("steps", {}).values()) for counts in (*steps.values(), *compiled.values()))
        cost = self._cost(replays, told, timed, traced_windows, traced_ns, now)
        times: dict[Any, dict[str, Any]] = {}
        for port in session.ports():
            for place, histograms in port.clock.take().items():
                windows.add_histograms(times.setdefault(place, {}), histograms)
        for component, (counts, captures) in parts.items():
            place = (component, None)
            steps[place] = windows.merge_dispatch(counts, steps.get(place, {}))
            windows.add_histograms(times.setdefault(place, {}), captures)
        # Where an engine says what its decode steps are, calls of compiled functions are parts of them and no steps.
        base = windows.merge_dispatch(dispatch, steps.pop((None, None), compiled.get((None, None), {})))
        windows.add_histograms(timing, times.pop((None, None), {}))
        fingerprint, config = self._take_snapshots()
        common: dict[str, Any] = {"fingerprint_id": fingerprint[0], "config_id": config[0]}
        self._send_with_snapshots(
            windows.window(
                self._who(), self.start_ns, now, base, timing,
                traced=traced, memory=memory, cost=cost, blind=session.sight.blind_spots(),
                observations=session.sight.take_observations(), **common,
            ),
            fingerprint, config,
        )  # fmt: skip
        for component, phase in sorted({*steps, *times}, key=str):
            dispatch, timing = steps.get((component, phase), {}), times.get((component, phase), {})
            who = self._who(component, phase)
            self._send(windows.window(who, self.start_ns, now, dispatch, timing, **common))
        if not leaving:
            session.outlet.flush()
        self.start_ns = now

    def say_the_end(self, now: int) -> None:
        """Send what cannot be seen any more, and nothing that may have failed before."""
        session = self._session
        cost = {"errors": session.sight.errors - self._errors}
        self._send(windows.window(self._who(), self.start_ns, now, {}, cost=cost, blind=session.sight.blind_spots()))

    def _who(self, component: str | None = None, phase: str | None = None) -> dict[str, Any]:
        who = workload.describe(self._session.settings, component, phase, self._session.ledger.device)
        for adapter in self._session.adapters:
            who |= adapter.workload()
        return who if component is None else who | {"component": component}

    def _cost(
        self, replays: int, steps: int, timed: int, traced_windows: int, traced_ns: int, now: int
    ) -> dict[str, Any]:
        session, budget = self._session, self._session.budget
        cpu_ns, self._cpu_seen_ns = self.cpu_ns - self._cpu_seen_ns, self.cpu_ns
        if steps and not budget.step_ns:
            budget.step_ns = cost_of_call_ns(session.practice_step(), lambda _: None, None)
        measured = [port.take_took() for port in session.ports()]  # practice has warm caches, an engine's step does not
        budget.step_ns = max(measured, default=0.0) or budget.step_ns
        hooks_ns, only_counted = budget.hooks_ns(replays, steps), budget.counting_only
        spent_ns = budget.spent_ns(hooks_ns, cpu_ns, timed, traced_ns)
        judging_ns, self.judging_ns = min(cpu_ns, self.judging_ns), 0
        budget.settle(spent_ns, now - self.start_ns, replays, steps * budget.step_ns + judging_ns)
        self._keep_to_the_budget(only_counted)
        sent, dropped, errors = session.outlet.sent, session.outlet.dropped, session.sight.errors
        cost = {
            "hook_ns": int(hooks_ns),
            "hook_calls": replays + steps,
            "helper_cpu_ns": cpu_ns,
            "traced_windows": traced_windows,
            "traced_ns": traced_ns,
            "frames_sent": sent - self._sent,
            "frames_dropped": dropped - self._dropped,
            "throttled": budget.take_throttled(),
            "errors": errors - self._errors,
        }
        self._sent, self._dropped, self._errors = sent, dropped, errors
        return cost

    def _keep_to_the_budget(self, only_counted: bool) -> None:
        """Let the hooks do what the budget allows; `only_counted` says what they did in this window."""
        session, budget = self._session, self._session.budget
        session.recorders.set_sampling(session.settings.time_one_in * budget.stretch)
        if not session.graph_patches.count_only(budget.counting_only):
            return
        if budget.counting_only:
            session.recorders.lay_aside()
        if budget.counting_only or only_counted:
            session.sight.blind(LAUNCHES, COUNTED_ONLY)
        else:
            session.sight.clear(LAUNCHES)

    def _after_first_replays(self, replays: int) -> None:
        self.replayed = bool(replays)
        if replays and not self._last_replays:
            self._session.tracing.again(perf_counter_ns())
        self._last_replays += replays

    def _notice_overwritten(self) -> None:
        session = self._session
        for patches in (session.patches, *(adapter.patches for adapter in session.adapters)):
            for signal in patches.overwritten():
                session.sight.blind(signal, "another tool put its own function over the probe's")

    def _take_snapshots(self) -> tuple[tuple[str, dict[str, Any]], tuple[str, dict[str, Any]]]:
        session = self._session
        extra: dict[str, Any] = dict(session.model)
        for adapter in session.adapters:
            known = adapter.config()
            settings = {**extra.get("settings", {}), **(known.get("settings") or {})}
            extra |= known | ({"settings": settings} if settings else {})
        fingerprint = snapshots.fingerprint(session.settings.model_name, session.ledger.device)
        config = snapshots.config(session.inductor.take_modes(), extra)
        return (
            (snapshots.digest(snapshots.FINGERPRINT_FIELDS, fingerprint), fingerprint),
            (snapshots.digest(snapshots.CONFIG_FIELDS, config), config),
        )

    def _send_with_snapshots(
        self, window: dict[str, Any], fingerprint: tuple[str, dict[str, Any]], config: tuple[str, dict[str, Any]]
    ) -> None:
        """Send a window, and the snapshots where they are new or an agent may lack them. Shape: (id, fields)."""
        outlet, told = self._session.outlet, self._known
        self._since_snapshots += 1
        if told == (fingerprint[0], config[0], outlet.connections) and self._since_snapshots < REPEAT_SNAPSHOTS:
            self._send(window)
            return
        # Frames that wait may be dropped: what they carry is known only once they left.
        sent = self._send(window, dict([fingerprint]), dict([config]))
        self._known = (fingerprint[0], config[0], outlet.connections) if sent else None
        self._since_snapshots = 0

    def _send(
        self,
        window: dict[str, Any],
        fingerprints: dict[str, dict[str, Any]] | None = None,
        configs: dict[str, dict[str, Any]] | None = None,
    ) -> bool:
        self._frames += 1
        key = f"{os.getpid()}-{self._first_ns:x}-{self._frames}"
        return self._session.outlet.send(windows.frame(key, time_ns(), window, fingerprints, configs))
