"""The two witnesses: the engine's /metrics and its log."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Final

from replaywatch.agent.log_follower import LogFollower
from replaywatch.agent.token import TokenFile
from replaywatch.contract.errors import ConfigurationError
from replaywatch.sources.engine_metrics import MetricsScraper, scrape
from replaywatch.sources.logs import LogReader
from replaywatch.sources.recording import Recording

SCRAPE_SECONDS: Final = 5.0
LOG_WINDOW_NS: Final = 15 * 10**9


class MetricsWitness:
    """The engine's /metrics: what changed between two scrapes. Raises: ConfigurationError for an unusable file."""

    name = "metrics"

    def __init__(self, url: str, *, ca_file: Path | None = None, token_file: Path | None = None) -> None:
        self._url = url
        self._tls = _trust(ca_file) if ca_file is not None or url.startswith("https:") else None
        self._token = TokenFile(None, token_file, "--engine-metrics-token-file")
        self._scraper = MetricsScraper(url)

    def read(self, now_ns: int) -> Recording | None:
        """The change since the last scrape. Raises: ConfigurationError, UnreadableSource, UnknownSource."""
        page = scrape(self._url, SCRAPE_SECONDS, headers=self._token.header(), tls=self._tls)
        return self._scraper.add(page, now_ns)

    def close(self) -> None:
        """Nothing is held: each scrape has a connection of its own."""


def _trust(ca_file: Path | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca_file)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise ConfigurationError(f"{ca_file} cannot be used ({error}); check --engine-metrics-ca-file") from None


class LogWitness:
    """The engine's log, from its first line and on as it is written."""

    name = "log"

    def __init__(self, follower: LogFollower) -> None:
        self._follower = follower
        self._reader = LogReader(follower.path.name, window_ns=LOG_WINDOW_NS)
        self._begun = False

    def read(self, now_ns: int) -> Recording | None:
        """What the lines written since the last time say. Raises: UnreadableSource.

        A rotated log goes on with the same reader: its new file does not repeat the configuration.
        """
        reading = self._follower.read()
        if reading.seen_before:  # an earlier agent has shipped what these lines say; they still tell the configuration
            self._reader.feed(reading.seen_before, now_ns)
            self._reader.close()
            self._reader.take()
        self._reader.feed(reading.text, now_ns)
        if self._begun and not self._reader.has_closed:
            return None
        # All that was read is told now: what was written before the agent came by itself, and of what is remembered
        # nothing is left open that an agent after this one would neither have nor read again.
        self._begun = True
        self._reader.close()
        recording = self._reader.take()
        self._follower.remember()
        return recording if recording.windows else None

    def close(self) -> None:
        """Close the file."""
        self._follower.close()
