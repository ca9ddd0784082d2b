"""What a reading of a node's GPUs tells, as values; the driver itself is behind `nvml`."""

from collections.abc import Mapping
from dataclasses import dataclass

from plimsoll.ids import GpuUuid
from plimsoll.part.errors import PlimsollError


class NvmlAwayError(PlimsollError):
    """No NVIDIA driver answers; try again later."""


@dataclass(frozen=True, slots=True)
class GpuReading:
    """What the driver tells of one GPU.

    Attributes:
        total_bytes: the card's memory.
        reserved_bytes: what the driver keeps for itself; 0 where it does not tell.
        used_bytes: held by all processes; where `reserved_bytes` is not told, the driver's part is in here.
    """

    uuid: GpuUuid
    index: int
    model: str
    total_bytes: int
    reserved_bytes: int
    used_bytes: int

    @property
    def usable_bytes(self) -> int:
        """Total less reserved, never below 0 (a driver that reports nonsense offers nothing)."""
        return max(self.total_bytes - self.reserved_bytes, 0)


@dataclass(frozen=True, slots=True)
class GpuSample:
    """One GPU, read once.

    Attributes:
        reading: its memory.
        used_bytes: per pid, as the process lists give it; None where the driver does not tell the amount.
        utilisation: (microseconds since the epoch, busy percent), oldest first; empty if not asked for.
    """

    reading: GpuReading
    used_bytes: Mapping[int, int | None]
    utilisation: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class ProcessUsage:
    """What one process used of one GPU's multiprocessors over a span.

    Attributes:
        busy_pct: whole percent of the span; of less than the span where the process is younger.
        began_us: microseconds since the epoch, at the start of the span.
        ended_us: likewise, at its end.
    """

    pid: int
    busy_pct: int
    began_us: int
    ended_us: int
