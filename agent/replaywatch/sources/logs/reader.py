"""Follows a log: text in, windows with their configurations out."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from replaywatch.contract.errors import UnknownSource
from replaywatch.contract.snapshot import EngineConfig, Fingerprint
from replaywatch.contract.window import BlindSpot, Window, merge_windows
from replaywatch.sources.logs import bars, crashes
from replaywatch.sources.logs.clock import Clock
from replaywatch.sources.logs.engines import DISPATCH_ADVICE, INTERESTING, READERS, engine_of
from replaywatch.sources.logs.lines import LineSplitter
from replaywatch.sources.logs.place import Origin, Place
from replaywatch.sources.logs.prefix import LogLine, peel
from replaywatch.sources.logs.run import EngineRun, Part
from replaywatch.sources.logs.tally import Tally
from replaywatch.sources.recording import Recording

# Messages are sentences; only dumps of arguments are longer. Users' text in a log must not cost time.
_MAX_MESSAGE_CHARS = 4096
_DUMP = re.compile(
    r".{0,300}?(?:with config: |server_args=|non-default args: |LLM Args|PyTorchConfig\(|cuda_graph_config=)"
)
# Engines told to log requests quote what users sent: nothing in such a line is the engine's own word.
_USER_TEXT = re.compile(
    r"Received request |Receive: obj=|Finish: obj=|Generated response |prompt_token_ids|\bprompt: ['\"]"
)
# More than any count, time or size; no engine writes such a number of its own.
_NO_NUMBER = re.compile(r"\d{20}")
WINDOW_NS = 60_000_000_000
MAX_WINDOWS = 512


@dataclass(slots=True)
class _Closed:
    run: EngineRun
    part: Part
    rank: int | None
    window: Window


class LogReader:
    """Turns a log into windows while it is being written.

    Feed text as it comes, cut anywhere; take what is finished whenever it suits. A window closes after `window_ns` of
    the log's own time (or of `now_ns`, for a log that went quiet). The result depends on the text alone, never on
    where it was cut.
    """

    def __init__(self, source: str, *, window_ns: int = WINDOW_NS) -> None:
        self.source = source
        self.window_ns = window_ns
        self._splitter = LineSplitter()
        self._clock = Clock(0)
        self._places: dict[Origin, Place] = {}
        self._closed: list[_Closed] = []
        self._current: Place | None = None
        self._blind: dict[int, BlindSpot] = {}

    @property
    def recognised(self) -> bool:
        """Whether any line came from a known engine."""
        return any(place.runs for place in self._places.values())

    @property
    def has_closed(self) -> bool:
        """Whether a window has closed since the last taking."""
        return bool(self._closed)

    def feed(self, text: str, now_ns: int) -> None:
        """Read a piece of the log. `now_ns` is when it was written, at the latest; it gives stamps their year."""
        self._clock.reference_ns = now_ns
        for line in self._splitter.feed(text):
            self._line(line, now_ns)
        for place in self._places.values():
            for run in place.runs.values():
                if run.opened_ns is not None and now_ns - run.opened_ns >= self.window_ns:
                    self._close(run)

    def close(self) -> None:
        """Close every open window, so that what was read so far is not mixed with what comes."""
        for place in self._places.values():
            for run in place.runs.values():
                self._close(run)

    def finish(self, now_ns: int, *, still_written: bool = False) -> None:
        """The log has ended: read its last line, judge how it ended, close every window."""
        self._clock.reference_ns = now_ns
        for line in self._splitter.finish():
            self._line(line, now_ns)
        end = LogLine("")
        for place in self._places.values():
            if place.last is not None:
                place.skips.close(place.last)
            for run in place.runs.values():
                waiting = crashes.conclude(run, end, still_written)
                if waiting:
                    self._blind[id(run)] = BlindSpot("dispatch", waiting)
                run.capturing = False
                bars.settle(end, run)
                run.opened_ns = run.opened_ns or now_ns
                self._close(run, even_if_empty=not any(c.run is run for c in self._closed))

    def take(self) -> Recording:
        """Windows that closed since the last call, with the snapshots they point to."""
        closed, self._closed = self._closed, []
        windows: list[Window] = []
        configs: dict[str, EngineConfig] = {}
        fingerprints: dict[str, Fingerprint] = {}
        for item in closed:
            window = self._finished(item)
            config, fingerprint = item.run.config_of(window), item.run.fingerprint
            config, fingerprint = replace(config, engine=item.run.engine), replace(fingerprint, engine=item.run.engine)
            configs[config.id], fingerprints[fingerprint.id] = config, fingerprint
            windows.append(replace(window, config_id=config.id, fingerprint_id=fingerprint.id))
        return Recording(
            kind="log",
            source=self.source,
            windows=tuple(sorted(windows, key=lambda w: (w.workload.key, w.start_ns))),
            fingerprints=fingerprints,
            configs=configs,
        )

    def _finished(self, item: _Closed) -> Window:
        run = item.run
        window = replace(item.window, workload=run.workload(self.source, item.part, item.rank))
        blind = self._blind.get(id(run))
        off = run.config.graphs_enabled is False
        if blind is None and not run.dispatch_seen and not off and item.part[0] is None:
            advice = DISPATCH_ADVICE.get(run.engine, "run the process under the probe")
            blind = BlindSpot("dispatch", f"the log does not say how steps were dispatched: {advice}")
        return replace(window, blind=tuple(dict.fromkeys((*window.blind, blind)))) if blind else window

    def _line(self, text: str, now_ns: int) -> None:
        place = self._current
        awaited = place is not None and (place.skips.is_open or place.partial)
        if not awaited and not INTERESTING.search(text):
            if place is not None and place.last is not None:
                place.last.quiet_lines += 1
            return
        if _USER_TEXT.search(text) or _NO_NUMBER.search(text):
            return
        peeled = peel(text, self._clock)
        if "\n" not in peeled.message and "\r" not in peeled.message:
            self._message(peeled, now_ns)
            return
        for message in peeled.message.replace("\r", "\n").split("\n"):
            if message.strip() or not peeled.message:
                self._message(replace(peeled, message=message), now_ns)

    def _message(self, line: LogLine, now_ns: int) -> None:
        place = self._places.get(line.origin)
        claimed = engine_of(line, place.engine if place is not None else None)
        if place is None:
            if claimed is None:
                return
            place = self._places[line.origin] = Place()
        if not place.completes(line):
            return
        if len(line.message) > _MAX_MESSAGE_CHARS and not _DUMP.match(line.message):
            line.message = line.message[:_MAX_MESSAGE_CHARS]
        self._current = place
        run, ended = place.route(line, claimed)
        for old in ended:
            place.skips.close(old)
            self._close(old, even_if_empty=not any(c.run is old for c in self._closed))
        if run is None:
            return
        self._roll(line, run, now_ns)
        self._read(line, run, place)

    def _roll(self, line: LogLine, run: EngineRun, now_ns: int) -> None:
        """Close the window when the log's own time has gone past it."""
        stamp = line.stamp_ns
        if stamp is not None and run.start_ns is not None and stamp - run.start_ns >= self.window_ns:
            self._close(run)
        if run.opened_ns is None:
            run.opened_ns = now_ns
        if stamp is not None:
            run.start_ns = stamp if run.start_ns is None else min(run.start_ns, stamp)
            run.end_ns = stamp if run.end_ns is None else max(run.end_ns, stamp)

    @staticmethod
    def _read(line: LogLine, run: EngineRun, place: Place) -> None:
        reader = READERS.get(run.engine)
        known = (
            place.skips.read(line, run)
            or bars.read(line, run)
            or ("%|" in line.message and "Error" not in line.message)  # a bar of something else
            or (reader is not None and reader(line, run))
            or crashes.read(line, run)
        )
        if not known:
            run.quiet_lines += 1
        bars.settle(line, run)

    def _close(self, run: EngineRun, *, even_if_empty: bool = False) -> None:
        """Close the open window of a run; empty ones are dropped, and too many are merged."""
        start = run.start_ns if run.start_ns is not None else run.opened_ns
        if start is None:
            return
        end = max(run.end_ns or 0, start)
        drained = list(run.drain())
        if not drained and even_if_empty:
            drained = [((None, run.main_phase), None, Tally())]
        for part, rank, tally in drained:
            window = tally.window(run.workload(self.source, part, rank), start, end + 1)
            self._closed.append(_Closed(run, part, rank, window))
        run.start_ns, run.end_ns, run.opened_ns = None, None, None
        if len(self._closed) > MAX_WINDOWS:
            self._thin()

    def _thin(self) -> None:
        """Halve the windows nobody has taken, and close them half as often from now on."""
        self.window_ns *= 2
        waiting: dict[tuple[int, Part, int | None], _Closed] = {}
        thinned: list[_Closed] = []
        for item in self._closed:
            key = (id(item.run), item.part, item.rank)
            earlier = waiting.pop(key, None)
            if earlier is None:
                waiting[key] = item
                thinned.append(item)
            else:
                earlier.window = merge_windows(earlier.window, item.window)
        self._closed = thinned


def unknown(source: str) -> UnknownSource:
    """The error for a text in which no line comes from an engine that is known here."""
    return UnknownSource(
        f"{source}: no line comes from vLLM, SGLang, TensorRT-LLM, llama.cpp, text-generation-inference, transformers "
        "or torch.compile; give the server's own log from its start"
    )
