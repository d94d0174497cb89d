"""Plays one of the demo's recordings into an agent's socket, as the probe in that serving process sent it.

    python docs/tutorial/play.py --socket FOLDER/agent.sock disabled

The recordings were made on a real GPU; only pod, namespace and time are made up. The first minute is sent at once, so
that nobody waits for it.
"""

from __future__ import annotations

import argparse
import threading
from pathlib import Path

from replaywatch.demo.player import Player
from replaywatch.demo.scenario import load_scenarios


def main() -> None:
    """Play until somebody interrupts."""
    scenarios = {scenario.name: scenario for scenario in load_scenarios()}
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("recording", choices=sorted(scenarios))
    parser.add_argument("--socket", type=Path, required=True)
    arguments = parser.parse_args()
    scenario = scenarios[arguments.recording]
    player = Player((scenario,), arguments.socket)
    player.start()
    print(f"playing pod {scenario.pod}: {scenario.what}; Ctrl-C ends it", flush=True)
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        print("stopping")
    finally:
        player.stop()


if __name__ == "__main__":
    main()
