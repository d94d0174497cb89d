"""What vLLM is started as: the ways in which people run it with graphs, half with them and without."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MODEL_LAYERS = 22
# The shape of a 1.1B Llama; weights are dummies.
MODEL = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 2048, "intermediate_size": 5632,
    "num_hidden_layers": MODEL_LAYERS, "num_attention_heads": 32, "num_key_value_heads": 4, "hidden_act": "silu",
    "max_position_embeddings": 2048, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "vocab_size": 32000,
    "bos_token_id": 1, "eos_token_id": 2, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
}  # fmt: skip
# Two layers of the same, to propose tokens; stands for the folder until it is written.
DRAFT = "DRAFT"
DRAFT_LAYERS = 2
RANK = 8
ENGINE = {
    "load_format": "dummy", "skip_tokenizer_init": True, "max_model_len": 512, "gpu_memory_utilization": 0.35,
    "max_num_seqs": 64, "enable_prefix_caching": False, "disable_log_stats": True, "seed": 0,
}  # fmt: skip


@dataclass(frozen=True)
class Scenario:
    """How an engine is started, at which batches it runs, and what must be said of it at each.

    `expected` is the fallback reason of most decode steps that are not replayed in full; None means that they are.
    Where the engine's own drafts decide how wide a step is, several are right. `adapter`: requests use a LoRA adapter.
    """

    name: str
    engine: Mapping[str, Any]
    batches: tuple[int, ...]
    expected: Mapping[int, str | tuple[str | None, ...] | None]
    environment: Mapping[str, str] = field(default_factory=dict)
    adapter: bool = False

    def is_right(self, batch: int, reason: str | None) -> bool:
        """Whether a reason is what this way of starting gives at a batch."""
        expected = self.expected.get(batch)
        return reason in expected if isinstance(expected, tuple) else reason == expected


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
            {8: ("speculative_width", None)},
        ),
        Scenario(
            "draft",
            {"speculative_config": {"method": "draft_model", "model": DRAFT, "num_speculative_tokens": 3}},
            (8,),
            {8: None},
        ),
        Scenario(
            "lora", {"enable_lora": True, "max_lora_rank": RANK, "max_loras": 1}, (8, 48), {8: None, 48: None},
            adapter=True,
        ),
    )
}  # fmt: skip


def write_model(folder: Path, layers: int = MODEL_LAYERS) -> Path:
    """A folder with nothing but the model's configuration."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({**MODEL, "num_hidden_layers": layers}))
    return folder


def write_adapter(folder: Path) -> Path:
    """A LoRA adapter of the model's query and value projections, of small random numbers."""
    import numpy as np
    from safetensors.numpy import save_file

    draw, tensors = np.random.default_rng(7), {}
    wide, narrow = 2048, 256
    for layer in range(MODEL_LAYERS):
        for name, out in (("q_proj", wide), ("v_proj", narrow)):
            key = f"base_model.model.model.layers.{layer}.self_attn.{name}"
            tensors[f"{key}.lora_A.weight"] = (draw.standard_normal((RANK, wide)) * 0.01).astype(np.float16)
            tensors[f"{key}.lora_B.weight"] = (draw.standard_normal((out, RANK)) * 0.01).astype(np.float16)
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / "adapter_model.safetensors")
    about = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": RANK, "lora_alpha": 2 * RANK, "bias": "none",
             "target_modules": ["q_proj", "v_proj"], "base_model_name_or_path": ""}  # fmt: skip
    (folder / "adapter_config.json").write_text(json.dumps(about))
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
