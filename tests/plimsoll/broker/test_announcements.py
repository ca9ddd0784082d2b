"""Announcements across versions: a new monitor under an old broker, an old one under a new, and an old journal."""

from collections.abc import Iterator
from typing import Final

import msgspec
import pytest
from msgspec import Struct

from plimsoll.broker.announcements import (
    Announcement,
    Context,
    Denied,
    Exited,
    Hello,
    LimitAnnouncement,
    Other,
    Paused,
    Resized,
    Resumed,
    ShareUnenforced,
    ShareViolated,
    Unenforced,
    Unknown,
    Unmet,
    Violated,
    decode,
)
from plimsoll.broker.wire import Done
from plimsoll.events import LIMIT_EVENTS
from tests.announcements import announcement_line


class EveryField(Struct, frozen=True, kw_only=True, tag="announcement"):
    """An announcement as older brokers wrote it and older monitors read it: one type for every sort."""

    seq: int
    what: str
    pod: str
    container: str
    pid: int
    start_ticks: int
    time: str
    gpu: str | None = None
    requested_bytes: int = 0
    used_bytes: int = 0
    line_bytes: int = 0
    text: str = ""
    waited_s: float = 0.0
    share_pct: int = 0
    limit_pct: int = 0
    used_pct: float = 0.0


