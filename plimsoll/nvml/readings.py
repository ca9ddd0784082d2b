"""The results of reading a node's GPUs, as values; `plimsoll.nvml.library` calls the driver."""

from collections.abc import Mapping
from dataclasses import dataclass

from plimsoll.ids import GpuUuid
from plimsoll.part.errors import PlimsollError


class NvmlAwayError(PlimsollError):
    """No NVIDIA driver answers; try again later."""


@dataclass(frozen=True, slots=True)
class GpuReading:
    """A GPU's identity and memory.

    Attributes:
        total_bytes: the card's memory.
        reserved_bytes: the driver's own part; 0 where the driver does not report it.
        used_bytes: held by all processes; includes the driver's own part where `reserved_bytes` is not reported.
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
    """A GPU, read once.

    Attributes:
        reading: its memory.
        used_bytes: per pid, from the process lists; None where the driver does not report the amount.
        utilisation: (microseconds since the epoch, busy percent), oldest first; empty if not read.
    """

    reading: GpuReading
    used_bytes: Mapping[int, int | None]
    utilisation: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class ProcessUsage:
    """A process's use of one GPU's multiprocessors over a span.

    Attributes:
        busy_pct: whole percent of the span; for a process younger than the span, of its own life.
        began_us: microseconds since the epoch, at the start of the span.
        ended_us: likewise, at its end.
    """

    pid: int
    busy_pct: int
    began_us: int
    ended_us: int
