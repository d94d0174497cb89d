"""Engine metrics as windows: vLLM, SGLang, TensorRT-LLM, from a file or by scraping."""

from replaywatch.sources.engine_metrics.difference import difference
from replaywatch.sources.engine_metrics.exposition import Exposition, Sample, parse
from replaywatch.sources.engine_metrics.recording import MetricsScraper, read_metrics, recording_of
from replaywatch.sources.engine_metrics.scrape import scrape

__all__ = ["Exposition", "MetricsScraper", "Sample", "difference", "parse", "read_metrics", "recording_of", "scrape"]
