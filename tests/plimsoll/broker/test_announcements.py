"""Announcements of each sort as a line, and those of a sort that only a newer broker knows."""

from collections.abc import Iterator
from typing import Final

import msgspec
import pytest

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
from plimsoll.events import LIMIT_EVENTS
from tests.announcements import announcement_line

DECODER: Final = msgspec.json.Decoder(Other)
LINES: Final[dict[type[Announcement], bytes]] = {
    Hello: announcement_line("hello"),
    Context: announcement_line("context"),
    Exited: announcement_line("exited"),
    Unknown: announcement_line("unknown"),
    Denied: announcement_line("denied"),
    Paused: announcement_line("paused"),
    Resumed: announcement_line("resumed"),
    Violated: announcement_line("violated"),
    Unenforced: announcement_line("unenforced"),
    Resized: announcement_line("resized"),
    ShareViolated: announcement_line("violated", used_pct=91.5),
    ShareUnenforced: announcement_line("unenforced", gpu=None),
    Unmet: announcement_line("unmet", used_pct=21.3),
}
"""A line of each sort."""


@pytest.mark.parametrize("sort", LINES)
def test_a_line_is_of_its_sort_and_reads_back_as_written(sort: type[Announcement]) -> None:
    """Each announcement is decoded to its type, from a line with more fields too, and again as we write it."""
    announcement = decode(LINES[sort], DECODER)
    assert type(announcement) is sort
    assert decode(msgspec.json.encode(announcement), DECODER) == announcement


def test_the_lines_are_of_every_sort() -> None:
    """Each sort has a line here."""
    assert LINES.keys() == set(_sorts(Announcement)) - {Other}


def test_the_sorts_about_limits_are_the_events_about_limits() -> None:
    """The monitor publishes exactly those, each under its name."""
    published = {
        decode(line, DECODER).what for sort, line in LINES.items() if issubclass(sort, LimitAnnouncement)
    }
    assert published == LIMIT_EVENTS


def test_a_sort_that_only_a_newer_broker_knows_is_still_an_announcement() -> None:
    """It has its number and its name, so it can be logged and acknowledged, and it stays the same when written."""
    other = decode(announcement_line("melted", seq=9, degrees=1000), DECODER)
    assert isinstance(other, Other)
    assert (other.seq, other.what, other.text) == (9, "melted", "text")
    assert decode(msgspec.json.encode(other), DECODER) == other


@pytest.mark.parametrize("fields", [{"seq": "one"}, {"gpu": None}, {"line_bytes": "much"}])
def test_a_line_that_lacks_something_is_damaged(fields: dict[str, object]) -> None:
    """A field of the sort that is missing or unreadable is never taken for nothing."""
    with pytest.raises(msgspec.ValidationError):
        decode(announcement_line("denied", **fields), DECODER)


def _sorts(kind: type[Announcement]) -> Iterator[type[Announcement]]:
    """The types that have a `what` of their own."""
    for each in kind.__subclasses__():
        yield from _sorts(each)
    if not kind.__subclasses__():
        yield kind
