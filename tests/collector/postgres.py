"""A PostgreSQL of the tests' own: real, in a temporary folder, on a free port of loopback, not as root."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import psycopg

CALM = ("fsync=off", "synchronous_commit=off", "full_page_writes=off")


class NoPostgres(Exception):
    """PostgreSQL cannot be run here; the text says why."""


def program(name: str) -> str:
    """Where a program of PostgreSQL is. Raises: NoPostgres."""
    # Debian's own folders first: what it has in /usr/bin are wrappers that look for a cluster of the system's.
    folders = [*sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)]
    if found := shutil.which(name):
        folders.append(Path(found).parent)
    for folder in folders:
        if (folder / name).exists():
            return str(folder / name)
    raise NoPostgres(f"PostgreSQL's {name} is not here; install the package postgresql")


def free_port() -> int:
    """A port of loopback that nobody listens on now."""
    with socket.create_server(("127.0.0.1", 0)) as line:
        return int(line.getsockname()[1])


class Postgres:
    """A cluster; `durable` keeps it from being fast at the price of a crash.

    `address` is where it listens, with `prefix` before its command; anybody on its network may connect. `data` is its
    folder where it is to be a certain one.
    """

    def __init__(
        self,
        *,
        durable: bool = False,
        settings: tuple[str, ...] = (),
        address: str = "127.0.0.1",
        prefix: tuple[str, ...] = (),
        data: Path | None = None,
    ) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="replaywatch-pg-"))
        self._address = address
        self._prefix = prefix
        self._data = data or self._folder / "data"
        self._settings = (*(() if durable else CALM), *settings)
        self._process: subprocess.Popen[bytes] | None = None
        self._made = 0
        self.port = free_port()
        self._as = self._unprivileged()
        self._run(program("initdb"), "-D", str(self._data), "-U", "tester", "--auth=trust", "-E", "UTF8")
        with (self._data / "pg_hba.conf").open("a") as rules:
            rules.write("host all all samenet trust\n")

    def _unprivileged(self) -> list[str]:
        if os.geteuid() != 0:
            return []
        try:
            user = pwd.getpwnam("postgres")
        except KeyError:
            user = pwd.getpwnam("nobody")
        for folder in (self._folder, *([self._data] if self._data.exists() else [])):
            os.chown(folder, user.pw_uid, user.pw_gid)
        setpriv = shutil.which("setpriv")
        if setpriv is None:
            raise NoPostgres("PostgreSQL refuses root, and setpriv is not here")
        return [setpriv, f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]

    def _run(self, *command: str) -> None:
        subprocess.run([*self._as, *command], check=True, capture_output=True, cwd=self._folder)

    def start(self) -> None:
        """Start, and wait until it answers."""
        options = [part for s in self._settings for part in ("-c", s)]
        listen = ["-c", f"listen_addresses={self._address}", "-c", f"unix_socket_directories={self._folder}"]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *self._prefix,
                    *self._as,
                    program("postgres"),
                    "-D",
                    str(self._data),
                    "-p",
                    str(self.port),
                    *listen,
                    *options,
                ],
                stdout=log,
                stderr=log,
                cwd=self._folder,
            )
        end = time.monotonic() + 30
        while True:
            try:
                psycopg.connect(self.url("postgres"), connect_timeout=2).close()
            except psycopg.OperationalError:
                if time.monotonic() > end or self._process.poll() is not None:
                    raise NoPostgres(f"PostgreSQL did not start: {(self._folder / 'log').read_text()[-500:]}") from None
                time.sleep(0.05)
            else:
                return

    @property
    def pid(self) -> int:
        """Process id of the postmaster."""
        assert self._process is not None
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether the postmaster runs."""
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """End it as a crash would: the postmaster at once, its children by themselves."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        end = time.monotonic() + 10
        while (self._data / "postmaster.pid").exists() and time.monotonic() < end:
            # Children notice that the postmaster is gone; a new one refuses to start while they live.
            try:
                psycopg.connect(self.url("postgres"), connect_timeout=1).close()
            except psycopg.OperationalError:
                break
            time.sleep(0.05)

    def stop(self) -> None:
        """End it, and delete its folder."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
            self._process.wait(20)
        shutil.rmtree(self._folder, ignore_errors=True)

    def database(self, template: str | None = None) -> str:
        """URL of a new database, empty or a copy of another one."""
        self._made += 1
        name = f"t{self._made}"
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name} TEMPLATE {template or 'template0'}".encode())
        return self.url(name)

    def url(self, name: str) -> str:
        """URL of a database."""
        return f"postgresql://tester@{self._address}:{self.port}/{name}"
