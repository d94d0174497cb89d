"""Runs inside the serving process; standard library and contract only.

    import replaywatch.probe
    replaywatch.probe.start()

Importing this package imports nothing else; `start` costs a few milliseconds. Nothing here ever raises into the
process that is watched, blocks it, or holds on to a graph, a tensor or a text of it.
"""

from __future__ import annotations

from typing import Any

__all__ = ["describe_model", "record_step", "start", "stop", "throwaway"]


def start(**options: object) -> bool:
    """Start the probe in this process; True when it runs. Never raises, and a second call changes nothing.

    Options are the rows of `replaywatch.probe.settings.TABLE`, also read from REPLAYWATCH_PROBE_*.
    """
    from replaywatch.probe.session import start as begin

    return begin(**options)


def stop() -> None:
    """Take all hooks off and send the last window. Never raises."""
    from replaywatch.probe.session import stop as end

    end()


def record_step(mode: str, **about: Any) -> None:
    """Say what became of one step of a loop of your own (full, piecewise, eager); see `probe.steps.StepLedger.record`.

    Call it once a step, at the same place: the time to the next call is the step's. Decode steps share a window with
    the graphs of the process. `context_tokens` beside `batch` says how long the sequences of a decode step are, all
    together; it makes the cost of eager steps sharper. Does nothing where the probe does not run, and never raises.
    """
    from replaywatch.probe.session import current

    session = current()
    if session is None:
        return
    try:
        session.record_step(mode, **about)
    except Exception as error:  # the probe's border
        session.sight.fault("record_step", error)


def describe_model(
    model: Any = None,
    *,
    weight_bytes: int | None = None,
    layers: int | None = None,
    cache_bytes_per_token: int | None = None,
) -> None:
    """Say what a step of a loop of your own must read, so that its eager steps have a cost without a kernel trace.

    Shape: `model` a torch module whose parameters are counted, with the layers and heads of its Hugging Face `config`
    where it has one; numbers that are given go before. `weight_bytes` and `layers` are those of this device,
    `cache_bytes_per_token` what a token of context takes of the key-value cache there; how long the sequences are,
    `record_step` says. Supported engines say it themselves. Call it after `start`. Does nothing where the probe does
    not run, and never raises.
    """
    from replaywatch.probe.session import current

    session = current()
    if session is None:
        return
    try:
        session.describe_model(
            model, weight_bytes=weight_bytes, layers=layers, cache_bytes_per_token=cache_bytes_per_token
        )
    except Exception as error:  # the probe's border
        session.sight.fault("describe_model", error)


class throwaway:
    """Label captures that begin inside as throw-away: engines capture such graphs to measure memory.

    with replaywatch.probe.throwaway():
        runner.profile_cudagraph_memory()
    """

    def __enter__(self) -> None:
        from replaywatch.probe.session import current

        self._session = current()
        if self._session is not None:
            self._session.ledger.enter_throwaway()

    def __exit__(self, *error: object) -> None:
        if self._session is not None:
            self._session.ledger.leave_throwaway()
