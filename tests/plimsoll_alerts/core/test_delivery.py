"""The messages to an Alertmanager, and their repetitions."""

from datetime import UTC, datetime, timedelta

import pytest

from plimsoll.ids import NodeName
from plimsoll_alerts.core import delivery
from plimsoll_alerts.core.alert import Alert, Labels
from plimsoll_alerts.core.delivery import ENDED_S, KEEP, Delivery
from plimsoll_alerts.core.texts import short
from tests.plimsoll_alerts.facts import A, B

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
RESEND_S = 60.0


def at(now_s: float) -> tuple[datetime, float]:
    """A moment on both clocks."""
    return BEGAN + timedelta(seconds=now_s), now_s


def pressed(*gpus: str, since: str = "2025-12-31T00:00:00Z") -> dict[Labels, Alert]:
    """Alerts about these GPUs."""
    alerts = [short(NodeName("n"), gpu, since) for gpu in (A, B) if gpu in gpus]
    return {one.labels: one for one in alerts}


def sent(to: Delivery, now_s: float, *, taken: bool = True) -> list[tuple[str, datetime]]:
    """The GPUs of the posts that are due, with their ends."""
    posts = to.due(*at(now_s))
    if taken:
        to.taken(posts, now_s)
    return [(dict(post.alert.labels)["gpu"], post.ends) for post in posts]


def test_an_alert_is_sent_at_once_and_again_at_each_interval() -> None:
    """It ends by itself after four intervals, should this service end."""
    to = Delivery(RESEND_S)
    to.update(pressed(A), *at(0))
    assert sent(to, 0) == [(A, at(KEEP * RESEND_S)[0])]
    to.update(pressed(A), *at(59))
    assert sent(to, 59) == []
    assert sent(to, 60) == [(A, at(60 + KEEP * RESEND_S)[0])]


def test_an_end_is_sent_until_it_was_taken_and_for_a_while_more() -> None:
    """Its time is that of the end, not that of the post."""
    to = Delivery(RESEND_S)
    to.update(pressed(A), *at(0))
    sent(to, 0)
    to.update({}, *at(5))
    assert sent(to, 6, taken=False) == sent(to, 50) == [(A, at(5)[0])]
    assert sent(to, 51) == []
    assert sent(to, 110) == [(A, at(5)[0])]
    to.update({}, *at(6 + ENDED_S))
    assert sent(to, 7 + ENDED_S) == []


def test_nothing_is_lost_while_alertmanager_is_away() -> None:
    """Also an alert that began and ended meanwhile is sent, once, as ended."""
    to = Delivery(RESEND_S)
    for now_s, firing in ((0, pressed(A)), (1, pressed(A, B)), (2, pressed(B))):
        to.update(firing, *at(now_s))
        sent(to, now_s, taken=False)
    to.update(pressed(B), *at(3 + ENDED_S))
    assert dict(sent(to, 3 + ENDED_S)) == {A: at(2)[0], B: at(3 + ENDED_S + KEEP * RESEND_S)[0]}
    assert to.waiting == 0


def test_a_change_while_a_post_is_under_way_is_sent_after_it() -> None:
    """An alert that ends, or ends and fires again, while Alertmanager answers."""
    to = Delivery(RESEND_S)
    to.update(pressed(A), *at(0))
    posts = to.due(*at(0))
    to.update({}, *at(1))
    to.taken(posts, 1)
    ends = to.due(*at(1))
    assert [post.ends for post in ends] == [at(1)[0]]
    to.update(pressed(A), *at(2))
    to.taken(ends, 2)
    assert [post.ends for post in to.due(*at(2))] == [at(2 + KEEP * RESEND_S)[0]]


@pytest.mark.parametrize("since", ["2030-01-01T00:00:00Z", "nonsense", ""])
def test_no_alert_begins_after_its_end(since: str) -> None:
    """Alertmanager refuses such: a node's clock may be ahead, and a time may be unreadable."""
    to = Delivery(RESEND_S)
    to.update(pressed(A, since=since), *at(0))
    to.update({}, *at(1))
    [post] = to.due(*at(9))
    assert post.starts == post.ends == at(1)[0]


def test_ends_that_wait_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest is dropped, and counted."""
    monkeypatch.setattr(delivery, "WAITING_AT_MOST", 1)
    to = Delivery(RESEND_S)
    to.update(pressed(A, B), *at(0))
    to.update(pressed(B), *at(1))
    to.update({}, *at(2))
    assert [gpu for gpu, _ in sent(to, 3)] == [B]
    assert to.dropped == 1
