"""Which torch this is."""

import os

FULL = os.environ["REPLAYWATCH_STAND_IN"] + ".0"
NUMBER = tuple(int(part) for part in FULL.split(".")[:2])


def since(major: int, minor: int) -> bool:
    return (major, minor) <= NUMBER
