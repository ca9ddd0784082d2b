"""The alerts that follow from the stream's messages."""

from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from plimsoll.gpu_events import HealthClass
from plimsoll.ids import ContainerName
from plimsoll.part.errors import InputError
from plimsoll_alerts.core.alert import AlertKind
from plimsoll_alerts.core.book import FOREIGN_S, AlertBook, StreamPlace
from tests.plimsoll_alerts.facts import GIB, TIME, A, B, Facts, ill, task

WALL_S = 2e9


def firing(book: AlertBook, now_s: float = 0.0) -> list[str]:
    """Each alert's name and what it is about."""
    shown = []
    for labels in book.firing(now_s):
        named = dict(labels)
        about = named.get("container") or named.get("gpu") or named.get("node", "")
        shown.append(f"{named['alertname']} {about}".strip())
    return sorted(shown)


def taken(book: AlertBook, *bodies: bytes, start: int = 1, at_s: float = 0.0) -> AlertBook:
    """The book after these messages, numbered from `start`."""
    for seq, body in enumerate(bodies, start):
        book.take(body, StreamPlace(seq, at_s), WALL_S)
    return book


def test_a_gpu_is_unfit_until_a_report_has_it_healthy() -> None:
    """Fatal and degraded are alerts of their own, and `info` is none."""
    node = Facts()
    book = taken(AlertBook(), node.report(health=(ill(), ill(B, HealthClass.DEGRADED))))
    assert firing(book) == ["PlimsollGpuDegraded GPU-b", "PlimsollGpuFatal GPU-a"]
    taken(book, node.report(health=(ill(A, HealthClass.DEGRADED), ill(B, HealthClass.INFO))), start=2)
    assert firing(book) == ["PlimsollGpuDegraded GPU-a"]
    taken(book, node.report(), start=3)
    assert firing(book) == []


def test_an_alert_says_what_it_is_about() -> None:
    """Labels name the GPU, the time is the state's own, and the texts say what was found."""
    [alert] = taken(AlertBook(), Facts().report(health=(ill(),))).firing(0).values()
    assert dict(alert.labels) == {
        "alertname": "PlimsollGpuFatal",
        "severity": "critical",
        "node": "node-1",
        "gpu": "GPU-a",
        "model": "NVIDIA L4",
    }
    assert alert.since is not None
    assert alert.since.isoformat() == "2026-01-01T00:00:00.500000+00:00"
    assert "XID 79" in alert.summary


def test_pressure_is_what_the_newest_report_says() -> None:
    """A late report changes nothing."""
    node = Facts()
    late, short, over = node.report(), node.report(short=(A,)), node.report()
    book = taken(AlertBook(), short, late)
    assert firing(book) == ["PlimsollGpuPressure GPU-a"]
    assert firing(taken(book, over, start=3)) == []


def test_a_container_past_its_line_fires_until_it_is_within_it() -> None:
    """All processes of the container on the GPU count, and those of others do not."""
    node, other = Facts(), ContainerName("side")
    over = (
        task(71, 2 * GIB),
        task(72, 2 * GIB),
        task(73, 9 * GIB, container=other),
        task(74, 9 * GIB, gpu=B),
    )
    book = taken(
        AlertBook(), node.report(*over), node.limit("violated", line_bytes=3 * GIB), node.report(*over)
    )
    assert firing(book) == ["PlimsollLimitViolated main"]
    taken(book, node.report(task(71, 2 * GIB), task(72, GIB), *over[2:]), start=4)
    assert firing(book) == []
    assert firing(taken(book, node.report(*over), start=5)) == ["PlimsollLimitViolated main"]
    assert firing(taken(book, node.report(*over[2:]), start=6)) == []


def test_a_report_from_before_the_event_ends_nothing() -> None:
    """The monitor reports memory in steps: the last report may still show less than the line."""
    node = Facts()
    book = taken(AlertBook(), node.report(task(used_bytes=GIB)), node.limit("violated", line_bytes=2 * GIB))
    assert firing(book) == ["PlimsollLimitViolated main"]


