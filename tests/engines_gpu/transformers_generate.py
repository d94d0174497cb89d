"""transformers' `generate` on a GPU, untouched: eager, and with a static cache. What does the probe say of each?

    python tests/engines_gpu/transformers_generate.py --out OUT [--tokens 64] [--seconds 8]

A Llama of 1024 x 16 layers with random weights. Truth is the time per token of alternating calls; the estimate is that
of the detectors from the windows of each stretch. Writes frames.jsonl and result.json into OUT.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / name) for name in ("agent", "detectors", "tests")]

from engines_gpu.frames import Receiver, counted, is_decode, judgements  # noqa: E402

FORMS: dict[str, dict[str, Any]] = {"eager": {}, "static": {"cache_implementation": "static"}}


def model(device: str) -> Any:
    """A Llama shape with random weights."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    shape = LlamaConfig(
        vocab_size=32000, hidden_size=1024, intermediate_size=2816, num_hidden_layers=16, num_attention_heads=16,
        num_key_value_heads=16, max_position_embeddings=1024, pad_token_id=0,
    )  # fmt: skip
    return LlamaForCausalLM(shape).to(device, torch.bfloat16).eval()


def ms_per_token(made: Any, tokens: int, options: dict[str, Any]) -> float:
    """Milliseconds per token of one call."""
    import torch

    ids = torch.full((2, 8), 5, device=made.device)
    begin = time.perf_counter()
    made.generate(ids, max_new_tokens=tokens, min_new_tokens=tokens, do_sample=False, **options)
    if made.device.type == "cuda":
        torch.cuda.synchronize()
    return (time.perf_counter() - begin) * 1000 / tokens


def main() -> int:
    """Run both forms; 0 when the eager one is found and the static one is not."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--device", default="cuda")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    receiver = Receiver(Path(f"/tmp/replaywatch-{os.getpid()}.sock"), given.out / "frames.jsonl")
    import replaywatch.probe

    replaywatch.probe.start(socket=str(receiver.path), window_seconds=1, kernels=True, trace_every_seconds=3)
    made = model(given.device)
    stretches: dict[str, dict[str, Any]] = {}
    for name, options in FORMS.items():
        ms_per_token(made, given.tokens, options)  # compiles where it compiles
        ms_per_token(made, given.tokens, options)
        time.sleep(1.2)
        since_ns, blocks = time.time_ns(), []
        while time.time_ns() - since_ns < given.seconds * 1e9:
            blocks.append(ms_per_token(made, given.tokens, options))
        time.sleep(1.2)
        stretches[name] = {"since_ns": since_ns, "until_ns": time.time_ns(), "ms": statistics.median(blocks)}
    replaywatch.probe.stop()
    receiver.close()
    receiver.path.unlink(missing_ok=True)
    truth = max(0.0, 1 - stretches["static"]["ms"] / stretches["eager"]["ms"])
    for name, stretch in stretches.items():
        since_ns, until_ns = stretch["since_ns"], stretch["until_ns"]
        stretch |= counted(receiver.windows(since_ns, until_ns), is_decode)
        judged = next(iter(judgements(receiver, since_ns, until_ns).values()), None)
        if judged is not None:
            stretch |= {"verdict": judged.verdict, "severity": judged.severity,
                        "findings": [[f.detector, f.title] for f in judged.findings]}  # fmt: skip
            if judged.estimate is not None:
                stretch["rho"] = [judged.estimate.ratio, judged.estimate.low, judged.estimate.high]
        print(name, json.dumps({k: v for k, v in stretch.items() if not k.endswith("_ns")}))
    print(f"measured: {truth:.1%} of the eager time per token comes back with a static cache")
    (given.out / "result.json").write_text(json.dumps({"truth": truth, **stretches}, indent=1))
    eager, static = stretches["eager"], stretches["static"]
    found = eager.get("verdict") == "finding" and eager["steps"].get("eager", 0) > 0
    return 0 if found and static["steps"].get("full", 0) > static["steps"].get("eager", 0) else 1


if __name__ == "__main__":
    sys.exit(main())
