"""The bearer token: given, or in a file that may be replaced while the agent runs."""

from __future__ import annotations

from pathlib import Path

from replaywatch.contract.errors import ConfigurationError


class TokenFile:
    """Gives the Authorization header. Raises: ConfigurationError when the file cannot be read at the start."""

    def __init__(self, token: str | None, path: Path | None) -> None:
        self._token = _checked(token) if token else None
        self._path = path
        self._stamp: tuple[int, int] | None = None
        if path is not None and not self._reload():
            raise ConfigurationError(f"the token file {path} cannot be read or is empty; check --token-file")

    def header(self) -> dict[str, str]:
        """The header as it is now; empty without a token."""
        self._reload()
        return {"Authorization": f"Bearer {self._token}"} if self._token else {}

    def _reload(self) -> bool:
        """Read the file if it changed; one that has gone or is empty leaves the last token in use."""
        if self._path is None:
            return False
        try:
            status = self._path.stat()
            stamp = (status.st_mtime_ns, status.st_ino)
            if stamp != self._stamp and (text := self._path.read_text().strip()):
                self._token, self._stamp = _checked(text), stamp
        except (OSError, UnicodeError):
            pass
        return self._token is not None


def _checked(token: str) -> str:
    if not token.isascii() or not token.isprintable() or " " in token:
        raise ConfigurationError("the token must be printable ASCII without spaces; check --token-file")
    return token
