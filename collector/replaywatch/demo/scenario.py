"""The demo's recordings: frames that the probe sent on a real GPU, with where they come from.

A file is JSON lines, gzipped: first a header (`name`, `pod`, `what`, `origin`), then frames in the wire form.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.resources import files
from typing import Any

from replaywatch.contract.errors import UnreadableSource, WireError
from replaywatch.contract.window import Window
from replaywatch.contract.wire import Batch, decode


@dataclass(frozen=True, slots=True)
class Scenario:
    """One recorded workload. `origin`: machine, versions and date of the recording; frames in order of time."""

    name: str
    pod: str
    what: str
    origin: Mapping[str, str]
    frames: tuple[Batch, ...]

    @property
    def length_ns(self) -> int:
        """From the start of the first window to the end of the last."""
        windows = [w for frame in self.frames for w in frame.windows]
        return max(w.end_ns for w in windows) - min(w.start_ns for w in windows)


def load_scenarios() -> tuple[Scenario, ...]:
    """All recordings that the package ships, in order of their file names. Raises: UnreadableSource."""
    folder = files("replaywatch.demo") / "recordings"
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".jsonl.gz"))
    return tuple(read_scenario(name, (folder / name).read_bytes()) for name in names)


def read_scenario(name: str, data: bytes) -> Scenario:
    """One recording. Raises: UnreadableSource."""
    try:
        header, *lines = gzip.decompress(data).splitlines()
        about: dict[str, Any] = json.loads(header)
        frames = tuple(decode(line) for line in lines if line.strip())
        return Scenario(about["name"], about["pod"], about["what"], about["origin"], frames)
    except (OSError, EOFError, ValueError, KeyError, TypeError, WireError) as error:
        raise UnreadableSource(f"the demo's recording {name} is damaged ({error}); reinstall replaywatch") from None


def placed(window: Window, scenario: Scenario, shift_ns: int) -> Window:
    """A window as if it came from the scenario's pod, moved in time."""
    workload = replace(window.workload, namespace="demo", pod=scenario.pod, container="server")
    return replace(window, workload=workload, start_ns=window.start_ns + shift_ns, end_ns=window.end_ns + shift_ns)
