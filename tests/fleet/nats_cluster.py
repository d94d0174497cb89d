"""A NATS cluster of the tests' own: real servers with JetStream in a temporary folder, on free ports of loopback."""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from collector.postgres import free_port
from fleet.hosts import Host


class NoNats(Exception):
    """NATS cannot be run here; the text says why."""


class NatsCluster:
    """Some servers, of which one at a time may be killed and started again.

    `more` goes into their configuration; `hosts` are where they run, else loopback; `stores` where they keep streams.
    """

    def __init__(
        self, nodes: int = 3, more: str = "", *, hosts: Sequence[Host] = (), stores: Sequence[Path] = ()
    ) -> None:
        found = shutil.which("nats-server") or "/usr/sbin/nats-server"
        if not Path(found).exists():
            raise NoNats("nats-server is not here; install the package nats-server")
        self.program = found
        self._more = more
        self._hosts = hosts
        self._addresses = [h.address for h in hosts] or ["127.0.0.1"] * nodes
        self._folder = Path(tempfile.mkdtemp(prefix="replaywatch-nats-"))
        self._stores = list(stores) or [self._folder / f"store{n}" for n in range(nodes)]
        self._ports = [free_port() for _ in range(nodes)]
        self._routes = [free_port() for _ in range(nodes)]
        self._processes: list[subprocess.Popen[bytes] | None] = [None] * nodes

    @property
    def servers(self) -> str:
        """What `--bus` takes."""
        return ",".join(f"nats://{a}:{port}" for a, port in zip(self._addresses, self._ports, strict=True))

    @property
    def pids(self) -> list[int]:
        """Process ids of the servers."""
        return [p.pid for p in self._processes if p is not None]

    def start(self) -> None:
        """Start all servers, and wait until each takes connections."""
        for node in range(len(self._ports)):
            self.start_node(node)
        for address, port in zip(self._addresses, self._ports, strict=True):
            _wait(address, port)

    def start_node(self, node: int) -> None:
        """Start one server."""
        placed = self._hosts[node].prefix if self._hosts else ()
        command = [*placed, self.program, "-c", str(self._configuration(node))]
        with (self._folder / f"log{node}").open("ab") as log:
            self._processes[node] = subprocess.Popen(command, stdout=log, stderr=log)

    def kill_node(self, node: int) -> None:
        """End one server as a crash would."""
        process = self._processes[node]
        assert process is not None
        process.kill()
        process.wait()

    def stop(self) -> None:
        """End all servers, and delete their folder."""
        for process in self._processes:
            if process is not None:
                process.kill()
                process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _configuration(self, node: int) -> Path:
        path = self._folder / f"node{node}.conf"
        routes = ", ".join(f"nats-route://{a}:{port}" for a, port in zip(self._addresses, self._routes, strict=True))
        address = self._addresses[node]
        cluster = f"cluster {{ name: tests, listen: {address}:{self._routes[node]}, routes: [{routes}] }}\n"
        path.write_text(
            f"server_name: node{node}\n"
            f"listen: {address}:{self._ports[node]}\n"
            "max_payload: 8MB\n"
            f'jetstream {{ store_dir: "{self._stores[node]}", max_file_store: 4GB }}\n'
            f"{self._more}\n"
            # A server alone with this block would wait for the rest of its cluster.
            f"{cluster if len(self._ports) > 1 else ''}"
        )
        return path


def _wait(address: str, port: int) -> None:
    end = time.monotonic() + 15
    while True:
        try:
            socket.create_connection((address, port), 1).close()
        except OSError:
            if time.monotonic() > end:
                raise NoNats("nats-server did not start") from None
            time.sleep(0.05)
        else:
            return