LINES: Final = msgspec.json.Decoder(Other)
OLDER_LINES: Final = msgspec.json.Decoder(EveryField | Done)
OLD_LINES: Final[list[tuple[type[Announcement], bytes]]] = [
    (
        Hello,
        (
            b'{"type":"announcement","seq":1,"what":"hello","pod":"6c4b1c0e-0d6f-4b7e-9d0c-9a1c2f3e4d5a",'
            b'"container":"main","pid":13052,"start_ticks":3833808,"time":"2026-11-23T01:20:55.463043Z",'
            b'"gpu":null,"requested_bytes":0,"used_bytes":0,"line_bytes":0,"text":"","waited_s":0.0,'
            b'"share_pct":0,"limit_pct":0,"used_pct":0.0}'
        ),
    ),
    (
        Context,
        (
            b'{"type":"announcement","seq":2,"what":"context","pod":"6c4b1c0e-0d6f-4b7e-9d0c-9a1c2f3e4d5a",'
            b'"container":"main","pid":13445,"start_ticks":3835805,"time":"2026-11-23T01:21:15.440839Z",'
            b'"gpu":"GPU-aaaa","requested_bytes":0,"used_bytes":0,"line_bytes":0,"text":"","waited_s":0.0,'
            b'"share_pct":0,"limit_pct":0,"used_pct":0.0}'
        ),
    ),
    (
        Exited,
        (
            b'{"type":"announcement","seq":4,"what":"exited","pod":"6c4b1c0e-0d6f-4b7e-9d0c-9a1c2f3e4d5a",'
            b'"container":"main","pid":13779,"start_ticks":3836096,"time":"2026-11-23T01:21:18.343223Z",'
            b'"gpu":null,"requested_bytes":0,"used_bytes":0,"line_bytes":0,"text":"","waited_s":0.0,'
            b'"share_pct":0,"limit_pct":0,"used_pct":0.0}'
        ),
    ),
    (
        Unknown,
        (
            b'{"type":"announcement","seq":18,"what":"unknown","pod":"pod-b","container":"main","pid":103,'
            b'"start_ticks":5,"time":"2023-11-14T22:13:20.000000Z","gpu":null,"requested_bytes":0,'
            b'"used_bytes":0,"line_bytes":0,"text":"cuFoo","waited_s":0.0,"share_pct":0,"limit_pct":0,'
            b'"used_pct":0.0}'
        ),
    ),
    (
        Denied,
        (
            b'{"type":"announcement","seq":3,"what":"denied","pod":"6c4b1c0e-0d6f-4b7e-9d0c-9a1c2f3e4d5a",'
            b'"container":"main","pid":13779,"start_ticks":3836096,"time":"2026-11-23T01:21:18.337474Z",'
            b'"gpu":"GPU-5a1c0d2e-0000-4000-8000-000000000000","requested_bytes":805306368,'
            b'"used_bytes":536870912,"line_bytes":1073741824,"text":"cuMemAlloc_v2","waited_s":0.0,'
            b'"share_pct":0,"limit_pct":0,"used_pct":0.0}'
        ),
    ),
    (
        Paused,
        (
            b'{"type":"announcement","seq":3,"what":"paused","pod":"pod-b","container":"main","pid":12898,'
            b'"start_ticks":3832547,"time":"2026-11-23T01:20:42.850493Z","gpu":"GPU-aaaa",'
            b'"requested_bytes":629145600,"used_bytes":0,"line_bytes":1073741824,"text":"others hold it",'
            b'"waited_s":0.0008260230024461634,"share_pct":0,"limit_pct":0,"used_pct":0.0}'
        ),
    ),
    (
        Resumed,
        (
            b'{"type":"announcement","seq":4,"what":"resumed","pod":"pod-b","container":"main","pid":12898,'
            b'"start_ticks":3832547,"time":"2026-11-23T01:20:42.861054Z","gpu":"GPU-aaaa",'
            b'"requested_bytes":629145600,"used_bytes":0,"line_bytes":1073741824,"text":"granted",'
            b'"waited_s":0.011403541000618134,"share_pct":0,"limit_pct":0,"used_pct":0.0}'
        ),
    ),
    (
        Violated,
        (
            b'{"type":"announcement","seq":2,"what":"violated","pod":"6c4b1c0e-0d6f-4b7e-9d0c-9a1c2f3e4d5a",'
            b'"container":"main","pid":0,"start_ticks":0,"time":"2026-11-23T01:20:43.286149Z","gpu":"GPU-aaaa",'
            b'"requested_bytes":0,"used_bytes":1388314624,"line_bytes":1073741824,'
            b'"text":"NVML shows more than the line","waited_s":0.0,"share_pct":0,"limit_pct":0,"used_pct":0.0}'
        ),
    ),
    (
        ShareViolated,
        (
            b'{"type":"announcement","seq":2,"what":"violated","pod":"6c4b1c0e-0d6f-4b7e-9d0c-9a1c2f3e4d5a",'
            b'"container":"main","pid":7,"start_ticks":70,"time":"2023-11-14T22:13:20.000000Z","gpu":"GPU-bbbb",'
            b'"requested_bytes":0,"used_bytes":0,"line_bytes":0,'
            b'"text":"by NVML the process used 83 % of this GPU\'s time, while its page says 12.3 %",'
            b'"waited_s":0.0,"share_pct":0,"limit_pct":0,"used_pct":83.0}'
        ),
    ),
    (
        Unenforced,
        (
            b'{"type":"announcement","seq":3,"what":"unenforced","pod":"6c4b1c0e-0d6f-4b7e-9d0c-9a1c2f3e4d5a",'
            b'"container":"main","pid":12905,"start_ticks":3832590,"time":"2026-11-23T01:20:43.286149Z",'
            b'"gpu":"GPU-aaaa","requested_bytes":0,"used_bytes":314572800,"line_bytes":1073741824,'
            b'"text":"a process of this container never came under its hook","waited_s":0.0,"share_pct":0,'
            b'"limit_pct":0,"used_pct":0.0}'
        ),
    ),
    (
        ShareUnenforced,
        (
            b'{"type":"announcement","seq":3,"what":"unenforced","pod":"6c4b1c0e-0d6f-4b7e-9d0c-9a1c2f3e4d5a",'
            b'"container":"main","pid":13171,"start_ticks":3834737,"time":"2026-11-23T01:21:08.638436Z",'
            b'"gpu":null,"requested_bytes":0,"used_bytes":0,"line_bytes":0,'
            b'"text":"the broker was away: until now nobody held this process to its share of compute time",'
            b'"waited_s":0.0,"share_pct":0,"limit_pct":0,"used_pct":0.0}'
        ),
    ),
    (
        Resized,
        (
            b'{"type":"announcement","seq":3,"what":"resized","pod":"6c4b1c0e-0d6f-4b7e-9d0c-9a1c2f3e4d5a",'
            b'"container":"main","pid":0,"start_ticks":0,"time":"2026-11-23T01:21:15.757202Z","gpu":"GPU-aaaa",'
            b'"requested_bytes":0,"used_bytes":1073741824,"line_bytes":536870912,'
            b'"text":"holds 1Gi now: growth is refused until it is below","waited_s":0.0,"share_pct":30,'
            b'"limit_pct":80,"used_pct":0.0}'
        ),
    ),
    (
        Unmet,
        (
            b'{"type":"announcement","seq":1,"what":"unmet","pod":"6c4b1c0e-0d6f-4b7e-9d0c-9a1c2f3e4d5a",'
            b'"container":"main","pid":0,"start_ticks":0,"time":"2023-11-14T22:13:20.000000Z","gpu":"GPU-bbbb",'
            b'"requested_bytes":0,"used_bytes":0,"line_bytes":0,"text":"wanted this GPU throughout 10 s,'
            b' and had it for 21.3 % of that time instead of the 30 % it requested","waited_s":0.0,'
            b'"share_pct":30,"limit_pct":0,"used_pct":21.3}'
        ),
    ),
]
"""A line of each sort from the journals of brokers that wrote `EveryField`."""


