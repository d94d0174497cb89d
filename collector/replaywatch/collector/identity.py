"""Short ids of workloads: those of the contract, by which agents' exemplars lead to the page."""

from __future__ import annotations

from replaywatch.contract.identity import workload_id

__all__ = ["workload_id"]
