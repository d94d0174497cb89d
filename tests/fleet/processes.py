"""Collector processes of a fleet: started as programs of their own, killed as a crash would."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from fleet.hosts import Host

PROGRAM = """
import json, logging, sys
from pathlib import Path
from replaywatch.collector.options import CollectorOptions
from replaywatch.collector.serve import run
logging.basicConfig(level="INFO")
run(CollectorOptions(**json.loads(sys.argv[1])), told=lambda url: print(url, flush=True))
"""


class Process:
    """One collector process, on a host of its own where one is given; `url` is where it is reached."""

    def __init__(self, log: Path, on: Host | None = None, **options: Any) -> None:
        self.log, self._log = log, log.open("ab")
        placed = {"host": on.address} if on else {}
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
        self._process = subprocess.Popen(
            [*(on.prefix if on else ()), sys.executable, "-c", PROGRAM, json.dumps({**placed, "port": 0, **options})],
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env=environment,
        )
        assert self._process.stdout is not None
        self.url = self._process.stdout.readline().strip()
        if not self.url:
            raise RuntimeError(f"a collector did not start: {log.read_text()[-2000:]}")

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def cpu_seconds(self) -> float:
        """Processor time used so far."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def resident_bytes(self) -> int:
        """Resident memory now."""
        return int(Path(f"/proc/{self._process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def kill(self) -> None:
        """End it as a crash would."""
        self._process.kill()
        self._process.communicate()
        self._log.close()

    def end(self) -> None:
        """End it if it is still there."""
        if self.is_alive:
            self.kill()

    def stop(self) -> None:
        """End it as an operator does."""
        self._process.terminate()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._process.communicate()
        self._log.close()
