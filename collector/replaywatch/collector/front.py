"""What every collector process with a web side has: access, API, page, forms, health and metrics, put together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from starlette.applications import Starlette

from replaywatch.collector.access import Access
from replaywatch.collector.api import ReadApi
from replaywatch.collector.arrival import Limits
from replaywatch.collector.changes import Changes
from replaywatch.collector.clocks import Clocks
from replaywatch.collector.endpoints import endpoints
from replaywatch.collector.fleet import Views
from replaywatch.collector.forms import Forms
from replaywatch.collector.gate import Gate
from replaywatch.collector.health import Health
from replaywatch.collector.messages_api import MessagesApi
from replaywatch.collector.metrics import CollectorMetrics, registry_of
from replaywatch.collector.options import CollectorOptions
from replaywatch.collector.pages import Pages
from replaywatch.collector.receive import BatchEndpoint, Received
from replaywatch.collector.routes import application
from replaywatch.collector.setting_up import hosts_of, token_of
from replaywatch.collector.sink import Sink
from replaywatch.collector.store import Store
from replaywatch.collector.tokens import TokenBook
from replaywatch.collector.writer import Writer


@dataclass(frozen=True, slots=True, kw_only=True)
class Front:
    """The parts of a web side. `writer` writes what people change; `views` is what they see."""

    options: CollectorOptions
    url: str
    store: Store
    writer: Writer
    book: TokenBook
    clocks: Clocks
    views: Views
    clock: Callable[[], int]

    def web(self, sink: Sink, health: Health, metrics: Callable[[Received], CollectorMetrics]) -> Starlette:
        """The application. Raises: ConfigurationError."""
        access = Access(self.book, token_of(self.options))
        limits = Limits(self.options.body_max_bytes, self.options.inflated_max_bytes)
        batches = BatchEndpoint(sink, access, limits, self.clock, self.clocks)
        api, changes = ReadApi(self.store, self.views, self.clocks), Changes(self.writer, self.clock)
        pages = Pages(self.store, self.views, api)
        forms = Forms(access, changes, pages, is_secure=self.url.startswith("https:"))
        registry = registry_of(metrics(batches.received))
        rows = endpoints(batches, api, changes, MessagesApi(self.store))
        return application(rows, Gate(access), pages, forms, health, registry, hosts_of(self.options))
