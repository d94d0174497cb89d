"""Nsight Systems SQLite exports become a `Timeline`: kernel level, node level and graph level of tracing.

Columns come and go between schema versions, so each table is asked for what it has. The file is opened read-only.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from replaywatch.contract.errors import UnknownSource, UnreadableSource
from replaywatch.contract.snapshot import Fingerprint
from replaywatch.contract.window import BlindSpot
from replaywatch.sources.calls import COPY, OTHER, REPLAY, call_kind, is_blocking_copy
from replaywatch.sources.recording import Progress
from replaywatch.sources.settling import settle
from replaywatch.sources.timeline import (
    KERNEL,
    LONGEST_NS,
    MEMCPY,
    MEMFILL,
    WHOLE_GRAPH,
    Timeline,
)
from replaywatch.sources.tracemeta import cuda_version

_KERNELS: Final = "CUPTI_ACTIVITY_KIND_KERNEL"
_COPIES: Final = "CUPTI_ACTIVITY_KIND_MEMCPY"
_FILLS: Final = "CUPTI_ACTIVITY_KIND_MEMSET"
_GRAPHS: Final = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
_CALLS: Final = "CUPTI_ACTIVITY_KIND_RUNTIME"
_RANGES: Final = "NVTX_EVENTS"
# Tables that every export has, whatever was recorded.
_MARKS: Final = ("StringIds", "META_DATA_EXPORT", "ANALYSIS_FILE", "TARGET_INFO_SYSTEM_ENV")
_RANGE_TYPES: Final = (59, 60)
_TELL_EVERY_ROWS: Final = 100_000
# Bits of a global thread id below the process.
_PROCESS_SHIFT: Final = 24
_COPY_KINDS: Final = {1: "Memcpy HtoD", 2: "Memcpy DtoH", 8: "Memcpy DtoD", 10: "Memcpy PtoP"}
_PAGEABLE: Final = 0
# What a kernel lasts where a graph-level trace has none outside graphs to compare with.
_TYPICAL_KERNEL_NS: Final = 5000
_NO_TABLES: Final = BlindSpot(
    "kernels", "the export holds no CUDA activity; record with nsys profile --trace=cuda,nvtx while the GPU works"
)
_GRAPH_LEVEL: Final = BlindSpot(
    "graph_kernels",
    "graphs were traced as a whole, so the number of kernels inside them is estimated from their duration; "
    "record with --cuda-graph-trace=node to see them",
)


def read_nsys(path: Path, progress: Progress | None = None) -> Timeline:
    """The timeline of an Nsight Systems SQLite export.

    Raises: UnreadableSource for a damaged database, UnknownSource for one that Nsight did not write or whose schema
    lacks what is needed.
    """
    uri = f"file:{quote(str(path.absolute()))}?mode=ro&immutable=1"
    try:
        with closing(sqlite3.connect(uri, uri=True)) as database:
            database.text_factory = lambda raw: raw.decode("utf-8", "replace")
            timeline = _Export(path, database, progress).read()
    except (sqlite3.Error, UnicodeDecodeError, OverflowError) as error:
        # A damaged schema makes sqlite3 fail while it decodes its own message.
        reason = " ".join(str(error).split())[:120]
        raise UnreadableSource(
            f"{path} is a damaged or unfinished SQLite file ({reason}); export it again with nsys export --type sqlite"
        ) from None
    settle(timeline)
    _estimate_weights(timeline)
    return timeline


class _Export:
    """One open export."""

    def __init__(self, path: Path, database: sqlite3.Connection, progress: Progress | None) -> None:
        self.path, self.database, self.progress = path, database, progress
        self.timeline = Timeline(method="nsys")
        self.done = 0
        self.total = 0
        self.columns: dict[str, set[str]] = {}

    def read(self) -> Timeline:
        """Everything that is of use."""
        tables = {str(name) for (name,) in self.database.execute("SELECT name FROM sqlite_master WHERE type='table'")}
        if not any(mark in tables for mark in _MARKS) and _KERNELS not in tables:
            raise UnknownSource(
                f"{self.path} is an SQLite database, but no Nsight Systems export; make one with "
                "nsys export --type sqlite"
            )
        for table in (_KERNELS, _COPIES, _FILLS, _GRAPHS, _CALLS, _RANGES):
            if table in tables:
                self.columns[table] = {str(r[1]) for r in self.database.execute(f"PRAGMA table_info({table})")}
                self.total += int(self.database.execute(f"SELECT COUNT(*) FROM {table}").fetchone()[0])
        self._read_fingerprints(tables)
        texts = self._texts() if "StringIds" in tables else {}
        self._read_calls(texts)
        for table, kind in ((_KERNELS, KERNEL), (_COPIES, MEMCPY), (_FILLS, MEMFILL), (_GRAPHS, WHOLE_GRAPH)):
            self._read_activities(table, kind, texts)
        self._read_ranges(texts)
        if not any(len(t) for t in self.timeline.devices.values()):
            self.timeline.blind.append(_NO_TABLES)
        elif any(WHOLE_GRAPH in t.kind for t in self.timeline.devices.values()):
            self.timeline.blind.append(_GRAPH_LEVEL)
        if self.progress is not None:
            self.progress(self.total, self.total)
        return self.timeline

    def _schema(self) -> str:
        try:
            rows = self.database.execute("SELECT value FROM META_DATA_EXPORT WHERE name='EXPORT_SCHEMA_VERSION'")
            row = rows.fetchone()
        except sqlite3.Error:
            row = None
        return str(row[0])[:20] if row else "unknown"

    def _rows(self, table: str, needed: tuple[str, ...], wanted: tuple[str, ...]) -> Iterator[tuple[Any, ...]]:
        """Rows of a table; a wanted column that this schema lacks is None. Raises: UnknownSource for a needed one."""
        there = self.columns.get(table)
        if there is None:
            return
        missing = [c for c in needed if c not in there]
        if missing:
            raise UnknownSource(
                f"{self.path} has Nsight schema {self._schema()}, whose {table} lacks {', '.join(missing)}; "
                "export it again with a current nsys"
            )
        columns = ", ".join(f'"{c}"' if c in there else "NULL" for c in (*needed, *wanted))
        cursor = self.database.execute(f"SELECT {columns} FROM {table}")
        while rows := cursor.fetchmany(10_000):
            before = self.done // _TELL_EVERY_ROWS
            self.done += len(rows)
            if self.progress is not None and self.done // _TELL_EVERY_ROWS != before:
                self.progress(min(self.done, self.total), self.total)
            yield from rows

    def _texts(self) -> dict[int, str]:
        return {i: str(v) for i, v in self.database.execute("SELECT id, value FROM StringIds") if isinstance(i, int)}

    def _read_calls(self, texts: dict[int, str]) -> None:
        kinds: dict[object, int] = {}
        names: dict[object, str] = {}
        needed, wanted = ("start", "end", "nameId"), ("globalTid", "correlationId", "returnValue")
        for start, end, name_id, tid, correlation, result in self._rows(_CALLS, needed, wanted):
            if not _is_stretch(start, end):
                self.timeline.dropped += 1
                continue
            kind = kinds.get(name_id)
            if kind is None:
                names[name_id] = texts.get(name_id, "")
                kind = kinds[name_id] = call_kind(names[name_id])
            number = tid if isinstance(tid, int) else 0
            thread = self.timeline.thread(number >> _PROCESS_SHIFT, str(number & 0xFFFFFF))
            thread.runtime_calls.append(start)
            if kind == OTHER:
                continue
            thread.start.append(start)
            thread.end.append(end)
            thread.kind.append(kind)
            thread.correlation.append(_int(correlation))
            if kind == COPY and is_blocking_copy(names[name_id]):
                thread.blocking.add(start)
            if result and isinstance(result, int) and kind <= REPLAY:
                self.timeline.failed_calls[f"error {result}"] += 1

    def _read_activities(self, table: str, kind: int, texts: dict[int, str]) -> None:
        timeline, name_ids = self.timeline, _name_numbers(self.timeline, texts)
        needed = ("start", "end", "deviceId")
        wanted = (
            "correlationId",
            "streamId",
            "globalPid",
            "graphNodeId",
            "graphId",
            "bytes",
            "copyKind",
            "dstKind",
            "demangledName",
            "shortName",
        )
        for row in self._rows(table, needed, wanted):
            start, end, device, correlation, stream, pid, node, graph, size, copy, target, name, short = row
            if not _is_stretch(start, end) or not isinstance(device, int):
                timeline.dropped += 1
                continue
            track = timeline.track(_int(pid) >> _PROCESS_SHIFT, device)
            track.start.append(start)
            track.end.append(end)
            track.correlation.append(_int(correlation))
            track.stream.append(_int(stream))
            track.size.append(_int(size))
            track.name.append(name_ids(kind, name if name is not None else short, copy, target))
            track.kind.append(kind)
            track.graph.append(kind == WHOLE_GRAPH or _int(node) > 0 or (_int(graph) > 0 and kind == KERNEL))

    def _read_ranges(self, texts: dict[int, str]) -> None:
        needed, wanted = ("start", "end"), ("eventType", "text", "textId", "globalTid")
        for start, end, event_type, text, text_id, tid in self._rows(_RANGES, needed, wanted):
            if event_type not in (None, *_RANGE_TYPES) or not _is_stretch(start, end):
                continue
            name = text if isinstance(text, str) else texts.get(text_id, "")
            number = _int(tid)
            process, thread = number >> _PROCESS_SHIFT, str(number & 0xFFFFFF)
            if name.startswith(("aten::", "cudaLaunch")):
                self.timeline.thread(process, thread).cpu_ops.append(start)
                self.timeline.has_cpu_events = True
                continue
            self.timeline.annotate(name, start, end, process, thread)

    def _read_fingerprints(self, tables: set[str]) -> None:
        driver, cuda = self._versions(tables)
        models: dict[int, str] = {}
        if "TARGET_INFO_GPU" in tables:
            columns = {str(r[1]) for r in self.database.execute("PRAGMA table_info(TARGET_INFO_GPU)")}
            if {"id", "name"} <= columns:
                number = "cuDevice" if "cuDevice" in columns else "id"
                rows = self.database.execute(f"SELECT {number}, id, name FROM TARGET_INFO_GPU")
                models = {_int(d if d is not None else i): str(name)[:200] for d, i, name in rows}
        self.timeline.fingerprints = {
            device: Fingerprint(gpu_model=models.get(device), driver=driver, cuda=cuda) for device in range(64)
        }
        if "TARGET_INFO_SESSION_START_TIME" in tables:
            self.timeline.base_ns = self._session_start()

    def _versions(self, tables: set[str]) -> tuple[str | None, str | None]:
        if "TARGET_INFO_SYSTEM_ENV" not in tables:
            return None, None
        rows = self.database.execute(
            "SELECT name, value FROM TARGET_INFO_SYSTEM_ENV WHERE name IN ('NvDriverVersion', 'CudaDriverVersion')"
        )
        found = {str(name): str(value)[:40] for name, value in rows}
        number = found.get("CudaDriverVersion", "")
        return found.get("NvDriverVersion"), cuda_version(int(number)) if number.isdecimal() else None

    def _session_start(self) -> int:
        """Unix time of the trace's zero."""
        try:
            row = self.database.execute("SELECT utcEpochNs FROM TARGET_INFO_SESSION_START_TIME").fetchone()
        except sqlite3.Error:
            return 0
        return _int(row[0]) if row else 0


