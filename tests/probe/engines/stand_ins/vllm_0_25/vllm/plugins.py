"""Stands in for vLLM's plugins: entry points of one group, loaded once per process."""

from importlib.metadata import entry_points

loaded = False


def load_general_plugins():
    """Call every entry point of the group."""
    global loaded
    if not loaded:
        loaded = True
        for point in entry_points(group="vllm.general_plugins"):
            point.load()()
