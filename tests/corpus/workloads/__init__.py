"""The workload families of the corpus; each file makes the items of one family."""

from __future__ import annotations

from item import Item

from workloads import compiled, decoder_eager, decoder_graphs, device_bound, generate, host_bound, recapture, training


def all_items() -> list[Item]:
    """Every item. Within a group the order is the order of importance."""
    steady = [device_bound.items(), training.items(), host_bound.items()]
    longest = max(len(family) for family in steady)
    mixed = [family[row] for row in range(longest) for family in steady if row < len(family)]
    return [
        *decoder_eager.items(),
        *decoder_graphs.items(),
        *mixed,
        *generate.items(),
        *recapture.items(),
        *compiled.items(),
    ]


GROUPS: tuple[str, ...] = (
    "decoder-eager",
    "decoder-graphs",
    "steady",
    "generate",
    "recapture",
    "compiled",
    "generate-big",
    "autotune",
)
"""The processes, the most important first."""