def test_an_earlier_report_that_is_read_later_ends_nothing() -> None:
    """A service that starts reads the events `limit.*` first, and then the reports that came meanwhile."""
    node = Facts()
    book = taken(AlertBook(), node.report())
    before, event = node.report(), node.limit("unenforced", pid=71)
    taken(book, event, start=3)
    taken(book, before, start=2)
    assert firing(book) == ["PlimsollLimitUnenforced main"]


@pytest.mark.parametrize("report_first", [False, True])
def test_a_raised_line_ends_a_violation(report_first: bool) -> None:  # noqa: FBT001 - a parameter
    """Also for a run that begins later, and so reads the newest report first."""
    node = Facts()
    bodies = [node.limit("violated", line_bytes=GIB), node.limit("resized", line_bytes=4 * GIB)]
    places = [StreamPlace(1, 0), StreamPlace(2, 0)]
    report, last = node.report(task(used_bytes=3 * GIB)), StreamPlace(3, 0)
    order = [(report, last), *zip(bodies, places, strict=True)]
    book = AlertBook()
    for body, place in order if report_first else (*order[1:], order[0]):
        book.take(body, place, WALL_S)
    assert firing(book) == []


def test_a_process_without_its_hook_fires_until_it_is_gone() -> None:
    """The container's other processes do not keep it."""
    node = Facts()
    book = taken(
        AlertBook(), node.report(task(71), task(72)), node.limit("unenforced", pid=71), node.report(task(71))
    )
    assert firing(book) == ["PlimsollLimitUnenforced main"]
    assert firing(taken(book, node.report(task(72)), start=4)) == []


def test_many_events_at_once_end_no_alert() -> None:
    """Neither an event without a state nor an entry that stands for many processes says that a process is gone."""
    node = Facts()
    book = taken(AlertBook(), node.report(task(pid=7)), node.limit("unenforced", pid=7))
    assert firing(book) == ["PlimsollLimitUnenforced main"]
    together = structs.replace(task(pid=5), processes=40)
    taken(book, node.report(omitted=True), node.report(together), start=3)
    assert firing(book) == ["PlimsollLimitUnenforced main"]
    taken(book, node.report(task(pid=5)), start=5)
    assert firing(book) == []


def test_processes_without_a_broker_are_one_alert_until_it_is_back() -> None:
    """Two processes of a container; the event of a process without its hook does not end with the broker's return."""
    node = Facts()
    tasks = (task(71), task(72), task(73, gpu=B))
    away = [node.limit("unenforced", pid=pid, broker_away=True) for pid in (71, 72)]
    book = taken(
        AlertBook(), node.report(*tasks, broker_away=True), *away, node.limit("unenforced", pid=73, gpu=B)
    )
    taken(book, node.report(*tasks, broker_away=True), start=5)
    assert len(book.firing(0)) == 2
    taken(book, node.report(*tasks), start=6)
    [left] = book.firing(0)
    assert dict(left)["gpu"] == B


def test_a_gap_in_shares_that_is_over_is_no_alert() -> None:
    """The broker reports it once the process is held again."""
    node = Facts()
    assert firing(taken(AlertBook(), node.report(task()), node.limit("unenforced", pid=71, gpu=None))) == []


def test_a_gpu_that_cannot_be_read_ends_no_alert_of_its_containers() -> None:
    """While it is lost nobody knows; once the node is there without it, they are gone."""
    node = Facts()
    book = taken(AlertBook(), node.report(task()), node.limit("unenforced", pid=71))
    taken(book, node.report(gpus=(B,), health=(ill(),)), start=3)
    assert firing(book) == ["PlimsollGpuFatal GPU-a", "PlimsollLimitUnenforced main"]
    assert firing(taken(book, node.report(gpus=(B,)), start=4)) == []


