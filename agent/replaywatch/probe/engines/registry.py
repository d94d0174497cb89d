"""All engine adapters, and how a probe session gets them. A new engine is one file of its own and one line here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from replaywatch.probe.engines.flashinfer import FlashInferAdapter
from replaywatch.probe.engines.port import EngineAdapter, Port
from replaywatch.probe.engines.sglang import SglangAdapter
from replaywatch.probe.engines.transformers import TransformersAdapter
from replaywatch.probe.engines.trtllm import TrtllmAdapter
from replaywatch.probe.engines.vllm import VllmAdapter

if TYPE_CHECKING:
    from replaywatch.probe.session import Session

# Most telling last: where two are loaded (an engine that uses transformers), the later one's configuration wins.
ADAPTERS: tuple[type[EngineAdapter], ...] = (
    FlashInferAdapter,
    TransformersAdapter,
    TrtllmAdapter,
    SglangAdapter,
    VllmAdapter,
)


def attach(session: Session) -> Port:
    """Give a session its adapters, and let each wait for its engine. Never raises; costs no import of an engine."""

    def loop_works() -> bool:
        return session.own is not None and session.own.works()

    replays_here = session.ledger.recorders.replays_here
    port = Port(
        session.sight, session.imports, session.steps, session.ledger, replays_here, session.wake,
        loop_works=loop_works, traced=session.tracing.opened,
    )  # fmt: skip
    for kind in ADAPTERS:
        adapter = _placed(kind, port)
        if adapter is not None:
            session.adapters.append(adapter)
    return port


def _placed(kind: type[EngineAdapter], port: Port) -> EngineAdapter | None:
    try:
        adapter = kind(port)
        adapter.place()
    except Exception as error:  # the probe's border
        port.sight.fault(f"the adapter for {kind.name}", error)
        return None
    return adapter
