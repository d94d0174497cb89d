"""All dashboards."""

from __future__ import annotations

from typing import Final

from replaywatch.dashboards.board import Board
from replaywatch.dashboards.capture import CAPTURE
from replaywatch.dashboards.fleet import FLEET
from replaywatch.dashboards.incident import INCIDENT
from replaywatch.dashboards.ladder import LADDER
from replaywatch.dashboards.node import NODE_BOARD
from replaywatch.dashboards.workload import WORKLOAD_BOARD

BOARDS: Final[tuple[Board, ...]] = (FLEET, WORKLOAD_BOARD, NODE_BOARD, INCIDENT, CAPTURE, LADDER)
