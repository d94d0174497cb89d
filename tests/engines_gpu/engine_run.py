"""One engine in one process: run batches, time tokens, compare with the probe off. Started by vllm_matrix.py.

Prints one line of JSON at the end. The probe comes in through the plugin, as it would after `pip install`.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from typing import Any

PROMPT_TOKENS = 16
LEAST_PAIRS, COMPARE_S = 6, 40.0
# The probe's thread works every quarter of a second; a block must not always meet it, nor never.
SETTLE_S, TICK_S = 0.7, 0.25


def prompts(batch: int, vocabulary: int = 30000) -> list[dict[str, list[int]]]:
    """Prompts of token numbers; all alike in length, all different."""
    return [
        {"prompt_token_ids": [(7 + 31 * i + 101 * j) % vocabulary + 3 for j in range(PROMPT_TOKENS)]}
        for i in range(batch)
    ]


class Engine:
    """A vLLM engine and the time of its tokens."""

    def __init__(self, options: dict[str, Any], adapter: str | None = None) -> None:
        from vllm import LLM, SamplingParams

        self.sampling = SamplingParams
        self.more: dict[str, Any] = {}
        if adapter is not None:
            from vllm.lora.request import LoRARequest

            self.more["lora_request"] = LoRARequest("adapter", 1, adapter)
        begin = time.perf_counter()
        self.llm = LLM(**options)
        self.start_s = time.perf_counter() - begin

    def block(self, batch: int, tokens: int) -> tuple[float, list[tuple[int, ...]]]:
        """Milliseconds per token of one generate, and the tokens. The prompt's step counts as one token more."""
        sampling = self.sampling(temperature=0.0, max_tokens=tokens, ignore_eos=True, detokenize=False)
        begin = time.perf_counter()
        outputs = self.llm.generate(prompts(batch), sampling, use_tqdm=False, **self.more)
        took_ms = (time.perf_counter() - begin) * 1000
        return took_ms / tokens, [tuple(o.outputs[0].token_ids) for o in outputs]


def measure(engine: Engine, batch: int, tokens: int, seconds: float) -> dict[str, Any]:
    """Blocks for some seconds with the probe on; the stretch of time is given for the windows that belong to it."""
    engine.block(batch, 8)
    time.sleep(1.2)  # the window before ends
    since_ns, blocks = time.time_ns(), []
    while not blocks or time.time_ns() - since_ns < seconds * 1e9:
        blocks.append(engine.block(batch, tokens)[0])
    time.sleep(1.2)  # the window of the last block ends
    return {
        "batch": batch, "since_ns": since_ns, "until_ns": time.time_ns(),
        "ms_per_token": statistics.median(blocks), "blocks": blocks,
    }  # fmt: skip


def turn(worker: object, on: bool) -> None:
    """Start or stop the probe of the process that this runs in; the engine sends it into its workers."""
    import replaywatch.probe as probe

    del worker
    probe.start() if on else probe.stop()


def settle(engine: Engine, batch: int) -> None:
    """Let the probe's start pass, in short blocks: within a block of 0.2 s it would look like 2 % and more."""
    end_s = time.perf_counter() + SETTLE_S + random.uniform(0.0, TICK_S)
    while time.perf_counter() < end_s:
        engine.block(batch, 4)


def compare(engine: Engine, batch: int, tokens: int, pairs: int, is_spread: bool) -> dict[str, Any]:
    """Short alternating blocks with the probe off and on, in an order that swaps from pair to pair.

    `is_spread`: the model runs in other processes. No more pairs than fit into 40 s, and at least six.
    `interval`: the median pair's time on against off, and its 95 % bootstrap interval.
    """

    def switch(on: bool) -> None:
        engine.llm.collective_rpc(turn, args=(on,)) if is_spread else turn(None, on)

    ratios, same, off_ms, on_ms, reference = [], True, [], [], None
    begin = time.perf_counter()
    while len(ratios) < pairs and (len(ratios) < LEAST_PAIRS or time.perf_counter() - begin < COMPARE_S):
        times = {}
        for on in (False, True) if len(ratios) % 2 else (True, False):
            switch(on)
            settle(engine, batch)
            times[on], made = engine.block(batch, tokens)
            reference = reference or made
            same = same and made == reference
        ratios.append(times[True] / times[False])
        off_ms.append(times[False])
        on_ms.append(times[True])
    switch(True)
    drawn = sorted(statistics.median(random.choices(ratios, k=len(ratios))) for _ in range(2000))
    return {
        "batch": batch, "pairs": len(ratios), "tokens": tokens, "same_tokens": same, "ratios": ratios,
        "interval": [statistics.median(ratios), drawn[50], drawn[1949]],
        "ms_off": statistics.median(off_ms), "ms_on": statistics.median(on_ms),
    }  # fmt: skip


def main() -> None:
    """Run what the options ask for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--options", required=True, help="arguments of vllm.LLM as JSON")
    parser.add_argument("--batches", type=int, nargs="+", required=True)
    parser.add_argument("--seconds", type=float, default=5.0, help="length of each measurement")
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--pairs", type=int, default=0, help="most pairs of blocks with the probe off and on; 0: none")
    parser.add_argument("--adapter", help="folder of a LoRA adapter that all requests use")
    given = parser.parse_args()
    engine = Engine(json.loads(given.options), given.adapter)
    result: dict[str, Any] = {"start_s": engine.start_s}
    result["measured"] = [measure(engine, batch, given.tokens, given.seconds) for batch in given.batches]
    if given.pairs:
        is_spread = json.loads(given.options).get("tensor_parallel_size", 1) > 1
        result["compared"] = [
            compare(engine, batch, given.tokens // 2, given.pairs, is_spread) for batch in given.batches
        ]
    print("RESULT " + json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
