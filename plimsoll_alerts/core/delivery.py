"""The messages for one Alertmanager: alerts that fire, again and again, and ends, until they were taken.

What always holds: an alert that began is sent until Alertmanager has taken it, and so is its end. An alert that began
and ended while Alertmanager was away is sent too, as one that ended. Alertmanager keeps an alert until the end time
that was sent last, so an alert that this service no longer sends ends by itself after `KEEP` intervals.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import count
from typing import Final

from plimsoll_alerts.core.alert import Alert, Labels

KEEP: Final = 4
"""The end time of a firing alert, in intervals from now: it outlives three posts that fail. Prometheus has 4 too."""

ENDED_S: Final = 900.0
"""An end is sent again for this long, in case a restart of Alertmanager lost it. Prometheus has 15 minutes too."""

WAITING_AT_MOST: Final = 10_000
"""Ends that may wait for an Alertmanager that is away, some 10 MiB. Then the oldest is dropped, and counted."""


@dataclass(frozen=True, slots=True)
class Post:
    """An alert as Alertmanager is to know it.

    Attributes:
        ends: the end of the alert, in the future while it fires.
        version: the version of the alert's state, for `Delivery.taken`.
    """

    alert: Alert
    starts: datetime
    ends: datetime
    version: int


@dataclass(frozen=True, slots=True)
class _Known:
    """An alert, and what was sent of it.

    Attributes:
        ended: when it ended; None while it fires.
        ended_s: likewise, on the monotonic clock.
        sent_s: when this state of it was taken by Alertmanager; None: not yet.
        version: another one for each state.
    """

    alert: Alert
    version: int
    ended: datetime | None = None
    ended_s: float = 0.0
    sent_s: float | None = None


class Delivery:
    """The alerts of one Alertmanager.

    Attributes:
        dropped: ends that were dropped unsent.
    """

    def __init__(self, resend_s: float) -> None:
        """Send what fires again every `resend_s` seconds."""
        self._resend_s = resend_s
        self._known: dict[Labels, _Known] = {}
        self._versions = count()
        self.dropped = 0

    @property
    def waiting(self) -> int:
        """Alerts whose present state has not been taken yet."""
        return sum(one.sent_s is None for one in self._known.values())

    def update(self, firing: Mapping[Labels, Alert], now: datetime, now_s: float) -> None:
        """Note what fires now; `now` and `now_s` are the same moment, in UTC and on the monotonic clock."""
        for labels, alert in firing.items():
            known = self._known.get(labels)
            if known is None or known.ended is not None or known.alert != alert:
                self._known[labels] = _Known(alert, next(self._versions))
        for labels, known in list(self._known.items()):
            if known.ended is None and labels not in firing:
                version = next(self._versions)
                self._known[labels] = _Known(known.alert, version, ended=now, ended_s=now_s)
            elif known.ended is not None and known.sent_s is not None and now_s - known.ended_s > ENDED_S:
                del self._known[labels]
        self._drop()

    def due(self, now: datetime, now_s: float) -> tuple[Post, ...]:
        """The posts that are due."""
        return tuple(
            self._post(one, now)
            for one in self._known.values()
            if one.sent_s is None or now_s - one.sent_s >= self._resend_s
        )

    def taken(self, posts: tuple[Post, ...], now_s: float) -> None:
        """Note that Alertmanager took these posts; what changed meanwhile is due still."""
        for post in posts:
            known = self._known.get(post.alert.labels)
            if known is not None and known.version == post.version:
                self._known[post.alert.labels] = replace(known, sent_s=now_s)

    def _post(self, one: _Known, now: datetime) -> Post:
        ends = one.ended or now + timedelta(seconds=KEEP * self._resend_s)
        # A node's clock may be ahead of ours, and Alertmanager refuses an alert that ends before it begins.
        starts = min(one.alert.since or now, ends, now)
        return Post(one.alert, starts, ends, one.version)

    def _drop(self) -> None:
        ended = [
            labels for labels, one in self._known.items() if one.ended is not None and one.sent_s is None
        ]
        for labels in sorted(ended, key=lambda each: self._known[each].ended_s)[:-WAITING_AT_MOST]:
            del self._known[labels]
            self.dropped += 1
