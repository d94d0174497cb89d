"""Stands in for vLLM: an engine in this process that schedules batches and answers with made-up tokens."""

__version__ = "0.25.1"


def __getattr__(name):
    if name in ("LLM", "SamplingParams"):
        from vllm import llm

        return getattr(llm, name)
    raise AttributeError(name)
