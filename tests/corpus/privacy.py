"""Takes names of hosts, people and private folders out of what is written."""

from __future__ import annotations

import getpass
import re
import socket
import sysconfig
import tempfile
from functools import cache
from pathlib import Path

_HOST_FIELD = re.compile(r'("host_?[nN]ame":\s*)"[^"]*"')


@cache
def replacements() -> tuple[tuple[str, str], ...]:
    """Pairs (private, public), the longest private text first so that inner folders go before outer ones."""
    pairs = {
        str(Path(__file__).resolve().parents[2]): "<repo>",
        sysconfig.get_paths()["purelib"]: "<site-packages>",
        sysconfig.get_paths()["stdlib"]: "<python>",
        str(Path.home()): "<home>",
        tempfile.gettempdir() + "/": "<tmp>/",
        socket.gethostname(): "<host>",
        socket.getfqdn(): "<host>",
        f"torchinductor_{_user()}": "torchinductor_user",
    }
    kept = [(private, public) for private, public in pairs.items() if len(private) > 4 and private != "localhost"]
    return tuple(sorted(kept, key=lambda pair: -len(pair[0])))


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "nobody"


def scrub(text: str) -> str:
    """`text` without the names in `replacements`; also as they look inside JSON, where a slash may be escaped.

    Kineto (torch 2.13) writes the host's name, however short, into a field of its own.
    """
    text = _HOST_FIELD.sub(r'\1"<host>"', text)
    for private, public in replacements():
        text = text.replace(private, public).replace(private.replace("/", "\\/"), public)
    return text
