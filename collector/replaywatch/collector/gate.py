"""The gate before each endpoint: who asks, whether they may, and whether a browser was tricked into asking."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from replaywatch.collector.access import Access, Caller
from replaywatch.collector.answers import problem
from replaywatch.collector.tokens import Scope

Answer = Callable[[Request], Awaitable[Response]]


class Gate:
    """Wraps endpoints; the caller stands in `request.state.caller` afterwards."""

    def __init__(self, access: Access) -> None:
        self._access = access

    def api(self, scope: Scope, answer: Answer) -> Answer:
        """An endpoint for programs: 401 and 403 as JSON. A cookie opens reading only."""

        async def guarded(request: Request) -> Response:
            caller = request.state.caller = self._access.caller(request)
            if scope != "read" and caller.by_cookie:
                return problem(403, "forbidden", "show the token in the Authorization header, not in a cookie")
            return refusal(self._access, caller, scope) or await answer(request)

        return guarded

    def page(self, answer: Answer) -> Answer:
        """A page for people: those who may not see it are asked for a token."""

        async def guarded(request: Request) -> Response:
            caller = request.state.caller = self._access.caller(request)
            if self._access.allows(caller, "read"):
                return await answer(request)
            here = request.url.path + (f"?{request.url.query}" if request.url.query else "")
            return RedirectResponse(f"/login?next={quote(here)}", 303, {"Cache-Control": "no-store"})

        return guarded


def refusal(access: Access, caller: Caller, scope: Scope) -> Response | None:
    """What stands against a caller; None when nothing does."""
    if access.allows(caller, scope):
        return None
    if caller.token is None:
        text = f"show a token with the scope {scope} (Authorization: Bearer ...)"
        return problem(401, "unauthorized", text, {"WWW-Authenticate": "Bearer"})
    return problem(403, "forbidden", f"the token {caller.name} lacks the scope {scope}")