@pytest.mark.parametrize(("sort", "line"), OLD_LINES)
def test_a_line_of_an_older_broker_is_of_its_sort_and_keeps_its_meaning(
    sort: type[Announcement], line: bytes
) -> None:
    """Each announcement is decoded to its type. From a new broker's, an older monitor reads what it read before."""
    announcement = decode(line, LINES)
    assert type(announcement) is sort
    fields = msgspec.structs.asdict(announcement)
    del fields["what"]
    again = msgspec.json.encode(sort(**fields))
    assert decode(again, LINES) == announcement
    assert OLDER_LINES.decode(again) == OLDER_LINES.decode(line)


def test_the_old_lines_are_of_every_sort() -> None:
    """A sort without a line here is a new one, whose `what` older monitors log only."""
    assert {sort for sort, _ in OLD_LINES} == set(_sorts(Announcement)) - {Other}


def test_the_sorts_about_limits_are_the_events_about_limits() -> None:
    """The monitor publishes exactly those, each under its name."""
    published = {decode(line, LINES).what for sort, line in OLD_LINES if issubclass(sort, LimitAnnouncement)}
    assert published == LIMIT_EVENTS


def test_a_sort_that_only_a_newer_broker_knows_is_still_an_announcement() -> None:
    """It has its number and its name, so it can be logged and acknowledged, and it stays the same when written."""
    other = decode(announcement_line("melted", seq=9, degrees=1000), LINES)
    assert isinstance(other, Other)
    assert (other.seq, other.what, other.text) == (9, "melted", "text")
    assert decode(msgspec.json.encode(other), LINES) == other


@pytest.mark.parametrize("fields", [{"seq": "one"}, {"gpu": None}, {"line_bytes": "much"}])
def test_a_line_that_lacks_something_is_damaged(fields: dict[str, object]) -> None:
    """A field of the sort that is missing or unreadable is never taken for nothing."""
    with pytest.raises(msgspec.ValidationError):
        decode(announcement_line("denied", **fields), LINES)


def _sorts(kind: type[Announcement]) -> Iterator[type[Announcement]]:
    """The types that have a `what` of their own."""
    for each in kind.__subclasses__():
        yield from _sorts(each)
    if not kind.__subclasses__():
        yield kind
