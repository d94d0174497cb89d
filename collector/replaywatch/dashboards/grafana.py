"""A Grafana's dashboards brought up to date through its HTTP API, as often as wanted with the same result."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal
from urllib.parse import urlsplit

from replaywatch.contract.errors import ConfigurationError
from replaywatch.dashboards.board import Board, board_json
from replaywatch.dashboards.boards import BOARDS
from replaywatch.dashboards.panel_kinds import Json
from replaywatch.dashboards.provisioning import FOLDER, example_links

if TYPE_CHECKING:
    from grafana_client.client import GrafanaException

FOLDER_UID: Final = "replaywatch"
TIMEOUT_SECONDS: Final = 15.0
MESSAGE: Final = "replaywatch dashboards push"
# What Grafana itself adds to a dashboard when it keeps it.
_KEPT: Final = ("id", "version", "iteration")
What = Literal["created", "updated", "unchanged"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A Grafana: its address, and a service account's token or a user with a password; none of them is shown.

    `organization_id` chooses one where a user has several. `ca_file` is what its certificate must be signed by.
    """

    url: str
    token: str | None = field(default=None, repr=False)
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    organization_id: int | None = None
    ca_file: str | None = None


@dataclass(frozen=True, slots=True)
class Source:
    """A Prometheus as a data source, for a Grafana that has none yet.

    `page` is where browsers reach the collector's page, for links from exemplars; None leaves such links alone.
    """

    url: str
    page: str | None = None
    name: str = "Prometheus"
    uid: str = "prometheus"


@dataclass(frozen=True, slots=True)
class Change:
    """What was done to one thing: a folder, a data source or a dashboard."""

    kind: Literal["folder", "data source", "dashboard"]
    uid: str
    what: What


@dataclass(frozen=True, slots=True)
class Difference:
    """How one dashboard there differs from ours, as a unified diff; empty when it does not."""

    uid: str
    is_missing: bool
    text: str


def push(site: Site, source: Source | None = None, boards: Iterable[Board] = BOARDS) -> tuple[Change, ...]:
    """Make the folder, the data source where one is given, and the dashboards; what is right already is left alone.

    Raises: ConfigurationError when Grafana cannot be reached, refuses, or the extra is not installed.
    """
    with _opened(site) as api:
        changes = [_push_folder(api)]
        if source is not None:
            changes.append(_push_source(api, source))
        changes += [_push_board(api, board_json(board)) for board in boards]
        return tuple(changes)


def diff(site: Site, boards: Iterable[Board] = BOARDS) -> tuple[Difference, ...]:
    """What a push would change, in both directions: what people changed there shows as taken away.

    Raises: ConfigurationError.
    """
    with _opened(site) as api:
        return tuple(_difference(api, board_json(board)) for board in boards)


@contextmanager
def _opened(site: Site) -> Iterator[Any]:
    """A connection. Raises: ConfigurationError, with what Grafana said and without a secret."""
    try:
        from grafana_client.api import GrafanaApi
        from grafana_client.client import GrafanaException, TokenAuth
    except ImportError:
        raise ConfigurationError("grafana-client is not installed; pip install 'replaywatch[dashboards]'") from None
    parts = urlsplit(site.url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.password:
        raise ConfigurationError("the address of Grafana must be http:// or https:// with a host and no credentials")
    auth: Any = TokenAuth(site.token) if site.token is not None else None  # type: ignore[no-untyped-call]
    if auth is None and site.user is not None:
        auth = (site.user, site.password or "")
    api = GrafanaApi(
        auth,
        host=parts.hostname,
        port=parts.port,
        # The library puts the API's path right behind it.
        url_path_prefix=f"{parts.path.strip('/')}/".lstrip("/"),
        protocol=parts.scheme,
        verify=site.ca_file if site.ca_file is not None else True,
        timeout=TIMEOUT_SECONDS,
        organization_id=site.organization_id,
        user_agent="replaywatch",
    )
    try:
        yield api
    except GrafanaException as error:
        raise ConfigurationError(f"Grafana at {site.url} {_told(error)}") from None
    except OSError as error:
        raise ConfigurationError(f"Grafana at {site.url} cannot be reached ({type(error).__name__})") from None
    finally:
        api.client.s.close()


def _told(error: GrafanaException) -> str:
    status = getattr(error, "status_code", 0)
    if status in (401, 403):
        return f"refuses ({status}); give a service account's token that may edit dashboards, folders and data sources"
    said = error.response.get("message") if isinstance(error.response, dict) else None
    return f"answered {status}: {said or error.message}" if status else "cannot be reached in time"


def _found(call: Any, *arguments: str) -> Json | None:
    """What a call gets; None where Grafana has no such thing."""
    from grafana_client.client import GrafanaClientError

    try:
        found: Json = call(*arguments)
    except GrafanaClientError as error:
        if error.status_code == 404:
            return None
        raise
    return found


def _push_folder(api: Any) -> Change:
    there = _found(api.folder.get_folder, FOLDER_UID)
    if there is None:
        api.folder.create_folder(FOLDER, uid=FOLDER_UID)
    return Change("folder", FOLDER_UID, "created" if there is None else "unchanged")


def _push_source(api: Any, source: Source) -> Change:
    wanted = {"name": source.name, "uid": source.uid, "type": "prometheus", "access": "proxy", "url": source.url}
    own = {} if source.page is None else {"exemplarTraceIdDestinations": example_links(source.page)}
    there = _found(api.datasource.get_datasource_by_uid, source.uid)
    if there is None:
        api.datasource.create_datasource({**wanted, "jsonData": {"httpMethod": "POST", **own}})
        return Change("data source", source.uid, "created")
    kept = there.get("jsonData") or {}
    if {**there, **wanted} == there and {**kept, **own} == kept:
        return Change("data source", source.uid, "unchanged")
    api.datasource.update_datasource_by_uid(source.uid, {**there, **wanted, "jsonData": {**kept, **own}})
    return Change("data source", source.uid, "updated")


def _push_board(api: Any, ours: Json) -> Change:
    there = _found(api.dashboard.get_dashboard, ours["uid"])
    if there is not None and _own(there["dashboard"]) == ours and there["meta"].get("folderUid") == FOLDER_UID:
        return Change("dashboard", ours["uid"], "unchanged")
    if there is not None and there["meta"].get("provisioned"):
        raise ConfigurationError(f"{ours['uid']} is provisioned from files there; change the files instead of pushing")
    api.dashboard.update_dashboard(
        {"dashboard": {**ours, "id": None}, "folderUid": FOLDER_UID, "overwrite": True, "message": MESSAGE}
    )
    return Change("dashboard", ours["uid"], "created" if there is None else "updated")


def _difference(api: Any, ours: Json) -> Difference:
    uid = ours["uid"]
    there = _found(api.dashboard.get_dashboard, uid)
    before = [] if there is None else _lines(_own(there["dashboard"]))
    text = "".join(difflib.unified_diff(before, _lines(ours), f"grafana/{uid}", f"replaywatch/{uid}", n=2))
    return Difference(uid, there is None, text)


def _own(dashboard: Json) -> Json:
    return {name: value for name, value in dashboard.items() if name not in _KEPT}


def _lines(dashboard: Json) -> list[str]:
    return (json.dumps(dashboard, indent=1, sort_keys=True, ensure_ascii=False) + "\n").splitlines(keepends=True)
