"""Turns frames that the probe sent out of real engines into the demo's recordings.

python3 tests/corpus/make_demo.py FRAMES.jsonl NAME POD WHAT ORIGIN.json OUT.jsonl.gz

Only the windows of decode steps are kept: prefill, which is eager by design, would be workloads of its own. Nothing in
a window is changed but the engine's made-up model name.
"""

from __future__ import annotations

import gzip
import json
import sys
from dataclasses import replace
from pathlib import Path

from replaywatch.contract.window import Window
from replaywatch.contract.wire import Batch, decode, encode

MODEL_NAME = "llama-1.1b"


def is_decode(window: Window) -> bool:
    """A window of the engine's decode steps."""
    return window.workload.phase is None and bool(window.dispatch.steps)


def kept(frame: Batch) -> Batch | None:
    """The frame with its decode windows; None when it has none."""
    windows = tuple(
        replace(w, workload=replace(w.workload, model_name=MODEL_NAME)) for w in frame.windows if is_decode(w)
    )
    return replace(frame, windows=windows) if windows else None


def main() -> int:
    """Write one recording."""
    source, name, pod, what, origin, out = sys.argv[1:]
    frames = [decode(line) for line in Path(source).read_bytes().splitlines() if line.strip()]
    chosen = [frame for raw in frames if (frame := kept(raw)) is not None]
    snapshots = {k: v for frame in frames for k, v in frame.fingerprints.items()}
    configs = {k: v for frame in frames for k, v in frame.configs.items()}
    chosen[0] = replace(chosen[0], fingerprints=snapshots, configs=configs)
    header = {"name": name, "pod": pod, "what": what, "origin": json.loads(Path(origin).read_text())}
    lines = [json.dumps(header).encode(), *map(encode, chosen)]
    Path(out).write_bytes(gzip.compress(b"\n".join(lines) + b"\n", 9, mtime=0))
    print(f"{out}: {len(chosen)} frames, {Path(out).stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
