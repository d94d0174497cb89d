"""`replaywatch store token create|list|revoke`, `replaywatch store export|import`"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from replaywatch.collector.options import settings

if TYPE_CHECKING:
    from replaywatch.collector.store import Store


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments; the store is the collector's, from --store or REPLAYWATCH_COLLECTOR_STORE."""
    parser.add_argument("--store", default=argparse.SUPPRESS, help="database as an SQLAlchemy URL, as the collector's")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    create = verbs.add_parser("token-create", help="make a token and print it, once")
    create.add_argument("name", help="who will use it")
    create.add_argument("--scope", action="append", required=True, help="ingest, read or write; several times for more")
    create.add_argument("--windows-per-second", type=float, help="most windows a second that it may send")
    create.add_argument("--windows-per-day", type=int, help="most windows a day that it may send")
    verbs.add_parser("token-list", help="all tokens, without their secrets")
    verbs.add_parser("token-revoke", help="make a token worthless").add_argument("name")
    verbs.add_parser("export", help="write the store into a file").add_argument("file", type=Path)
    verbs.add_parser("import", help="fill an empty store from such a file").add_argument("file", type=Path)


def main(arguments: argparse.Namespace) -> int:
    """Run one verb."""
    from replaywatch.collector.store import Store

    given = {"store": arguments.store} if hasattr(arguments, "store") else {}
    store = Store.open(settings(given, os.environ).store)
    try:
        return _run(arguments, store)
    finally:
        store.close()


def _run(arguments: argparse.Namespace, store: Store) -> int:
    from replaywatch.collector import moving, tokens

    now_ns = time.time_ns()
    if arguments.verb == "token-create":
        limits = {"windows_per_second": arguments.windows_per_second, "windows_per_day": arguments.windows_per_day}
        print(tokens.create_token(store, arguments.name, arguments.scope, now_ns, **limits))
    elif arguments.verb == "token-list":
        for token in tokens.list_tokens(store):
            state = "revoked" if token.revoked_ns is not None else "valid"
            print(f"{token.name:24} {state:8} {' '.join(token.scopes)}")
    elif arguments.verb == "token-revoke":
        tokens.revoke_token(store, arguments.name, now_ns)
    elif arguments.verb == "export":
        print(f"{moving.export_store(store, arguments.file)} rows")
    else:
        print(f"{moving.import_store(store, arguments.file)} rows")
    return 0
