"""Where each hook goes, and when: as soon as the module it belongs to has been imported, and not before."""

from __future__ import annotations

import weakref
from types import ModuleType
from typing import TYPE_CHECKING, Any

from replaywatch.probe import cudagraph_trees, inductor, official_hooks, patching, profiler_guard

if TYPE_CHECKING:
    from replaywatch.probe.session import Session


# Importing one of these brings the engine adapters in; a process without an engine does not pay for them.
ENGINES = ("vllm", "sglang", "tensorrt_llm", "transformers", "flashinfer")


def watch(session: Session) -> None:
    """Register all modules of interest with the session's import watch."""
    on = session.imports.on
    if session.settings.graphs:
        on("torch.cuda.graphs", lambda module: place_graphs(session, module))
    else:
        session.sight.blind("graph replays", "graph hooks are switched off by REPLAYWATCH_PROBE_GRAPHS")
    on("torch.cuda", lambda module: when_cuda_starts(session, module))
    on("torch.cuda", lambda _: silence_injected_tracer())
    if session.settings.graph_trace:
        on("torch.cuda", lambda _: place_graph_trace(session))
    on("multiprocessing.util", lambda module: flush_when_children_end(session, module))
    for engine in ENGINES:
        on(engine, lambda _: attach_adapters(session))
    on(profiler_guard.MODULE, lambda module: session.guard.place(session.patches, module))
    if not session.settings.inductor:
        session.sight.blind("inductor", "Inductor hooks are switched off by REPLAYWATCH_PROBE_INDUCTOR")
        return
    hooks = session.inductor
    on("torch._inductor.cudagraph_utils", lambda module: hooks.place_utils(session.patches, module))
    on("torch._inductor.output_code", lambda module: hooks.place_output_code(session.patches, module))
    on("torch._inductor.compile_fx", lambda module: hooks.place_compile(session.patches, module))
    on("torch._dynamo.backends.cudagraphs", lambda module: hooks.place_skip(session.patches, module))
    on(cudagraph_trees.MODULE, lambda module: session.trees.place(session.patches, module))
    on(cudagraph_trees.MODULE, lambda module: hooks.place_skip(session.patches, module))
    assert cudagraph_trees.MODULE in inductor.SKIP_MODULES


def place_graphs(session: Session, module: ModuleType) -> None:
    """Hook `torch.cuda.graphs`: torch's own hooks where they exist, wrapped methods for the rest."""
    kind = getattr(module, "CUDAGraph", None)
    if not isinstance(kind, type):
        session.sight.blind("graph replays", "torch.cuda.graphs has no class CUDAGraph in this version")
        return
    official = official_hooks.available(module)
    if official:
        session.official.place_captures(module)
    if not session.graph_patches.place(session.patches, kind, official) and official:
        session.official.place_replays(module)
        session.sight.clear("graph replays")


def attach_adapters(session: Session) -> None:
    """Load the engine adapters, once; each waits for its own engine. Another thread that comes meanwhile goes on."""
    if session.attaching.acquire(blocking=False):
        from replaywatch.probe.engines.registry import attach

        session.port = attach(session)


def when_cuda_starts(session: Session, module: Any) -> None:
    """Start the helper thread when this process, or a child forked from it, initialises CUDA."""
    lazy_call = getattr(module, "_lazy_call", None)
    if callable(lazy_call):
        found = weakref.ref(session)  # torch may keep what it is given for good

        def wake() -> None:
            alive = found()
            if alive is not None:
                alive.wake()

        lazy_call(wake)
    else:
        session.sight.blind("eager processes", "torch does not say when CUDA starts; seen from the first graph on")


def silence_injected_tracer() -> None:
    """Let the probe speak for this process where the CUDA driver will load the native tracer as well."""
    from replaywatch.probe import injected

    injected.leave_it_to_the_probe()


def place_graph_trace(session: Session) -> None:
    """Begin to trace graphs as a whole just before torch initialises CUDA."""
    from replaywatch.probe import graph_trace

    graph_trace.place(session.patches, patching.loaded("torch._C"), session.tracing, session.sight)


def flush_when_children_end(session: Session, module: Any) -> None:
    """Children of multiprocessing leave without running atexit: give them the last window another way."""

    def in_child(alive: Session) -> None:  # names no session, since multiprocessing keeps it for good
        module.Finalize(None, alive.at_exit, exitpriority=0)

    module.register_after_fork(session, in_child)
