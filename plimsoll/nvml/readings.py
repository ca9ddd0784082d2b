"""The results of reading a node's GPUs, as values; `plimsoll.nvml.library` calls the driver."""

from collections.abc import Mapping
from dataclasses import dataclass

from plimsoll.ids import GpuUuid
from plimsoll.part.errors import PlimsollError


class NvmlAwayError(PlimsollError):
    """No NVIDIA driver answers; try again later.

    Attributes:
        remedy: for people; empty where the caller knows a better one.
        needs_restart: no later attempt of this process can succeed, because the driver was replaced under it.
    """

    def __init__(self, message: str, *, remedy: str = "", needs_restart: bool = False) -> None:
        super().__init__(message)
        self.remedy = remedy
        self.needs_restart = needs_restart


@dataclass(frozen=True, slots=True)
class GpuReading:
    """A GPU's identity and memory.

    Attributes:
        index: NVML's; a MIG instance has that of its card.
        total_bytes: the card's memory, or the MIG instance's.
        reserved_bytes: the driver's own part; 0 where the driver does not report it.
        used_bytes: held by all processes; includes the driver's own part where `reserved_bytes` is not reported.
        mig_parent: for a MIG instance, the card that it is a part of.
    """

    uuid: GpuUuid
    index: int
    model: str
    total_bytes: int
    reserved_bytes: int
    used_bytes: int
    mig_parent: GpuUuid | None = None

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
        memory_traffic: the same of the GPU's memory: the time in which it was read or written.
        lists_processes: the driver lists the processes on this GPU. Otherwise nothing is known of them.
    """

    reading: GpuReading
    used_bytes: Mapping[int, int | None]
    utilisation: tuple[tuple[int, float], ...]
    memory_traffic: tuple[tuple[int, float], ...] = ()
    lists_processes: bool = True


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


@dataclass(frozen=True, slots=True)
class FailingGpu:
    """A GPU of the session that NVML could not read; `error` is NVML's text."""

    uuid: GpuUuid
    index: int
    model: str
    error: str
    mig_parent: GpuUuid | None = None


@dataclass(frozen=True, slots=True)
class HealthReading:
    """The driver's own figures on a GPU's health; None or False where driver or card do not offer one.

    Attributes:
        uncorrected_ecc: uncorrected ECC errors since the GPU was last reset.
        retired_pending: a page is retired at the next reset (cards before Ampere).
        remap_pending: a row is remapped at the next reset.
        remap_failed: a row could not be remapped: the spare rows are used up.
        recovery: what the driver asks for, for people; empty for nothing (drivers from r570 on).
        is_hot: hardware or driver lower the clocks because the GPU is too warm.
        is_braked: the hardware lowers the clocks because of its power supply.
        energy_mj: consumed since the GPU was last initialised, in millijoules: a fall shows that it was reset.
    """

    uncorrected_ecc: int = 0
    retired_pending: bool = False
    remap_pending: bool = False
    remap_failed: bool = False
    recovery: str = ""
    is_hot: bool = False
    is_braked: bool = False
    energy_mj: int | None = None


@dataclass(frozen=True, slots=True)
class XidSeen:
    """An XID error of a GPU."""

    gpu: GpuUuid
    number: int
