"""Announcements as they come out of a line in which every field is set."""

from typing import Final

import msgspec

from plimsoll.broker.announcements import Announcement, Other, decode
from plimsoll.ids import ContainerName, GpuUuid, PodUid

POD, MAIN, GPU = PodUid("0b7e8f3c-1d2a-4c5b-9e6f-7a8b9c0d1e2f"), ContainerName("main"), GpuUuid("GPU-a")

_LINES: Final = msgspec.json.Decoder(Other)
_FIELDS: Final = {
    "seq": 1, "pod": POD, "container": MAIN, "pid": 5, "start_ticks": 6, "time": "2026-01-01T00:00:01Z", "gpu": GPU,
    "requested_bytes": 7, "used_bytes": 8, "line_bytes": 9, "text": "text", "waited_s": 1.5, "share_pct": 30,
    "limit_pct": 80, "used_pct": 0.0,
}  # fmt: skip


def announcement_line(what: str, **fields: object) -> bytes:
    """A line of a broker, without its end."""
    return msgspec.json.encode({"type": "announcement", "what": what, **_FIELDS, **fields})


def announcement(what: str, **fields: object) -> Announcement:
    """The announcement in such a line."""
    return decode(announcement_line(what, **fields), _LINES)
