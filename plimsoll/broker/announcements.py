"""The broker's announcements: events of hooked processes and of their containers, one type a sort.

What always holds: every line of the control socket and of the journal has `"type":"announcement"` and a `what` that
names the sort. A line of a sort that only a newer broker knows is read as `Other`.
"""

from typing import Final, Literal, TypeVar

import msgspec
from msgspec import Struct

from plimsoll.ids import ContainerName, GpuUuid, PodUid, ProcessKey

T = TypeVar("T")


class Announcement(Struct, frozen=True, kw_only=True, tag="announcement"):
    """The fields of every announcement.

    Attributes:
        seq: rises over the broker's whole life, restarts included. `Acknowledge` refers to it.
        what: the name of the sort.
        pid, start_ticks: the process, as the host sees it; 0 where the event is about the container as a whole.
        time: RFC 3339 in UTC.
    """

    seq: int
    what: str
    pod: PodUid
    container: ContainerName
    pid: int
    start_ticks: int
    time: str

    @property
    def process(self) -> ProcessKey:
        """The process as one identifier."""
        return ProcessKey(self.pid, self.start_ticks)


class Hello(Announcement, frozen=True, kw_only=True):
    """The process runs under its limits."""

    what: Literal["hello"] = "hello"


class Context(Announcement, frozen=True, kw_only=True):
    """NVML lists the process on this GPU from now on."""

    what: Literal["context"] = "context"
    gpu: GpuUuid


class Exited(Announcement, frozen=True, kw_only=True):
    """The process is dead."""

    what: Literal["exited"] = "exited"


class Unknown(Announcement, frozen=True, kw_only=True):
    """The program uses a driver function that the library does not know; `text` is the function's name."""

    what: Literal["unknown"] = "unknown"
    text: str


class LimitAnnouncement(Announcement, frozen=True, kw_only=True):
    """An announcement that the monitor publishes as `limit.<what>`; fields have the names of `plimsoll.events.Limit`.

    Attributes:
        text: for `Denied` the name of the driver's function, else a text for people; may be empty.
    """

    text: str


class MemoryAnnouncement(LimitAnnouncement, frozen=True, kw_only=True):
    """The fields of every announcement about a container's memory on a GPU.

    Attributes:
        used_bytes: memory that the container holds; by NVML for `Violated` and `Unenforced`, else by its counts.
        line_bytes: the container's line; for `Resized` the new one.
    """

    gpu: GpuUuid
    used_bytes: int
    line_bytes: int


class Denied(MemoryAnnouncement, frozen=True, kw_only=True):
    """An allocation past the line was refused."""

    what: Literal["denied"] = "denied"
    requested_bytes: int


class WaitAnnouncement(MemoryAnnouncement, frozen=True, kw_only=True):
    """The fields of every announcement about an allocation that waits for memory."""

    requested_bytes: int
    waited_s: float


class Paused(WaitAnnouncement, frozen=True, kw_only=True):
    """An allocation waits for memory that others hold."""

    what: Literal["paused"] = "paused"


class Resumed(WaitAnnouncement, frozen=True, kw_only=True):
    """An allocation has stopped waiting; `text` is the outcome."""

    what: Literal["resumed"] = "resumed"


class Violated(MemoryAnnouncement, frozen=True, kw_only=True):
    """NVML shows more memory of the container than its line."""

    what: Literal["violated"] = "violated"


class Unenforced(MemoryAnnouncement, frozen=True, kw_only=True):
    """A process of a declared container runs without its hook; `used_bytes` is the memory of that process."""

    what: Literal["unenforced"] = "unenforced"


class Resized(MemoryAnnouncement, frozen=True, kw_only=True):
    """`line_bytes`, `share_pct` and `limit_pct` hold now, whichever of them changed."""

    what: Literal["resized"] = "resized"
    share_pct: int = 0
    limit_pct: int = 0


class ShareViolated(LimitAnnouncement, frozen=True, kw_only=True):
    """NVML shows that the process used more of the GPU's time than its page says; `used_pct` is NVML's figure."""

    what: Literal["violated"] = "violated"
    gpu: GpuUuid
    used_pct: float


class ShareUnenforced(LimitAnnouncement, frozen=True, kw_only=True):
    """The process ran without a share of compute time; `text` is the reason."""

    what: Literal["unenforced"] = "unenforced"


class Unmet(LimitAnnouncement, frozen=True, kw_only=True):
    """The container wanted compute time throughout, and got `used_pct` instead of `share_pct` of the GPU's time."""

    what: Literal["unmet"] = "unmet"
    gpu: GpuUuid
    share_pct: int
    used_pct: float


class Other(Announcement, frozen=True, kw_only=True):
    """An announcement of a sort that is not known here; every line is first read as one.

    Attributes:
        gpu: distinguishes `Unenforced` from `ShareUnenforced`, which has none.
        used_pct: distinguishes `ShareViolated` from `Violated`, which has none.
    """

    gpu: GpuUuid | None = None
    text: str = ""
    used_pct: float = 0.0


_SORTS: Final[dict[str, type[Announcement]]] = {
    "hello": Hello,
    "context": Context,
    "exited": Exited,
    "unknown": Unknown,
    "denied": Denied,
    "paused": Paused,
    "resumed": Resumed,
    "violated": Violated,
    "unenforced": Unenforced,
    "resized": Resized,
    "unmet": Unmet,
}


def decode(line: bytes, decoder: msgspec.json.Decoder[T]) -> T | Announcement:
    """Decode a line that may be an announcement.

    Args:
        line: one JSON object.
        decoder: for `Other`, and for every other type that the line may have.

    Raises:
        msgspec.MsgspecError, UnicodeDecodeError, RecursionError: the line is damaged.
    """
    found = decoder.decode(line)
    return msgspec.json.decode(line, type=_sort(found)) if isinstance(found, Other) else found


def _sort(other: Other) -> type[Announcement]:
    if other.what == "violated" and other.used_pct > 0:
        return ShareViolated
    if other.what == "unenforced" and other.gpu is None:
        return ShareUnenforced
    return _SORTS.get(other.what, Other)
