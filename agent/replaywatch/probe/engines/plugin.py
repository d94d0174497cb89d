"""Entry points that engines call in each of their processes; installing the package is enough to be watched.

`vllm.general_plugins` and `sglang.srt.plugins` name these functions. REPLAYWATCH_PROBE=0 leaves the process alone.
"""

from __future__ import annotations

import logging
import os

_OFF = ("0", "false", "no", "off")


def start_in_engine() -> None:
    """Start the probe in this process, once. Never raises."""
    if os.environ.get("REPLAYWATCH_PROBE", "").strip().lower() in _OFF:
        return
    try:
        from replaywatch.probe.session import start

        start()
    except Exception as error:  # the probe's border: an engine must start without us
        logging.getLogger("replaywatch").warning("replaywatch: the probe was not started (%r)", error)
