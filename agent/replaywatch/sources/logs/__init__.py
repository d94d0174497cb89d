"""Engine logs as windows: vLLM, SGLang, TensorRT-LLM, llama.cpp, TGI, transformers, torch.compile."""

from replaywatch.sources.logs.file import read_log
from replaywatch.sources.logs.reader import LogReader

__all__ = ["LogReader", "read_log"]
