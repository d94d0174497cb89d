"""What a decode step takes as one graph, where no kernel was traced: from what it must read, and its layers.

A decode step reads every weight once and the cache of its sequences, and a captured one spends little beside that:

    T_graph = f x (weights + sequences x context x cache of a token) / memory bandwidth + g x layers

and no less than lies between two forwards, with a likely, a high and a low (f, context, g). The high one
bounds what graphs can bring back from below, and severity rests on that. Engines tell the context of their sequences;
where none does, it is assumed. It needs the probe's counts and step times only, so it costs the service nothing.

Measured beside it: vLLM on H200s, 1.1B parameters, batches 1 to 48, eager and PIECEWISE, one and two devices;
transformers' generate; a decoder of our own. docs/engines.md has how far off it was.

Not guessed: devices that are cut up (MIG), shared with another process or unknown, pipelines, whose stages wait for one
another, and batches so large that arithmetic, not memory, takes the time.

Of a sparse model a step reads the experts that some token takes. Where tokens spread evenly those are a share of
1 - (1 - k/E)^tokens; tokens that agree on experts read fewer, so this holds from above. Where several ranks' batches
meet in the experts, all are taken as read. What routing takes of a layer was not measured, and is allowed for.

Layers that see the last tokens only read no more of the cache than those. Layers that keep a state in place of a cache
are taken for full ones.

Between two forwards the host schedules and samples, or waits for the device, which no graph shortens. Where drafts are
made there, it says nothing.

Bad at: contexts far longer than assumed, where nobody tells them; waits for requests that are shorter than a few steps
look like steps, so the middle step counts where it is shorter than the mean.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from replaywatch.contract.histogram import merge_histograms
from replaywatch.contract.snapshot import EngineConfig
from replaywatch.contract.verdict import Estimate, EvidenceItem
from replaywatch.detectors import readings
from replaywatch.detectors.evidence import Evidence
from replaywatch.detectors.figures import mean_size, usual_step_of

METHOD: Final = "least time to read weights and cache"
MIN_STEPS: Final = 50
# Above it arithmetic takes more than reading on every device of the table, for 16-bit weights.
MOST_SEQUENCES: Final = 128
# A share that is likely worth a page, where the low end says nothing, is worth a word.
WORTH_A_WORD: Final = 0.15
# Tokens of a step that agree on experts as much as is thought possible read what this share of them would.
AGREEING: Final = 0.25
# Steps that are eager on purpose say nothing of graphs.
_PHASES: Final = (None, "decode")
# Engines whose captured steps were measured, and took no longer than the slow pace that they are given.
_SERVING_ENGINES: Final = ("vllm", "sglang", "trtllm", "tgi")

# Bytes per second of the device's memory, by a part of its name; the first that fits. Source: NVIDIA's data sheets.
_BANDWIDTHS: Final = (
    ("GB300", 8.0e12), ("B300", 8.0e12), ("GB200", 8.0e12), ("B200", 8.0e12), ("GH200", 4.0e12), ("H200", 4.8e12),
    ("H20", 4.0e12), ("H100 NVL", 3.9e12), ("H100 PCIE", 2.0e12), ("H100", 3.35e12), ("H800 PCIE", 2.0e12),
    ("H800", 3.35e12), ("A100-SXM4-40GB", 1.55e12), ("A100-PCIE-40GB", 1.55e12), ("A100", 1.94e12), ("A800", 1.94e12),
    ("L40S", 8.64e11), ("L40", 8.64e11), ("L4", 3.0e11), ("A40", 6.96e11), ("A10G", 6.0e11), ("A10", 6.0e11),
    ("A30", 9.33e11), ("RTX 5090", 1.79e12), ("RTX 4090", 1.01e12), ("RTX 3090", 9.36e11),
    ("RTX PRO 6000", 1.6e12), ("RTX 6000 ADA", 9.6e11), ("RTX A6000", 7.68e11), ("V100", 9.0e11), ("T4", 3.2e11),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Pace:
    """How a captured step goes.

    `reading` is times the least time to read, `layer_ns` nanoseconds beside that for each layer, `between_ns` the same
    where ranks share each layer (two collectives of small messages), `routing_ns` where it is sparse, `context` tokens
    of context a sequence where nobody tells them; `host` times what lies between two forwards, which graphs do not
    bring back: no step is shorter.
    """

    reading: float
    layer_ns: float
    between_ns: float
    routing_ns: float
    context: int
    host: float


# A layer took 50 to 170 us beside reading in full graphs of vLLM on H200s, with the engine's own time between steps, 76
# to 96 on two of them, 170 in transformers' compiled step.
# What lies between forwards was not measured beside it yet, so it counts in full where it is likely and
# by half where most is claimed.
LIKELY: Final = Pace(1.2, 70_000.0, 20_000.0, 30_000.0, 1024, 1.0)
SLOW: Final = Pace(1.5, 200_000.0, 50_000.0, 100_000.0, 4096, 1.2)
SLOW_ENGINE: Final = Pace(1.5, 170_000.0, 50_000.0, 100_000.0, 4096, 1.2)
FAST: Final = Pace(1.0, 40_000.0, 10_000.0, 0.0, 0, 0.5)


def bandwidth_of(gpu_model: str | None) -> float | None:
    """Bytes per second that a device reads from its memory; None where its name is not in the table."""
    name = (gpu_model or "").upper()
    return next((rate for part, rate in _BANDWIDTHS if _is_word(part, name)), None)


def _is_word(part: str, name: str) -> bool:
    """Whether a name holds the words of a part, not only its letters: an A100 is no A10."""
    at = name.find(part)
    while at >= 0:
        after = name[at + len(part) : at + len(part) + 1]
        if not after.isalnum() and not name[at - 1 : at].isalnum():
            return True
        at = name.find(part, at + 1)
    return False


def estimate_by_roofline(evidence: Evidence) -> Estimate | None:
    """The recoverable share of steps that are not full replays; None where sizes, device or times are unknown."""
    config, workload = evidence.config, evidence.workload
    if config is None or not config.weight_bytes or not config.layers or workload.phase not in _PHASES:
        return None
    if workload.component == "draft":  # the sizes that are told are those of the main model
        return None
    if _is_cut_or_shared(evidence) or config.settings.get("pipeline_parallel_size", "1") != "1":
        return None
    rate = bandwidth_of(evidence.fingerprint.gpu_model if evidence.fingerprint is not None else None)
    step_ns, sequences = _unreplayed_step_ns(evidence), mean_size(evidence.recent.dispatch.batch_sizes)
    if rate is None or step_ns is None or sequences is None or sequences > MOST_SEQUENCES:
        return None
    token, layers = config.cache_bytes_per_token or 0, config.layers
    windowed, window = config.window_bytes_per_token or 0, config.window_tokens or 0
    read, least = _weights_read(config, max(sequences, _tokens_a_step(evidence) or 0))
    is_shared, is_sparse = (config.tensor_parallel_size or 1) > 1, bool(config.expert_bytes)
    longest, context = _longest_context(config), context_of(evidence)
    host_ns = 0.0 if config.speculative_tokens else readings.between_forwards_ns(evidence) or 0.0

    def ratio(pace: Pace) -> float:
        held = min(pace.context, longest) if context is None else context
        weights = least if pace is FAST else read
        cache = held * token - max(0.0, held - window) * windowed
        reading_ns = (weights + sequences * cache) / rate * 1e9
        layer_ns = pace.layer_ns + is_shared * pace.between_ns + is_sparse * pace.routing_ns
        graph_ns = max(pace.reading * reading_ns + layer_ns * layers, pace.host * host_ns)
        return min(1.0, max(0.0, 1.0 - graph_ns / step_ns))

    share = ratio(LIKELY)
    return Estimate(
        ratio=share,
        low=ratio(SLOW_ENGINE if config.engine in _SERVING_ENGINES else SLOW),
        high=ratio(FAST),
        step_us=step_ns / 1000,
        graph_step_us=step_ns * (1 - share) / 1000,
        method=METHOD,
    )


def is_uncertain(estimate: Estimate) -> bool:
    """Whether much is likely recoverable and nothing is certain, so that it is neither a fault nor healthy."""
    return estimate.method == METHOD and estimate.severity == "none" and estimate.ratio >= WORTH_A_WORD


def size_items(evidence: Evidence) -> tuple[EvidenceItem, ...]:
    """What the estimate was made from."""
    config, context = evidence.config, context_of(evidence)
    if config is None or config.weight_bytes is None or config.layers is None:
        return ()
    items = [EvidenceItem("weights on this device", config.weight_bytes, "bytes", "the loaded model")]
    if config.expert_bytes:
        items.append(EvidenceItem("of them routed experts", config.expert_bytes, "bytes", "the loaded model"))
    items.append(EvidenceItem("layers on this device", config.layers, "", "the model's configuration"))
    if config.window_bytes_per_token and config.window_tokens:
        items.append(EvidenceItem("window of some layers", config.window_tokens, "tokens", "the model's configuration"))
    if context is not None:
        items.append(EvidenceItem("context of a sequence", round(context), "tokens", evidence.recent.origin))
    items += readings.between_forwards_items(evidence)
    device = evidence.recent.device
    if device is not None and device.active_ratio is not None:
        items.append(EvidenceItem("device active", round(device.active_ratio, 4), "ratio", "NVML"))
    return tuple(items)


def context_of(evidence: Evidence) -> float | None:
    """Usual context of a decoded sequence in tokens, where an engine tells it."""
    dispatch = evidence.recent.dispatch
    if not dispatch.context_tokens or not dispatch.context_sequences:
        return None
    return dispatch.context_tokens / dispatch.context_sequences


def _weights_read(config: EngineConfig, tokens: float) -> tuple[float, float]:
    """Bytes of the weights that a step of some tokens reads: at most, and where its tokens agree on experts."""
    whole, routed = float(config.weight_bytes or 0), float(config.expert_bytes or 0)
    if not routed or not config.experts or not config.experts_per_token:
        return whole, whole
    one = config.experts_per_token / config.experts

    def read(spread: float) -> float:
        return whole - routed * float((1 - one) ** max(1.0, spread))

    return (whole if (config.data_parallel_size or 1) > 1 else read(tokens)), read(tokens * AGREEING)


def _tokens_a_step(evidence: Evidence) -> float | None:
    """Real tokens of a step, more than its sequences where drafts are verified."""
    dispatch = evidence.recent.dispatch
    steps = sum((dispatch.steps or {}).values())
    return dispatch.real_tokens / steps if dispatch.real_tokens and steps else None


def _unreplayed_step_ns(evidence: Evidence) -> float | None:
    """The usual time of eager and piecewise steps, where those are nearly all steps."""
    steps = evidence.recent.dispatch.steps or {}
    total = sum(steps.values())
    if total < MIN_STEPS or steps.get("full", 0) > 0.05 * total:
        return None
    by_mode = evidence.recent.timing.step_by_mode or {}
    periods = merge_histograms(h for mode, h in by_mode.items() if mode != "full")
    if periods is None or periods.count < MIN_STEPS:
        return None
    usual_us, _ = usual_step_of(periods)
    middle_ns = periods.quantile(0.5)
    return min(usual_us * 1000, middle_ns) if usual_us and middle_ns else None


def _longest_context(config: EngineConfig) -> int:
    """Tokens that a sequence cannot be longer than; the longest assumed where the engine does not say."""
    told = config.settings.get("max_model_len") or config.settings.get("context_length") or ""
    return int(told) if told.isdecimal() else SLOW.context


def _is_cut_or_shared(evidence: Evidence) -> bool:
    name = evidence.fingerprint.gpu_model or "" if evidence.fingerprint is not None else ""
    device = evidence.recent.device
    return "MIG" in name or (device is not None and (bool(device.mig_enabled) or (device.processes or 0) > 1))
