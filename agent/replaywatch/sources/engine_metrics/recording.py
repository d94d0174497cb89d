"""Pages of metrics as recordings: one page by itself, or what happened between two."""

from __future__ import annotations

import time
from dataclasses import replace

from replaywatch.contract.errors import UnknownSource
from replaywatch.contract.snapshot import EngineConfig, Fingerprint
from replaywatch.contract.window import Window
from replaywatch.sources.engine_metrics import sglang, trtllm, vllm
from replaywatch.sources.engine_metrics.difference import difference, started_ns
from replaywatch.sources.engine_metrics.exposition import Exposition, parse
from replaywatch.sources.recording import Recording

_ENGINES = (vllm, sglang, trtllm)


def read_metrics(text: str, source: str, now_ns: int | None = None) -> Recording:
    """One page of /metrics: what its process did since it started.

    Units: `now_ns` is when the page was read, Unix nanoseconds.

    Raises: UnreadableSource for a text that is not in the exposition format, UnknownSource when no engine is on it.
    """
    page = parse(text, source)
    now = time.time_ns() if now_ns is None else now_ns
    return recording_of(page, source, started_ns(page) or now, now)


def recording_of(page: Exposition, source: str, start_ns: int, end_ns: int) -> Recording:
    """A page, whole or a difference, as a recording over [start_ns, end_ns)."""
    start, end = min(start_ns, end_ns), max(start_ns + 1, end_ns)
    parts = [p for engine in _ENGINES if page.has(*engine.PREFIXES) for p in engine.parts(page, source, start, end)]
    if not parts:
        raise UnknownSource(
            f"{source}: no metrics of vLLM, SGLang or TensorRT-LLM; give the engine's own /metrics page"
        )
    windows: list[Window] = []
    configs: dict[str, EngineConfig] = {}
    fingerprints: dict[str, Fingerprint] = {}
    for part in parts:
        configs[part.config.id], fingerprints[part.fingerprint.id] = part.config, part.fingerprint
        windows.append(replace(part.window, config_id=part.config.id, fingerprint_id=part.fingerprint.id))
    return Recording(kind="metrics", source=source, windows=tuple(windows), fingerprints=fingerprints, configs=configs)


class MetricsScraper:
    """Makes windows of the pages of one endpoint, each from what changed since the page before; no I/O of its own."""

    def __init__(self, source: str) -> None:
        self.source = source
        self._previous: tuple[Exposition, int] | None = None

    def add(self, text: str, now_ns: int) -> Recording | None:
        """The next page. None for the first one: nothing is known yet of how long its counters took.

        Raises: UnreadableSource, UnknownSource; the page before stays the one to compare with.
        """
        page = parse(text, self.source)
        if self._previous is None:
            recording_of(page, self.source, now_ns, now_ns)  # refuse a foreign page at once
            self._previous = page, now_ns
            return None
        earlier, then_ns = self._previous
        recording = recording_of(difference(earlier, page), self.source, then_ns, now_ns)
        self._previous = page, now_ns
        return recording
