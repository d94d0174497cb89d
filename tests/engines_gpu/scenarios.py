"""What vLLM is started as: the ways in which people run it with graphs, half with them and without."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# The shape of a 1.1B Llama; weights are dummies.
MODEL = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 2048, "intermediate_size": 5632,
    "num_hidden_layers": 22, "num_attention_heads": 32, "num_key_value_heads": 4, "hidden_act": "silu",
    "max_position_embeddings": 2048, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "vocab_size": 32000,
    "bos_token_id": 1, "eos_token_id": 2, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
}  # fmt: skip
ENGINE = {
    "load_format": "dummy", "skip_tokenizer_init": True, "max_model_len": 512, "gpu_memory_utilization": 0.35,
    "max_num_seqs": 64, "enable_prefix_caching": False, "disable_log_stats": True, "seed": 0,
}  # fmt: skip


@dataclass(frozen=True)
class Scenario:
    """How an engine is started, at which batches it runs, and what must be said of it at each.

    `expected` is the fallback reason of most decode steps that are not replayed in full; None means that they are.
    """

    name: str
    engine: Mapping[str, Any]
    batches: tuple[int, ...]
    expected: Mapping[int, str | None]
    environment: Mapping[str, str] = field(default_factory=dict)


def _cudagraphs(**compilation: Any) -> dict[str, Any]:
    return {"compilation_config": compilation}


SCENARIOS = {
    s.name: s
    for s in (
        Scenario("default", {}, (8, 48), {8: None, 48: None}),
        Scenario("eager", {"enforce_eager": True}, (8, 48), {8: "forced_eager", 48: "forced_eager"}),
        Scenario(
            "ceiling32",
            _cudagraphs(cudagraph_capture_sizes=[1, 2, 4, 8, 16, 24, 32]),
            (8, 48),
            {8: None, 48: "above_ceiling"},
        ),
        Scenario(
            "piecewise",
            _cudagraphs(cudagraph_mode="PIECEWISE"),
            (8, 48),
            {8: "mode_piecewise", 48: "mode_piecewise"},
        ),
        Scenario("none", _cudagraphs(cudagraph_mode="NONE"), (8, 48), {8: "mode_none", 48: "mode_none"}),
        Scenario(
            "runner1", {}, (8, 48), {8: None, 48: None}, {"VLLM_USE_V2_MODEL_RUNNER": "0"}
        ),
        Scenario(
            "ceiling32_runner1",
            _cudagraphs(cudagraph_capture_sizes=[1, 2, 4, 8, 16, 24, 32]),
            (8, 48),
            {8: None, 48: "above_ceiling"},
            {"VLLM_USE_V2_MODEL_RUNNER": "0"},
        ),
        Scenario(
            "ngram",
            {"speculative_config": {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 4}},
            (8,),
            {8: "speculative_width"},
        ),
    )
}  # fmt: skip


def write_model(folder: Path) -> Path:
    """A folder with nothing but the model's configuration."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(MODEL))
    return folder


def write_plugin(folder: Path) -> Path:
    """What installing the package would leave behind for vLLM to find: the entry point, and nothing else."""
    info = folder / "replaywatch-0.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: replaywatch\nVersion: 0\n")
    (info / "entry_points.txt").write_text(
        "[vllm.general_plugins]\nreplaywatch = replaywatch.probe.engines.plugin:start_in_engine\n"
    )
    return folder
