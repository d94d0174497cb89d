"""Stands in for Slack in the tutorial: prints every message that is posted to it, as a person would read it.

    python docs/tutorial/receiver.py [PORT]

Takes Slack's Block Kit and Replaywatch's own JSON. It listens on loopback and answers `ok`, as Slack does.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, Final

DEFAULT_PORT: Final = 5001


def lines(message: dict[str, Any]) -> Iterator[str]:
    """The texts of a message, in reading order."""
    if "blocks" not in message:
        yield f"{message.get('event')}: {message.get('title')}"
        yield str(message.get("remedy") or "")
        return
    for block in message["blocks"]:
        if "text" in block:
            yield block["text"]["text"]
        for part in (*block.get("fields", ()), *block.get("elements", ())):
            yield part.get("text", "").replace("\n", " ")


class Receiver(BaseHTTPRequestHandler):
    """One message a request."""

    def do_POST(self) -> None:
        """Print what came, answer as Slack does."""
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        try:
            print("-" * 60, *lines(json.loads(body)), sep="\n", flush=True)
        except (ValueError, TypeError, KeyError, AttributeError):
            print(f"not a message: {body[:200]!r}", flush=True)
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, format: str, *arguments: object) -> None:
        """Only messages are printed."""


def main() -> None:
    """Serve until interrupted."""
    port = int(sys.argv[1]) if len(sys.argv) > 1 else DEFAULT_PORT
    with HTTPServer(("127.0.0.1", port), Receiver) as server:
        print(f"waiting for messages at http://127.0.0.1:{server.server_address[1]}/", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print("stopping")


if __name__ == "__main__":
    main()
