"""The certificate that is shown, and its renewal while connections go on."""

from __future__ import annotations

import logging
import ssl
import threading
from pathlib import Path

from replaywatch.contract.errors import ConfigurationError

LOG = logging.getLogger("replaywatch.admission")


class Papers:
    """Reads certificate and key, and reads them again once they are others. `context` is what connections use.

    A mounted secret changes in place some time after it was renewed; new connections then get the new certificate. One
    that cannot be read, as between two files that are being replaced, leaves the old one in use.
    """

    def __init__(self, certificate: Path, key: Path, look_seconds: float) -> None:
        self._files = (certificate, key)
        self._look_seconds = look_seconds
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="replaywatch-papers", daemon=True)
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self._shown: tuple[bytes, ...] = ()
        try:
            self._look()
        except (OSError, ssl.SSLError) as error:
            raise ConfigurationError(
                f"the certificate {certificate} and its key {key} cannot be used: {error}"
            ) from None

    def start(self) -> None:
        """Begin to look for renewals."""
        self._thread.start()

    def stop(self) -> None:
        """End that. Safe to call twice."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(5)

    def _watch(self) -> None:
        while not self._stopping.wait(self._look_seconds):
            try:
                if self._look():
                    LOG.info("the certificate was renewed")
            except (OSError, ssl.SSLError) as error:
                LOG.warning("the certificate cannot be read again, the old one stays: %s", error)

    def _look(self) -> bool:
        """Whether the files were others, which then are in use."""
        content = tuple(file.read_bytes() for file in self._files)
        if content == self._shown:
            return False
        # A pair that does not fit leaves a context without a key: it is tried where nobody is served.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(*self._files)
        self.context.load_cert_chain(*self._files)
        self._shown = content
        return True
