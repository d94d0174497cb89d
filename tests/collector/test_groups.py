from __future__ import annotations

import random

from sqlalchemy import select

from collector.material import SECOND, healthy_window, workload
from collector.rig import Rig
from collector.test_notifications import notifier_of
from collector.webhook_receiver import WebhookReceiver
from replaywatch.collector.incidents import find_members
from replaywatch.collector.recording import Telling
from replaywatch.collector.tables import MemberRow
from replaywatch.contract.window import Workload

WAIT_NS = 30 * SECOND


def pods(first: int, last: int) -> list[Workload]:
    return [workload(f"pod-{i}", node=f"node-{i // 8}", pid=i) for i in range(first, last)]


def roll(rig: Rig, who: list[Workload], ticks: int = 2, says: str = "page") -> None:
    """A window of each pod, and a tick; so many times."""
    rig.judge.says = says
    for _ in range(ticks):
        rig.clock.advance(5)
        now = rig.clock()
        rig.feed(*(healthy_window(now - 5 * SECOND, random.Random(1), w) for w in who))
        rig.detection.tick()


def patient(rig: Rig) -> None:
    rig.telling = Telling(wait_ns=WAIT_NS, again_ns=1800 * SECOND)
    rig.restart()


def test_a_rollout_on_four_hundred_pods_reaches_a_webhook_once(rig: Rig, receiver: WebhookReceiver) -> None:
    patient(rig)
    notifier = notifier_of(rig, receiver.url)
    for wave in range(4):
        roll(rig, pods(0, 100 * (wave + 1)), ticks=1)
        notifier.deliver_due()
        if wave == 1:
            rig.restart()  # in the middle of it, and not cleanly
            notifier = notifier_of(rig, receiver.url)
    roll(rig, pods(0, 400), ticks=2)
    rig.clock.advance(40)
    for _ in range(3):
        notifier.deliver_due()
    (incident,) = rig.incidents("open")
    assert (incident.members, incident.open_members) == (400, 400)
    (told,) = receiver.received
    assert told.content["incident"]["members"] == 400
    assert told.content["event"] == "opened"


def test_growth_is_told_again_when_it_is_tenfold_and_later(rig: Rig, receiver: WebhookReceiver) -> None:
    patient(rig)
    notifier = notifier_of(rig, receiver.url)
    roll(rig, pods(0, 3))
    rig.clock.advance(31)
    notifier.deliver_due()
    roll(rig, pods(0, 31))
    notifier.deliver_due()
    assert [r.content["event"] for r in receiver.received] == ["opened"]
    for _ in range(5):
        rig.clock.advance(400)
        roll(rig, pods(0, 31), ticks=1)
    roll(rig, pods(0, 40))
    notifier.deliver_due()
    assert [r.content["event"] for r in receiver.received] == ["opened", "grown"]
    assert receiver.received[1].content["incident"]["members"] == 40


def test_an_incident_closes_with_its_last_member_and_says_so_once(rig: Rig, receiver: WebhookReceiver) -> None:
    notifier = notifier_of(rig, receiver.url)
    roll(rig, pods(0, 3))
    roll(rig, pods(0, 2), ticks=6, says="healthy")
    (incident,) = rig.incidents()
    assert (incident.state, incident.open_members) == ("open", 1)
    roll(rig, pods(2, 3), ticks=6, says="healthy")
    (incident,) = rig.incidents()
    assert (incident.state, incident.open_members, incident.members) == ("closed", 0, 3)
    notifier.deliver_due()
    notifier.deliver_due()
    assert [r.content["event"] for r in receiver.received] == ["opened", "closed"]


def test_an_incident_is_as_bad_as_its_worst_member(rig: Rig) -> None:
    roll(rig, pods(0, 1), says="warn")
    roll(rig, pods(1, 2), says="page")
    (incident,) = rig.incidents()
    assert (incident.severity, incident.workload_label) == ("page", "pod-1 (decode)")
    with rig.store.session() as session:
        assert [m.severity for m in find_members(session, incident.id, 10)] == ["warn", "page"]


def test_another_configuration_is_another_incident(rig: Rig) -> None:
    roll(rig, pods(0, 2))
    rig.clock.advance(5)
    rig.judge.says = "page"
    from collector.material import OFF

    for _ in range(2):
        rig.clock.advance(5)
        rig.feed(healthy_window(rig.clock() - 5 * SECOND, random.Random(1), workload("other"), OFF))
        rig.detection.tick()
    assert len(rig.incidents("open")) == 2


def test_a_group_that_closed_opens_anew_as_another_incident(rig: Rig) -> None:
    roll(rig, pods(0, 2))
    roll(rig, pods(0, 2), ticks=6, says="healthy")
    roll(rig, pods(0, 2))
    assert sorted((i.id, i.state) for i in rig.incidents()) == [(1, "closed"), (2, "open")]


def test_a_node_that_falls_silent_is_an_incident_and_its_return_ends_it(rig: Rig, receiver: WebhookReceiver) -> None:
    here, there = workload("a", node="node-a"), workload("b", node="node-b")
    roll(rig, [here, there], ticks=2, says="healthy")
    for _ in range(70):
        roll(rig, [here], ticks=1, says="healthy")
    (incident,) = rig.incidents("open")
    assert (incident.detector, incident.workload_label, incident.members) == ("agent_silent", "agent on node-b", 1)
    rig.restart()
    roll(rig, [here, there], ticks=1, says="healthy")
    assert rig.incidents("open")
    roll(rig, [here, there], ticks=6, says="healthy")
    assert [i.state for i in rig.incidents()] == ["closed"]


def test_many_nodes_that_fall_silent_are_one_incident(rig: Rig) -> None:
    everywhere = [workload(f"p{i}", node=f"node-{i}") for i in range(20)]
    roll(rig, everywhere, says="healthy")
    for _ in range(65):
        roll(rig, everywhere[:1], ticks=1, says="healthy")
    (incident,) = rig.incidents("open")
    assert (incident.detector, incident.members) == ("agent_silent", 19)


def test_a_node_that_is_forgotten_ends_its_incident(rig: Rig) -> None:
    here, there = workload("a", node="node-a"), workload("b", node="node-b")
    roll(rig, [here, there], says="healthy")
    for _ in range(65):
        roll(rig, [here], ticks=1, says="healthy")
    rig.clock.advance(3600)
    roll(rig, [here], says="healthy", ticks=2)
    with rig.store.session() as session:
        assert set(session.scalars(select(MemberRow.state))) == {"closed"}
