"""The vote of the peers (R2) in findings of other detectors."""

from __future__ import annotations

from replaywatch.contract.verdict import Vote
from replaywatch.detectors.evidence import Evidence
from replaywatch.detectors.peers import MIN_GAP, MIN_PEERS, WORDS, deviations, is_odd, is_split


def peers_vote(evidence: Evidence) -> Vote:
    """R2: do peers with the same fingerprint do better?

    Peers that are alike abstain, since a fault that all of them share looks the same; they are against only where the
    workload does better than they do.
    """
    peers = evidence.peers
    if peers is None:
        return Vote("peers", "abstains", "no peers with the same fingerprint are known")
    others = peers.n - 1
    if peers.n < MIN_PEERS:
        return Vote("peers", "abstains", f"{others} peers with the same fingerprint are too few")
    compared = deviations(peers, evidence.figures)
    odd = [d for d in compared if is_odd(d, peers.n)]
    if odd:
        worst = max(odd, key=lambda d: d.z)
        return Vote("peers", "for", f"{others} peers do better: {WORDS[worst.figure]} {worst.z:.0f} sigma away")
    if any(is_split(name, spread) for name, spread in peers.spreads.items()):
        return Vote("peers", "abstains", f"{others} peers differ among themselves")
    if not compared:
        return Vote("peers", "abstains", f"{others} peers run other loads or lack the figures")
    step = next((d for d in compared if d.figure == "step_us"), None)
    if step is not None and step.gap <= -MIN_GAP and step.z <= -3:
        return Vote("peers", "against", f"its steps are shorter than those of {others} peers")
    return Vote("peers", "abstains", f"{others} peers are alike; a fault that all share would look so too")
