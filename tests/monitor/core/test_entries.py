"""The bus events about containers' lines."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from monitor.core.entries import Entry, NodeSnapshot, limit_entry, unwatched_entry
from monitor.core.lifecycle import Owner, TaskKey, begin
from plimsoll.broker.announcements import LimitAnnouncement
from plimsoll.envelope import decode_event
from plimsoll.events import LIMIT_EVENTS, Limit
from plimsoll.ids import NodeName, ProcessKey
from tests.announcements import GPU, MAIN, POD, announcement

SNAPSHOT = NodeSnapshot(NodeName("node-1.test"), "boot", 3, 7, "2026-01-01T00:00:00Z", ())


def said(what: str, **fields: object) -> LimitAnnouncement:
    """An announcement with a value in every field of its sort."""
    found = announcement(what, **fields)
    assert isinstance(found, LimitAnnouncement)
    return found


def data(entry: Entry) -> Limit:
    """The data of an entry's event."""
    return msgspec.json.decode(decode_event(entry.body).data, type=Limit)


MEMORY = {"gpu": GPU, "used_bytes": 8, "line_bytes": 9}
WAIT = {**MEMORY, "requested_bytes": 7, "waited_s": 1.5}


ROWS: list[tuple[str, dict[str, object], dict[str, Any]]] = [
    ("denied", {}, {**MEMORY, "requested_bytes": 7, "call": "text"}),
    ("paused", {}, {**WAIT, "reason": "text"}),
    ("resumed", {}, {**WAIT, "reason": "text"}),
    ("violated", {}, {**MEMORY, "reason": "text"}),
    ("violated", {"used_pct": 21.3}, {"gpu": GPU, "reason": "text", "used_pct": 21.3}),
    ("unenforced", {}, {**MEMORY, "reason": "text"}),
    ("unenforced", {"gpu": None}, {"gpu": None, "reason": "text"}),
    ("resized", {}, {**MEMORY, "reason": "text", "share_pct": 30, "limit_pct": 80}),
    ("unmet", {"used_pct": 21.3}, {"gpu": GPU, "reason": "text", "share_pct": 30, "used_pct": 21.3}),
]


def test_every_sort_of_limit_event_has_a_row() -> None:
    """No event is without a row."""
    assert {what for what, _, _ in ROWS} == LIMIT_EVENTS


@pytest.mark.parametrize(("what", "given", "fields"), ROWS)
def test_every_announcement_of_a_line_is_an_event_in_full(
    what: str, given: dict[str, object], fields: dict[str, Any]
) -> None:
    """Each announcement of a line becomes an event with its subject, type, id and every number.

    The event's text is the call for a denial, and the reason for any other announcement.
    """
    announced = said(what, **given)
    entry = limit_entry(SNAPSHOT, announced)
    event = decode_event(entry.body)
    assert entry.subject == f"plimsoll.v1.limit.{what}.node-1_test"
    assert (event.type, event.id, event.time) == (f"dev.plimsoll.limit.{what}.v1", entry.id, announced.time)
    assert data(entry) == Limit(node=SNAPSHOT.node, pod=POD, container=MAIN, pid=5, **fields)


def test_a_reminder_is_another_event_and_a_repetition_is_not() -> None:
    """An announcement published twice has one id; a later announcement of the same wait has an id of its own."""
    first, again = limit_entry(SNAPSHOT, said("paused")), limit_entry(SNAPSHOT, said("paused"))
    assert first.id == again.id
    assert limit_entry(SNAPSHOT, said("paused", seq=2)).id != first.id


def test_the_event_of_a_task_without_its_broker_names_the_task() -> None:
    """The event of a task without its broker names pod, container, process and memory.

    Each outage is an event of its own.
    """
    life = begin(TaskKey(ProcessKey(5, 6), GPU), Owner(POD, MAIN), 100, 0.0, before=None).life
    outage = replace(SNAPSHOT, broker_away_since="2026-01-01T00:00:00Z")
    entry = unwatched_entry(outage, life)
    limit = data(entry)
    assert entry.subject == "plimsoll.v1.limit.unenforced.node-1_test"
    assert (limit.pod, limit.container, limit.gpu, limit.pid, limit.used_bytes) == (POD, MAIN, GPU, 5, 100)
    assert "broker is away" in limit.reason
    assert unwatched_entry(outage, life).id == entry.id
    assert unwatched_entry(replace(outage, broker_away_since="2026-01-01T01:00:00Z"), life).id != entry.id
