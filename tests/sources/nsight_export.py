"""Builds small Nsight Systems SQLite exports, with the columns of schema 3.x or fewer. Times are nanoseconds."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

COLUMNS = {
    "CUPTI_ACTIVITY_KIND_KERNEL": "start end deviceId streamId correlationId globalPid demangledName shortName "
    "graphNodeId graphId",
    "CUPTI_ACTIVITY_KIND_MEMCPY": "start end deviceId streamId correlationId globalPid bytes copyKind dstKind",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": "start end deviceId streamId correlationId globalPid graphId",
    "CUPTI_ACTIVITY_KIND_RUNTIME": "start end globalTid correlationId nameId returnValue",
    "NVTX_EVENTS": "start end eventType text textId globalTid",
    "TARGET_INFO_GPU": "id cuDevice name",
    "TARGET_INFO_SYSTEM_ENV": "name value",
    "TARGET_INFO_SESSION_START_TIME": "utcEpochNs",
    "META_DATA_EXPORT": "name value",
    "StringIds": "id value",
}
KERNELS, COPIES, GRAPHS, CALLS, RANGES = list(COLUMNS)[:5]


class NsightExport:
    """Rows by table; `now` is the host's clock, `free` when the device is idle again."""

    def __init__(self, process: int = 145, device: int = 0) -> None:
        self.rows: dict[str, list[dict[str, object]]] = {}
        self.process, self.device = process, device
        self.texts: dict[str, int] = {}
        self.now = 1_000_000
        self.free = 0
        self.correlation = 10

    def add(self, table: str, **values: object) -> None:
        self.rows.setdefault(table, []).append(values)

    def text(self, value: str) -> int:
        return self.texts.setdefault(value, len(self.texts) + 1)

    @property
    def tid(self) -> int:
        return (self.process << 24) + self.process

    def call(self, name: str, ns: int = 4_000, result: int = 0) -> int:
        self.correlation += 1
        self.add(
            CALLS,
            start=self.now,
            end=self.now + ns,
            globalTid=self.tid,
            correlationId=self.correlation,
            nameId=self.text(name),
            returnValue=result,
        )
        self.now += ns
        return self.correlation

    def activity(self, table: str, correlation: int, ns: int, **values: object) -> None:
        begin = max(self.now, self.free)
        self.free = begin + ns
        where = {"deviceId": self.device, "streamId": 7, "globalPid": self.process << 24}
        self.add(table, start=begin, end=self.free, correlationId=correlation, **where, **values)

    def kernel(self, name: str, ns: int = 3_000) -> None:
        number = self.text(name)
        correlation = self.call("cudaLaunchKernel_v7000")
        self.activity(KERNELS, correlation, ns, demangledName=number, shortName=number)

    def replay(self, kernels: int, level: str) -> None:
        """A graph launch as graph-level tracing, node-level tracing or a tracer without node ids shows it."""
        correlation = self.call("cudaGraphLaunch_v10000", 9_000)
        if level == "graph":
            self.activity(GRAPHS, correlation, kernels * 3_000, graphId=5)
            return
        for node in range(kernels):
            name = self.text(f"node_{node}")
            self.activity(
                KERNELS,
                correlation,
                3_000,
                demangledName=name,
                shortName=name,
                graphNodeId=100 + node if level == "node" else None,
            )

    def range(self, name: str, begin: int) -> None:
        self.add(RANGES, start=begin, end=self.now, eventType=59, text=name, globalTid=self.tid)

    def write(self, path: Path, without: tuple[str, ...] = (), tables: tuple[str, ...] = tuple(COLUMNS)) -> Path:
        """The database, lacking the named columns and all tables that have no rows."""
        self.rows["StringIds"] = [{"id": number, "value": text} for text, number in self.texts.items()]
        path.unlink(missing_ok=True)
        with contextlib.closing(sqlite3.connect(path)) as database:
            for table in tables:
                columns = [c for c in COLUMNS[table].split() if c not in without]
                if table not in self.rows:
                    continue
                quoted = ", ".join(f'"{c}"' for c in columns)
                database.execute(f"CREATE TABLE {table} ({quoted})")
                marks = ", ".join("?" for _ in columns)
                values = [[row.get(c) for c in columns] for row in self.rows[table]]
                database.executemany(f"INSERT INTO {table} VALUES ({marks})", values)
            database.commit()
        return path
