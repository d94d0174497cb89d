"""Small forms of the page, read without a parser for files: logging in and out, and marking incidents."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from typing import Final
from urllib.parse import parse_qsl

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from replaywatch.collector.access import COOKIE, Access, Caller
from replaywatch.collector.answers import problem
from replaywatch.collector.changes import Changes
from replaywatch.collector.pages import Pages
from replaywatch.collector.query import path_id

BODY_MAX: Final = 4096
COOKIE_SECONDS: Final = 12 * 3600


class Forms:
    """What the page posts. `is_secure`: the collector serves HTTPS, so its cookie may only travel there."""

    def __init__(self, access: Access, changes: Changes, pages: Pages, *, is_secure: bool) -> None:
        self._access = access
        self._changes = changes
        self._pages = pages
        self._is_secure = is_secure

    async def login_page(self, request: Request) -> Response:
        """Ask for a token."""
        return self._pages.login(_local(request.query_params.get("next", "/")))

    async def login(self, request: Request) -> Response:
        """Take a token, and keep it in a cookie that no script and no other site can use."""
        form = await _form(request)
        if form is None or not _is_from_here(request):
            return problem(400, "form", "the form does not come from this page")
        text, after = form.get("token", "").strip(), _local(form.get("next", "/"))
        token = self._access.verify(text)
        if token is None or not self._access.allows(Caller(token), "read"):
            return self._pages.login(after, is_wrong=True)
        answer = RedirectResponse(after, 303, {"Cache-Control": "no-store"})
        answer.set_cookie(COOKIE, text, COOKIE_SECONDS, httponly=True, samesite="strict", secure=self._is_secure)
        return answer

    async def logout(self, request: Request) -> Response:
        """Forget the token."""
        refused = await self._refused(request)
        if refused is not None:
            return refused
        answer = RedirectResponse("/login", 303, {"Cache-Control": "no-store"})
        answer.delete_cookie(COOKIE, httponly=True, samesite="strict", secure=self._is_secure)
        return answer

    async def mark(self, request: Request) -> Response:
        """Acknowledge an incident, or take that back."""
        refused = await self._refused(request)
        if refused is not None:
            return refused
        caller: Caller = request.state.caller
        if not self._access.allows(caller, "write"):
            return problem(403, "forbidden", "the token lacks the scope write")
        form: Mapping[str, str] = request.state.form
        key = path_id(request.path_params["id"])
        is_on = form.get("mark") == "acknowledge"
        found = None
        if key is not None:
            found = await run_in_threadpool(self._changes.mark, key, caller.name, "", is_on=is_on)
        if found is None:
            return problem(404, "not_found", "there is no such incident")
        return RedirectResponse(f"/incidents/{found.id}", 303, {"Cache-Control": "no-store"})

    async def _refused(self, request: Request) -> Response | None:
        """What stands against a form that needs a login; its fields stand in `request.state.form`."""
        caller = request.state.caller = self._access.caller(request)
        if not caller.by_cookie:
            return problem(401, "unauthorized", "log in first")
        form = await _form(request)
        if form is None or not hmac.compare_digest(form.get("csrf", "").encode(), caller.csrf.encode()):
            return problem(403, "forbidden", "the form does not come from this page")
        request.state.form = form
        return None


async def _form(request: Request) -> dict[str, str] | None:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        return None
    content = bytearray()
    async for chunk in request.stream():
        content += chunk
        if len(content) > BODY_MAX:
            return None
    try:
        return dict(parse_qsl(content.decode("ascii"), max_num_fields=20))
    except ValueError:
        return None


def _is_from_here(request: Request) -> bool:
    """Whether a browser says that the form was on this very site; programs say nothing."""
    return request.headers.get("sec-fetch-site", "same-origin") in ("same-origin", "none")


def _local(path: str) -> str:
    """A path on this site: never another host, which would make the login a trap."""
    is_local = path.startswith("/") and not path.startswith(("//", "/\\")) and path.isascii() and path.isprintable()
    return path if is_local else "/"
