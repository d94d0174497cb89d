"""Snapshots that windows point to by id: what a process runs on, and how its engine was configured.

They are sent when they change, not with every window. Ids are digests of the content, so equal snapshots have equal
ids wherever they were taken.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Final

from replaywatch.contract.window import Engine

# Fields that came after ids had been given: where they are unknown an id is what it was before.
LATER_FIELDS: Final = (
    "weight_bytes", "layers", "cache_bytes_per_token", "expert_bytes", "experts", "experts_per_token",
    "window_bytes_per_token", "window_tokens",
)  # fmt: skip


def _digest(content: dict[str, object]) -> str:
    content = {name: value for name, value in content.items() if value is not None or name not in LATER_FIELDS}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fingerprint:
    """What decides how fast the same work runs: device, driver, libraries, code. The key of a cohort of peers."""

    gpu_model: str | None = None
    driver: str | None = None
    cuda: str | None = None
    cupti: str | None = None
    torch: str | None = None
    engine: Engine = "unknown"
    engine_version: str | None = None
    model_name: str | None = None
    host_cpu: str | None = None
    python: str | None = None
    code_version: str | None = None

    @property
    def id(self) -> str:
        """Digest of the content, 16 hexadecimal digits."""
        return _digest(asdict(self))


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """How graphs were asked for, and what the engine made of it.

    `requested_mode` and `resolved_mode` are the engine's own words (FULL_AND_PIECEWISE, reduce-overhead, ...);
    `mode_reason` why they differ. `enforced_by` says who forced eager: a flag, an environment variable, a wrapper.
    `max_batch_size` is the admission limit in sequences, `capture_sizes` ascending sizes in the engine's own unit
    (`capture_unit`). `weight_bytes` is what the parameters of the main model take on this device, `layers` the layers
    that run there, `cache_bytes_per_token` what a token of context takes of the key-value cache there: with them a
    step's least time is known without a trace. Of a sparse model `expert_bytes` is what its routed experts take of the
    weights, `experts` how many a layer has, `experts_per_token` how many a token takes. `window_bytes_per_token` is the
    part of `cache_bytes_per_token` in layers that see the last `window_tokens` tokens only. `environment` holds only
    variables of an allow-list that switch graphs.
    """

    engine: Engine = "unknown"
    requested_mode: str | None = None
    resolved_mode: str | None = None
    mode_reason: str | None = None
    graphs_enabled: bool | None = None
    enforced_by: str | None = None
    capture_sizes: tuple[int, ...] | None = None
    max_capture_size: int | None = None
    capture_unit: str | None = None
    max_batch_size: int | None = None
    padding: bool | None = None
    compile_mode: str | None = None
    speculative_tokens: int | None = None
    data_parallel_size: int | None = None
    tensor_parallel_size: int | None = None
    weight_bytes: int | None = None
    layers: int | None = None
    cache_bytes_per_token: int | None = None
    expert_bytes: int | None = None
    experts: int | None = None
    experts_per_token: int | None = None
    window_bytes_per_token: int | None = None
    window_tokens: int | None = None
    role: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def ceiling(self) -> int | None:
        """Largest size that a graph was captured for; None when unknown."""
        return max(self.capture_sizes) if self.capture_sizes else self.max_capture_size

    @property
    def id(self) -> str:
        """Digest of the content, 16 hexadecimal digits."""
        return _digest(asdict(self))
