"""A small disk of its own, which can be filled, freed and made larger: a tmpfs, mounted for a test. Takes root."""

from __future__ import annotations

import subprocess
from contextlib import suppress
from pathlib import Path
from types import TracebackType

MIB = 1 << 20


class NoDisk(Exception):
    """No disk can be mounted here; the text says why."""


class SmallDisk:
    """Mounted while it is a context; `path` is its root, which everybody may write to. Raises: NoDisk."""

    def __init__(self, path: Path, size_bytes: int) -> None:
        self.path = path
        self._ballast = path / "ballast"
        self._size_bytes = size_bytes

    def __enter__(self) -> SmallDisk:
        self.path.mkdir(parents=True, exist_ok=True)
        try:
            self._mount("-t", "tmpfs", "-o", f"size={self._size_bytes},mode=0777", "replaywatch-test")
        except (OSError, subprocess.CalledProcessError) as error:
            raise NoDisk(f"a disk cannot be mounted here ({error}); it takes root") from None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Lazily: what still has a file open there is ended by whoever started it.
        subprocess.run(["umount", "--lazy", str(self.path)], check=False, capture_output=True)

    def fill(self) -> None:
        """Leave no room at all."""
        with suppress(OSError), self._ballast.open("ab", buffering=0) as out:
            for size in (MIB, 4096, 1):
                with suppress(OSError):
                    while out.write(b"x" * size):
                        pass

    def free(self) -> None:
        """Give the room back that `fill` took."""
        self._ballast.unlink(missing_ok=True)

    def grow(self, size_bytes: int) -> None:
        """Make the disk larger, as an operator would."""
        self._mount("-o", f"remount,size={size_bytes}", "replaywatch-test")

    def _mount(self, *arguments: str) -> None:
        subprocess.run(["mount", *arguments, str(self.path)], check=True, capture_output=True)
