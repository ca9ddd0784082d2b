"""The bus events about containers' lines."""

import msgspec
import pytest

from monitor.core.entries import Entry, Moment, limit_entry, unwatched_entry
from monitor.core.lifecycle import Owner, TaskKey, begin
from plimsoll.broker.wire import Announcement
from plimsoll.events import LIMIT_EVENTS, Limit, decode_event
from plimsoll.ids import ContainerName, GpuUuid, NodeName, PodUid, ProcessKey

MOMENT = Moment(NodeName("node-1.test"), "boot", 3, 7, "2026-01-01T00:00:00Z", ())
POD, MAIN, GPU = PodUid("pod-a"), ContainerName("main"), GpuUuid("GPU-a")


def said(what: str, seq: int = 1) -> Announcement:
    """An announcement with a value in every field."""
    return Announcement(
        seq=seq, what=what, pod=POD, container=MAIN, pid=5, start_ticks=6, time="2026-01-01T00:00:01Z", gpu=GPU,
        requested_bytes=7, used_bytes=8, line_bytes=9, text="text", waited_s=1.5, share_pct=30, limit_pct=80,
        used_pct=21.3,
    )  # fmt: skip


def data(entry: Entry) -> Limit:
    """The data of an entry's event."""
    return msgspec.json.decode(decode_event(entry.body).data, type=Limit)


@pytest.mark.parametrize("what", sorted(LIMIT_EVENTS))
def test_every_announcement_of_a_line_is_an_event_in_full(what: str) -> None:
    """Each announcement of a line becomes an event with its subject, type, id and every number.

    The event's text is the call for a denial, and the reason for any other announcement.
    """
    entry = limit_entry(MOMENT, said(what))
    event = decode_event(entry.body)
    assert entry.subject == f"plimsoll.v1.limit.{what}.node-1_test"
    assert (event.type, event.id, event.time) == (f"dev.plimsoll.limit.{what}.v1", entry.id, said(what).time)
    call, reason = ("text", "") if what == "denied" else ("", "text")
    assert data(entry) == Limit(
        node=MOMENT.node, gpu=GPU, pod=POD, container=MAIN, pid=5, requested_bytes=7, used_bytes=8, line_bytes=9,
        call=call, reason=reason, waited_s=1.5, share_pct=30, limit_pct=80, used_pct=21.3,
    )  # fmt: skip


def test_a_reminder_is_another_event_and_a_repetition_is_not() -> None:
    """An announcement published twice has one id; a later announcement of the same wait has an id of its own."""
    first, again = limit_entry(MOMENT, said("paused")), limit_entry(MOMENT, said("paused"))
    assert first.id == again.id
    assert limit_entry(MOMENT, said("paused", seq=2)).id != first.id


def test_the_event_of_a_task_without_its_broker_names_the_task() -> None:
    """The event of a task without its broker names pod, container, process and memory.

    Each outage is an event of its own.
    """
    life = begin(TaskKey(ProcessKey(5, 6), GPU), Owner(POD, MAIN), 100, 0.0, before=None).life
    entry = unwatched_entry(MOMENT, life, "2026-01-01T00:00:00Z")
    limit = data(entry)
    assert entry.subject == "plimsoll.v1.limit.unenforced.node-1_test"
    assert (limit.pod, limit.container, limit.gpu, limit.pid, limit.used_bytes) == (POD, MAIN, GPU, 5, 100)
    assert "broker is away" in limit.reason
    assert unwatched_entry(MOMENT, life, "2026-01-01T00:00:00Z").id == entry.id
    assert unwatched_entry(MOMENT, life, "2026-01-01T01:00:00Z").id != entry.id
