"""Puts the manifest and the traces into a few tar files, the manifest first."""

from __future__ import annotations

import tarfile
from pathlib import Path

TAR_BYTES = 15_000_000
MOST_TARS = 5
_BLOCK_BYTES = 1536
"""Room for a member's header and padding."""


def assign(files: list[Path]) -> list[list[Path]]:
    """Split the files, in order, into lists whose tars stay below TAR_BYTES."""
    bins: list[list[Path]] = [[]]
    room = TAR_BYTES - 20_480
    for file in files:
        need = file.stat().st_size + _BLOCK_BYTES
        if need > room and bins[-1]:
            bins.append([])
            room = TAR_BYTES - 20_480
        bins[-1].append(file)
        room -= need
    return bins


def _nameless(info: tarfile.TarInfo) -> tarfile.TarInfo:
    info.uid = info.gid = 0
    info.uname = info.gname = ""
    return info


def pack(scratch: Path, out: Path) -> list[Path]:
    """Write corpus-1.tar ... into `out` from the manifest, the traces and the logs in `scratch`; older ones go.

    Raises: ValueError when the files do not fit into MOST_TARS tars.
    """
    manifest = scratch / "manifest.jsonl"
    rest = sorted([*scratch.glob("*.json.gz"), *scratch.glob("*.log")])
    bins = assign([manifest, *rest])
    if len(bins) > MOST_TARS:
        raise ValueError(f"{len(bins)} tars needed, {MOST_TARS} allowed: record fewer items or lower --max-bytes")
    for old in out.glob("corpus-*.tar"):
        old.unlink()
    written = []
    for number, files in enumerate(bins, start=1):
        path = out / f"corpus-{number}.tar"
        with tarfile.open(path, "w") as tar:
            for file in files:
                tar.add(file, arcname=file.name, filter=_nameless)
        written.append(path)
    return written
