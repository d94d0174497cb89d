from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from sqlalchemy import select

from collector.material import workload
from collector.rig import Rig
from replaywatch.collector.moving import export_store, import_store
from replaywatch.collector.store import Store
from replaywatch.collector.tables import Base
from replaywatch.contract.errors import StoreError


def filled(rig: Rig) -> None:
    rig.tick("page", ticks=3)
    rig.tick("healthy", ticks=7, who=workload("pod-ü"))
    rig.detection.close()


def content(store: Store) -> dict[str, list[object]]:
    with store.session() as session:
        return {t.name: sorted(map(repr, session.execute(select(t)).mappings())) for t in Base.metadata.sorted_tables}


def target(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> str:
    if kind == "postgresql":
        return str(request.getfixturevalue("postgres").database("t1"))
    return f"sqlite:///{tmp_path / 'other.db'}"


@pytest.mark.parametrize("to", ["sqlite", "postgresql"])
def test_a_store_moves_from_any_kind_to_any_kind_with_all_its_rows(
    rig: Rig, to: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    filled(rig)
    path = tmp_path / "export.gz"
    rows = export_store(rig.store, path)
    before = content(rig.store)
    assert rows == sum(map(len, before.values()))
    url = target(to, tmp_path, request)
    other = Store.open(url)
    assert import_store(other, path) == rows
    assert content(other) == before
    other.close()
    moved = Rig(url)
    moved.clock.now_ns = rig.clock.now_ns
    moved.detection.tick()
    lifetimes = {w.id: w.lifetime for w in rig.detection.view.workloads}
    assert {w.id: w.lifetime for w in moved.detection.view.workloads} == lifetimes
    moved.tick("page", ticks=3)
    assert len(moved.incidents("open")) == 1
    moved.stop()


def test_a_store_that_is_not_empty_is_left_alone(rig: Rig, tmp_path: Path) -> None:
    filled(rig)
    path = tmp_path / "export.gz"
    export_store(rig.store, path)
    before = content(rig.store)
    with pytest.raises(StoreError, match="not empty"):
        import_store(rig.store, path)
    assert content(rig.store) == before


@pytest.mark.parametrize("damage", ["cut", "tail", "flip", "other", "missing", "layout"])
def test_a_damaged_file_is_refused_and_nothing_is_imported(rig: Rig, tmp_path: Path, damage: str) -> None:
    filled(rig)
    path, other = tmp_path / "export.gz", Store.open(f"sqlite:///{tmp_path / 'new.db'}")
    export_store(rig.store, path)
    lines = gzip.decompress(path.read_bytes()).splitlines(keepends=True)
    packed = path.read_bytes()
    head = {**json.loads(lines[0]), "layout": "9999"}
    path.write_bytes(
        {
            "cut": packed[: len(packed) // 2],
            "tail": gzip.compress(b"".join(lines[:-3])),
            "flip": packed[:200] + bytes([packed[200] ^ 255]) + packed[201:],
            "other": gzip.compress(b"{}\n"),
            "missing": b"",
            "layout": gzip.compress(json.dumps(head).encode() + b"\n" + b"".join(lines[1:])),
        }[damage]
    )
    with pytest.raises(StoreError):
        import_store(other, path)
    assert not any(content(other).values())
    other.close()


def test_an_export_that_cannot_be_written_leaves_no_half_of_one(rig: Rig, tmp_path: Path) -> None:
    filled(rig)
    with pytest.raises(StoreError, match="cannot be written"):
        export_store(rig.store, tmp_path / "no" / "such" / "folder.gz")
    assert not list(tmp_path.glob("*.part"))
