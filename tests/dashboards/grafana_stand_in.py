"""A strict stand-in for Grafana: the routes of its HTTP API that are used, with the checks and answers it documents.

There is no Grafana to be had as a package here. Refusals are those of the API's reference: 401 without a valid token,
400 for what is malformed, 404 for what is missing, 409 and 412 for names, uids and versions that collide.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Json = dict[str, Any]
Answer = tuple[int, Json]
TOKEN = "glsa_0123456789abcdef"


class GrafanaStandIn:
    """Keeps folders, data sources and dashboards; `calls` are the requests that changed something."""

    def __init__(self) -> None:
        self.folders: dict[str, Json] = {}
        self.sources: dict[str, Json] = {}
        self.boards: dict[str, Json] = {}
        self.meta: dict[str, Json] = {}
        self.calls: list[str] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/grafana"

    def __enter__(self) -> GrafanaStandIn:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def answer(self, method: str, path: str, body: Any) -> Answer:
        """What a request gets."""
        routes: list[tuple[str, str, Callable[..., Answer]]] = [
            ("GET", r"/api/folders/([^/]+)", lambda uid, _: _or_missing(self.folders, uid, "folder not found")),
            ("POST", r"/api/folders", lambda b: self._add_folder(b)),
            (
                "GET",
                r"/api/datasources/uid/([^/]+)",
                lambda u, _: _or_missing(self.sources, u, "not found"),
            ),
            ("POST", r"/api/datasources", lambda b: self._add_source(b)),
            ("PUT", r"/api/datasources/uid/([^/]+)", self._set_source),
            ("GET", r"/api/dashboards/uid/([^/]+)", lambda uid, _: self._board(uid)),
            ("POST", r"/api/dashboards/db", lambda b: self._save(b)),
        ]
        for known, pattern, route in routes:
            if known == method and (match := re.fullmatch(pattern, path)):
                if method != "GET":
                    self.calls.append(f"{method} {path}")
                return route(*match.groups(), body)
        return 404, {"message": "Not found"}

    def _add_folder(self, body: Json) -> Answer:
        if not isinstance(body, dict) or not body.get("title"):
            return 400, {"message": "folder title cannot be empty"}
        uid = body.get("uid") or f"f{len(self.folders)}"
        if uid in self.folders:
            return 409, {"message": "a folder with the same uid already exists"}
        if not re.fullmatch(r"[a-zA-Z0-9_-]{1,40}", uid):
            return 400, {"message": "invalid uid"}
        self.folders[uid] = {"id": len(self.folders) + 1, "uid": uid, "title": body["title"], "version": 1}
        return 200, self.folders[uid]

    def _add_source(self, body: Json) -> Answer:
        missing = [name for name in ("name", "type", "access") if not body.get(name)]
        if missing:
            return 400, {"message": f"bad request data: {missing}"}
        if any(s["name"] == body["name"] for s in self.sources.values()):
            return 409, {"message": "data source with the same name already exists"}
        kept = {"id": len(self.sources) + 1, "readOnly": False, "version": 1, **body}
        self.sources[body["uid"]] = kept
        return 200, {"datasource": kept, "id": kept["id"], "message": "Datasource added", "name": body["name"]}

    def _set_source(self, uid: str, body: Json) -> Answer:
        if uid not in self.sources:
            return 404, {"message": "Data source not found"}
        self.sources[uid] = {**body, "uid": uid, "version": self.sources[uid]["version"] + 1}
        return 200, {"datasource": self.sources[uid], "message": "Datasource updated", "name": body["name"]}

    def _board(self, uid: str) -> Answer:
        if uid not in self.boards:
            return 404, {"message": "Dashboard not found"}
        return 200, {"dashboard": self.boards[uid], "meta": self.meta[uid]}

    def _save(self, body: Json) -> Answer:
        if set(body) - {"dashboard", "folderUid", "folderId", "message", "overwrite"}:
            return 400, {"message": "bad request data"}
        board = dict(body["dashboard"])
        uid, folder = board.get("uid") or "", body.get("folderUid", "")
        there = self.boards.get(uid)
        if not board.get("title"):
            return 400, {"message": "Dashboard title cannot be empty"}
        if not re.fullmatch(r"[a-zA-Z0-9_-]{1,40}", uid):
            return 400, {"message": "uid contains illegal characters or is too long"}
        if folder and folder not in self.folders:
            return 400, {"message": "folder not found"}
        if board.get("id") is not None and (there is None or there["id"] != board["id"]):
            return 404, {"message": "Dashboard not found", "status": "not-found"}
        if there is not None and self.meta[uid]["provisioned"]:
            return 400, {"message": "Cannot save provisioned dashboard"}
        if there is not None and not body.get("overwrite") and board.get("version") != there["version"]:
            return 412, {"message": "The dashboard has been changed by someone else", "status": "version-mismatch"}
        same = [u for u, b in self.boards.items() if u != uid and b["title"] == board["title"]]
        if any(self.meta[u]["folderUid"] == folder for u in same) and not body.get("overwrite"):
            return 412, {"message": "A dashboard with the same name exists", "status": "name-exists"}
        version = 1 if there is None else there["version"] + 1
        number = there["id"] if there is not None else len(self.boards) + 1
        self.boards[uid] = {**board, "id": number, "version": version}
        self.meta[uid] = {"folderUid": folder, "provisioned": False, "version": version}
        return 200, {"id": number, "uid": uid, "url": f"/d/{uid}", "status": "success", "version": version}


def _or_missing(kept: dict[str, Json], uid: str, message: str) -> Answer:
    return (200, kept[uid]) if uid in kept else (404, {"message": message})


def _handler(stand_in: GrafanaStandIn) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._run("GET")

        def do_POST(self) -> None:
            self._run("POST")

        def do_PUT(self) -> None:
            self._run("PUT")

        def _run(self, method: str) -> None:
            data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if self.headers.get("Authorization") != f"Bearer {TOKEN}":
                status, body = 401, {"message": "Invalid API key"}
            elif not self.path.startswith("/grafana/"):
                status, body = 404, {"message": "Not found"}
            elif method != "GET" and "application/json" not in (self.headers.get("Content-Type") or ""):
                status, body = 400, {"message": "bad request data"}
            else:
                given = json.loads(data) if data else None
                status, body = stand_in.answer(method, self.path.removeprefix("/grafana").split("?")[0], given)
            text = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: object) -> None:
            pass

    return Handler
