"""Who tells people, put together from options: the notifier, and what repeats open incidents to an Alertmanager."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from replaywatch.collector.destinations import destinations_of
from replaywatch.collector.loop import Loop
from replaywatch.collector.notified import Notifications
from replaywatch.collector.notifier import Notifier
from replaywatch.collector.options import CollectorOptions
from replaywatch.collector.recording import Message, Telling
from replaywatch.collector.setting_up import links_of, telling_of
from replaywatch.collector.standing import Standing
from replaywatch.collector.store import Store
from replaywatch.collector.webhook import message
from replaywatch.collector.writer import Writer
from replaywatch.notify.alertmanager import ROUND_SECONDS, Alertmanager
from replaywatch.notify.destination import Destination


@dataclass(frozen=True, slots=True)
class Addressees:
    """Who is told, and how a message is made."""

    destinations: tuple[Destination, ...]
    message: Message


def addressees_of(options: CollectorOptions, url: str) -> Addressees:
    """What the options name, before anything is opened. Raises: ConfigurationError."""
    return Addressees(destinations_of(options), partial(message, links_of(options, url)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Notifying:
    """`telling` is for who records incidents; the loops are not yet started."""

    telling: Telling
    notifier: Notifier | None
    outcomes: Notifications
    loops: Mapping[str, Loop]


def notifying(
    options: CollectorOptions,
    addressees: Addressees,
    store: Store,
    writer: Writer,
    clock: Callable[[], int],
    jitter: Callable[[], float],
) -> Notifying:
    """What tells them; nobody is told where there is no destination."""
    destinations, told = addressees.destinations, addressees.message
    if not destinations:
        return Notifying(telling=telling_of(options, None), notifier=None, outcomes=Notifications(()), loops={})
    notifier = Notifier(
        store,
        writer,
        destinations,
        clock,
        jitter,
        allow_private=options.webhook_allow_private,
        per_minute=options.notify_per_minute,
    )
    loops = {"notifier": Loop("notifier", 1.0, notifier.deliver_due)}
    for destination in destinations:
        if isinstance(destination, Alertmanager):
            standing = Standing(store, destination, told, clock)
            loops[destination.name] = Loop(destination.name, ROUND_SECONDS, standing.repeat)
    return Notifying(telling=telling_of(options, told), notifier=notifier, outcomes=notifier.outcomes, loops=loops)