def _name_numbers(timeline: Timeline, texts: dict[int, str]) -> Callable[[int, object, object, object], int]:
    """A function that numbers the name of an activity, remembering what it numbered."""
    known: dict[tuple[object, ...], int] = {}

    def number(kind: int, name: object, copy: object, target: object) -> int:
        found = known.get((kind, name, copy, target))
        if found is None:
            if kind == KERNEL:
                text = texts.get(name, str(name)) if isinstance(name, int) else str(name or "")
            elif kind == MEMCPY:
                where = " (-> Pageable)" if target == _PAGEABLE else ""
                text = _COPY_KINDS.get(_int(copy), "Memcpy") + where
            else:
                text = "Memset" if kind == MEMFILL else "graph"
            found = known[kind, name, copy, target] = timeline.names.id(text)
        return found

    return number


def _int(value: object) -> int:
    return value if isinstance(value, int) and -(2**62) < value < 2**62 else 0


def _is_stretch(start: object, end: object) -> bool:
    return (
        isinstance(start, int)
        and isinstance(end, int)
        and 0 <= start <= end < 2**62
        and end - start <= LONGEST_NS
        and end > 0
    )


def _estimate_weights(timeline: Timeline) -> None:
    """How many kernels a whole-graph record stands for: its duration over that of a typical kernel outside graphs."""
    for track in timeline.devices.values():
        if WHOLE_GRAPH not in track.kind:
            continue
        outside = sorted(
            track.end[i] - track.start[i] for i in range(len(track)) if track.kind[i] == KERNEL and not track.graph[i]
        )
        typical = max(1, outside[len(outside) // 2] if len(outside) >= 20 else _TYPICAL_KERNEL_NS)
        for i in range(len(track)):
            if track.kind[i] == WHOLE_GRAPH:
                track.weights[i] = max(1, round((track.end[i] - track.start[i]) / typical))
