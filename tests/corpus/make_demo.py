"""Turns frames that the probe sent out of real engines into the demo's recordings.

python3 tests/corpus/make_demo.py FRAMES.jsonl NAME POD WHAT ORIGIN.json OUT.jsonl.gz
python3 tests/corpus/make_demo.py --sizes OUT.jsonl.gz ...

Only the windows of decode steps are kept: prefill, which is eager by design, would be workloads of its own. Nothing in
a window is changed but the engine's made-up model name. `--sizes` adds weights, layers and cache to recordings of
probes that did not tell them yet, from the shape of the model that ran (tests/engines_gpu/scenarios.py), and says so in
`origin`.
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
# 22 layers of 44,044,288 parameters, two tables of 32,000 x 2,048 and a norm, of two bytes; 4 heads of 64 cached.
SIZES = {"weight_bytes": 2_200_096_768, "layers": 22, "cache_bytes_per_token": 22_528}
SAID = "weights, layers and cache were added afterwards, from the model's shape"


def is_decode(window: Window) -> bool:
    """A window of the engine's decode steps."""
    return window.workload.phase is None and bool(window.dispatch.steps)


def kept(frame: Batch) -> Batch | None:
    """The frame with its decode windows; None when it has none."""
    windows = tuple(
        replace(w, workload=replace(w.workload, model_name=MODEL_NAME)) for w in frame.windows if is_decode(w)
    )
    return replace(frame, windows=windows) if windows else None


def with_sizes(path: Path) -> None:
    """Add the model's sizes to the configurations of one recording that knows of graphs."""
    header, *lines = gzip.decompress(path.read_bytes()).splitlines()
    frames = [decode(line) for line in lines]
    known = {id_: config for frame in frames for id_, config in frame.configs.items()}
    sized = {id_: replace(c, **SIZES) if c.graphs_enabled is not None else c for id_, c in known.items()}
    ids = {id_: config.id for id_, config in sized.items()}
    changed = [
        replace(
            frame,
            windows=tuple(replace(w, config_id=ids.get(w.config_id or "", w.config_id)) for w in frame.windows),
            configs={ids[id_]: sized[id_] for id_ in frame.configs},
        )
        for frame in frames
    ]
    about = json.loads(header)
    about["origin"]["sizes"] = SAID
    path.write_bytes(gzip.compress(b"\n".join([json.dumps(about).encode(), *map(encode, changed)]) + b"\n", 9, mtime=0))


def main() -> int:
    """Write one recording, or complete some."""
    if sys.argv[1] == "--sizes":
        for name in sys.argv[2:]:
            with_sizes(Path(name))
        return 0
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