def test_a_foreign_monitor_fires_while_it_is_named() -> None:
    """Monitors name each other again and again; the first time is when it began."""
    node = Facts()
    book = taken(AlertBook(), node.report(), node.foreign())
    book.take(node.foreign(), StreamPlace(3, 1000.0), WALL_S)
    assert firing(book, 1000.0 + FOREIGN_S) == ["PlimsollForeignMonitor node-1"]
    assert firing(book, 1001.0 + FOREIGN_S) == []


def test_a_node_is_silent_after_three_heartbeats_until_it_reports() -> None:
    """Its other alerts stand meanwhile; forgotten, it has none."""
    node = Facts(heartbeat_s=60)
    book = taken(AlertBook(forget_s=1000), node.report(health=(ill(),)))
    assert firing(book, 180) == ["PlimsollGpuFatal GPU-a"]
    assert firing(book, 181) == ["PlimsollGpuFatal GPU-a", "PlimsollNodeSilent node-1"]
    assert firing(taken(book, node.report(), start=2, at_s=200), 200) == []
    assert firing(book, 381) == ["PlimsollNodeSilent node-1"]
    assert firing(book, 1201) == []


def test_only_wanted_alerts_fire() -> None:
    """By the names of the settings."""
    node = Facts()
    book = taken(AlertBook(kinds={AlertKind.PRESSURE}), node.report(health=(ill(),), short=(B,)))
    assert firing(book) == ["PlimsollGpuPressure GPU-b"]


def test_an_outage_of_the_bus_fires() -> None:
    """Its other alerts stand."""
    book = taken(AlertBook(), Facts().report(short=(B,)))
    book.bus_away_since = TIME
    assert firing(book) == ["PlimsollBusAway", "PlimsollGpuPressure GPU-b"]


@pytest.mark.parametrize("body", [b"", b"{}", Facts().limit("violated").replace(b'"pod-1"', b"7")])
def test_a_damaged_message_is_refused_and_changes_nothing(body: bytes) -> None:
    """The reader names it and goes on."""
    with pytest.raises(InputError):
        taken(AlertBook(), body)


@st.composite
def histories(draw: st.DrawFn) -> list[bytes]:
    """The events that one node may publish, in order. Process 70 lives on; the others come, go and stay away."""
    node, living, pids = Facts(), [70], count(71)
    bodies = [node.report(task(70, GIB))]
    kinds = st.sampled_from(["report", "violated", "unenforced", "away", "resized"])
    for what in draw(st.lists(kinds, max_size=12)):
        if what == "report":
            living = [70, *(pid for pid in living[1:] if draw(st.booleans())), next(pids)]
            tasks = [task(pid, draw(st.integers(1, 4)) * GIB) for pid in living]
            short = (A,) if draw(st.booleans()) else ()
            bodies.append(node.report(*tasks, short=short, broker_away=draw(st.booleans())))
        elif what in {"violated", "resized"}:
            bodies.append(node.limit(what, line_bytes=draw(st.integers(1, 8)) * GIB))
        else:
            pid = draw(st.sampled_from(living))
            bodies.append(node.limit("unenforced", pid=pid, broker_away=what == "away"))
    return bodies


@given(histories(), st.data())
def test_a_run_that_begins_later_fires_the_same(bodies: list[bytes], data: st.DataObject) -> None:
    """It reads the newest report, then the events `limit.*` of the stream, then what comes; twice changes nothing."""
    numbered = list(enumerate(bodies, 1))
    live, begun = AlertBook(), data.draw(st.integers(1, len(bodies)))
    for seq, body in numbered:
        live.take(body, StreamPlace(seq, 0), WALL_S)
    late = AlertBook()
    kept = numbered[:begun]
    reports = [each for each in kept if b"node.state" in each[1]]
    limits = [each for each in kept if b"dev.plimsoll.limit" in each[1]]
    again = data.draw(st.integers(0, begun))
    for seq, body in (*reports[-1:], *limits, *numbered[again:]):
        late.take(body, StreamPlace(seq, 0), WALL_S)
    assert late.firing(0) == live.firing(0)
