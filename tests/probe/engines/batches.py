"""Batches as engines hand them to their runners."""

from types import SimpleNamespace


def scheduled(*tokens):
    """What vLLM schedules: tokens of each request."""
    return SimpleNamespace(
        num_scheduled_tokens={f"request {i}": n for i, n in enumerate(tokens)}, total_num_scheduled_tokens=sum(tokens)
    )


def decode(requests):
    return scheduled(*[1] * requests)
