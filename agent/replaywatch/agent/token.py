"""The bearer token: given, or in a file that may be replaced while the agent runs."""

from __future__ import annotations

from pathlib import Path

from replaywatch.contract.errors import ConfigurationError


class TokenFile:
    """Gives the Authorization header. Raises: ConfigurationError when there is no usable token at the start."""

    def __init__(self, token: str | None, path: Path | None, option: str = "--token-file") -> None:
        if token and not _is_usable(token):
            raise ConfigurationError("the token must be printable ASCII without spaces; check REPLAYWATCH_AGENT_TOKEN")
        self._token = token
        self._path = path
        self._stamp: tuple[int, int] | None = None
        self._reload()
        if path is not None and self._stamp is None:
            raise ConfigurationError(f"the token file {path} holds no readable token; check {option}")

    def header(self) -> dict[str, str]:
        """The header as it is now; empty without a token."""
        self._reload()
        return {"Authorization": f"Bearer {self._token}"} if self._token else {}

    def _reload(self) -> None:
        """Read the file if it changed; one that has gone or is unusable leaves the last token in use."""
        if self._path is None:
            return
        try:
            status = self._path.stat()
            stamp = (status.st_mtime_ns, status.st_ino)
            if stamp != self._stamp and _is_usable(text := self._path.read_text().strip()):
                self._token, self._stamp = text, stamp
        except (OSError, UnicodeError):
            pass


def _is_usable(token: str) -> bool:
    return bool(token) and token.isascii() and token.isprintable() and " " not in token
