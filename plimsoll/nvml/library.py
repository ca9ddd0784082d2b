"""NVML behind types: the one facade over `pynvml`, for every part that reads GPUs.

What always holds:

* Everything here blocks and runs on one thread (`plimsoll.nvml.thread`); NVML serialises calls inside the driver
  anyway.
* A GPU that fails (fallen off the bus, being reset) is left out of a reading and does not spoil the others.
* A missing driver raises `NvmlAwayError`, and the caller tries again later: a node may get its driver after us.

Graphics process lists are not read. Others measured 4.5 ms a call, forty times the compute list's, and graphics
processes hold no CUDA context. Their memory is in the GPU's used bytes all the same.
"""

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeVar

import pynvml

from plimsoll.gpu_events import GpuInfo
from plimsoll.ids import GpuUuid
from plimsoll.nvml import hardware, health, limits, memory
from plimsoll.nvml.answers import DRIVER_GONE, away, offered
from plimsoll.nvml.calls import Calls, Took, ignore
from plimsoll.nvml.devices import Card, Device, open_cards, relisted
from plimsoll.nvml.limits import MemoryLimit
from plimsoll.nvml.readings import (
    FailingGpu,
    GpuSample,
    HealthReading,
    NvmlAwayError,
    ProcessUsage,
)
from plimsoll.part.log import get_logger

T = TypeVar("T")

RELIST_S: Final = 5.0
"""Seconds between two readings of the instances of a card in MIG mode. When an instance stops answering, the
instances are read at once."""

_LISTS: Final = 3
"""Attempts to read a list of processes that grows between the two calls that read it."""

log = get_logger()


class Nvml:
    """A session with the driver. For one thread.

    Args:
        took: gets the cost of each call.
    """

    def __init__(self, took: Took = ignore) -> None:
        self._calls = Calls(took)
        self._cards: tuple[Card, ...] | None = None
        self._listed_s = 0.0  # monotonic
        self._failing: dict[GpuUuid, FailingGpu] = {}
        self._sessions = 0

    @property
    def failing(self) -> tuple[FailingGpu, ...]:
        """The GPUs that the last reading left out."""
        return tuple(self._failing.values())

    @property
    def divided(self) -> frozenset[GpuUuid]:
        """The cards in MIG mode. Such a card is not a GPU here, but its instances are."""
        return frozenset(card.uuid for card in self._cards or () if card.is_divided)

    @property
    def sessions(self) -> int:
        """How often a session with the driver was begun; another one means that the driver was loaded anew."""
        return self._sessions

    def read(self, since_us: Mapping[GpuUuid, int] | None) -> tuple[GpuSample, ...]:
        """Read every GPU that answers.

        Args:
            since_us: per GPU, read utilisation samples newer than this (microseconds since the epoch); all samples
                of a GPU that is absent, or whose time lies ahead. None: utilisation is not read.

        Raises:
            NvmlAwayError: there is no driver, or it went away; the next call starts a new session.
        """

        def sample(device: Device) -> GpuSample:
            reading, processes = memory.read(device), _processes(device)
            found = GpuSample(reading, processes or {}, (), lists_processes=processes is not None)
            if since_us is None:
                return found
            since = since_us.get(device.uuid, 0)
            busy, traffic = _utilisation(device, since), _memory_traffic(device, since)
            return replace(found, utilisation=busy, memory_traffic=traffic)

        return tuple(self._read(sample).values())

    def used_bytes(self) -> dict[GpuUuid, int]:
        """The used memory of every GPU that answers, by one call each.

        Raises:
            NvmlAwayError: there is no driver, or it went away; the next call starts a new session.
        """
        return self._read(lambda device: memory.read(device).used_bytes)

    def usage(
        self, since_us: Mapping[GpuUuid, int], earliest_us: int
    ) -> dict[GpuUuid, tuple[ProcessUsage, ...]]:
        """Each process's utilisation of each GPU that answers; empty where the driver does not report it.

        Args:
            since_us: per GPU, the end of the latest known usage, in microseconds since the epoch; one that lies ahead
                is from before the wall clock was set back, and is ignored.
            earliest_us: the earliest begin of a span, on any GPU.

        Raises:
            NvmlAwayError: there is no driver, or it went away; the next call starts a new session.
        """
        now_us = _now_us()
        known_us = {gpu: ended_us for gpu, ended_us in since_us.items() if ended_us <= now_us}
        return self._read(lambda device: _usage(device, max(known_us.get(device.uuid, 0), earliest_us)))

    def health(self) -> dict[GpuUuid, HealthReading]:
        """The health of every GPU that answers.

        Raises:
            NvmlAwayError: there is no driver, or it went away; the next call starts a new session.
        """
        return self._read(lambda device: health.read(device.card))

    def hardware(self, gpus: Collection[GpuUuid]) -> tuple[GpuInfo, ...]:
        """The hardware of these GPUs; none without a session, which a reading begins."""
        return hardware.read([one for one in self._devices if one.uuid in gpus])

    def driver(self) -> str:
        """The version of the driver; empty without a session, and where the driver does not say."""
        try:
            return str(pynvml.nvmlSystemGetDriverVersion())
        except pynvml.NVMLError:
            return ""

    def limit_obstacles(self, cgroup: Path) -> dict[GpuUuid, str]:
        """Why the driver cannot limit control groups' memory, per GPU that answers; see `limits.obstacle`.

        Raises:
            NvmlAwayError: there is no driver, or it went away.
        """
        return self._read(lambda device: limits.obstacle(device.card, cgroup))

    def limit_of(self, gpu: GpuUuid, cgroup: Path) -> MemoryLimit:
        """The limit of a control group on a GPU.

        Raises:
            NvmlAwayError: there is no driver, or no such GPU, or the driver refuses; the message says why.
        """
        return self._limited(gpu, lambda handle: limits.read(handle, cgroup))

    def limit(self, gpu: GpuUuid, cgroup: Path, hard_bytes: int | None) -> None:
        """Set the limit of a control group on a GPU; see `limits.write` and `limit_of`."""
        self._limited(gpu, lambda handle: limits.write(handle, cgroup, hard_bytes))

    def _limited(self, gpu: GpuUuid, work: Callable[[Any], T]) -> T:
        self._open()
        found = [device for device in self._devices if device.uuid == gpu]
        if not found:
            raise NvmlAwayError(f"the driver shows no GPU {gpu}")
        try:
            return work(found[0].handle)
        except pynvml.NVMLError as error:
            if error.value in DRIVER_GONE:
                self.close()
            raise NvmlAwayError(limits.cause_of(error)) from error

    def close(self) -> None:
        """End the session; the next `read` begins another."""
        if self._cards is None:
            return
        self._cards = None
        try:
            pynvml.nvmlShutdown()
        except pynvml.NVMLError as error:
            log.info("the driver did not end the session", error=str(error))

    def _read(self, work: Callable[[Device], T]) -> dict[GpuUuid, T]:
        """Call `work` for every GPU, and leave out GPUs that do not answer."""
        if self._open():
            self._failing.clear()
        elif time.monotonic() - self._listed_s >= RELIST_S:
            self._relist()
        try:
            found = {device.uuid: self._tried(device, work) for device in self._devices}
        except NvmlAwayError:
            self.close()
            raise
        if any(device.mig_parent and device.uuid in self._failing for device in self._devices):
            self._relist()
        return {uuid: result for uuid, result in found.items() if result is not None}

    @property
    def _devices(self) -> tuple[Device, ...]:
        return tuple(device for card in self._cards or () for device in card.devices)

    def _open(self) -> bool:
        """Begin a session if there is none; returns whether there was none."""
        if self._cards is not None:
            return False
        self._cards = open_cards(self._calls, had_session=self._sessions > 0)
        self._listed_s = time.monotonic()
        self._sessions += 1
        return True

    def _relist(self) -> None:
        """Look for instances that were made or have ended; those of a card that does not answer stay."""
        self._cards = tuple(map(_relisted, self._cards or ()))
        self._listed_s = time.monotonic()
        there = {device.uuid for device in self._devices}
        for ended in self._failing.keys() - there:
            del self._failing[ended]

    def _tried(self, device: Device, work: Callable[[Device], T]) -> T | None:
        try:
            result = work(device)
        except pynvml.NVMLError as error:
            if error.value in DRIVER_GONE:
                raise away("the NVIDIA driver went away", error, had_session=True) from error
            self._fails(device, error)
            return None
        if device.uuid in self._failing:
            del self._failing[device.uuid]
            log.info("the GPU can be read again", gpu=device.uuid)
        return result

    def _fails(self, device: Device, error: Exception) -> None:
        if device.uuid not in self._failing:
            self._failing[device.uuid] = FailingGpu(
                device.uuid, device.index, device.model, str(error), device.mig_parent
            )
            log.error(
                "a GPU cannot be read and is left out", gpu=device.uuid, index=device.index, error=str(error)
            )


def _relisted(card: Card) -> Card:
    if not card.is_divided:
        return card
    try:
        return relisted(card)
    except pynvml.NVMLError:
        return card


def _processes(device: Device) -> dict[int, int | None] | None:
    """Bytes per pid, of compute processes and of processes under MPS, which some drivers list apart.

    None where the driver lists no processes of this GPU.

    A pid in both lists is one process, and its larger amount counts, not the sum.
    """
    computing = offered(lambda: device.calls.nvmlDeviceGetComputeRunningProcesses_v3(device.handle), None)
    if computing is None:
        return None
    listed = [
        *computing,
        *offered(lambda: device.calls.nvmlDeviceGetMPSComputeRunningProcesses_v3(device.handle), []),
    ]
    used: dict[int, int | None] = {}
    for each in listed:
        known, listed_bytes = used.get(each.pid), each.usedGpuMemory
        used[each.pid] = known if listed_bytes is None else max(int(listed_bytes), known or 0)
    return used


def _utilisation(device: Device, since_us: int) -> tuple[tuple[int, float], ...]:
    """The driver's buffered samples since then; without a buffer, its one current figure, as of now.

    The driver dates samples by the wall clock. A sample that lies ahead is from before the clock was set back.
    """
    return _sampled(device, pynvml.NVML_GPU_UTILIZATION_SAMPLES, since_us, lambda rates: float(rates.gpu))


def _memory_traffic(device: Device, since_us: int) -> tuple[tuple[int, float], ...]:
    """Likewise, the percentage of time in which the GPU's memory was read or written."""
    kind = pynvml.NVML_MEMORY_UTILIZATION_SAMPLES
    return _sampled(device, kind, since_us, lambda rates: float(rates.memory))


def _sampled(
    device: Device, kind: int, since_us: int, current: Callable[[Any], float]
) -> tuple[tuple[int, float], ...]:
    since_us = since_us if since_us <= _now_us() else 0
    buffered = offered(lambda: device.calls.nvmlDeviceGetSamples(device.handle, kind, since_us), None)
    if buffered is not None:
        value_type, samples = buffered
        pairs = ((int(each.timeStamp), _number(value_type, each.sampleValue)) for each in samples)
        now_us = _now_us()
        return tuple(sorted(pair for pair in pairs if since_us < pair[0] <= now_us))
    rates = offered(lambda: device.calls.nvmlDeviceGetUtilizationRates(device.handle), None)
    return () if rates is None else ((_now_us(), current(rates)),)


def _now_us() -> int:
    return time.time_ns() // 1000


def _usage(device: Device, since_us: int) -> tuple[ProcessUsage, ...]:
    """The time in which each process kept a multiprocessor busy, in percent of the span since then.

    Some drivers list entries with pid 0, entries before `since_us`, and percentages above 100. These are dropped, and
    so are entries from before the wall clock was set back.
    """
    found: dict[int, ProcessUsage] = {}
    for each in _listed(lambda: device.calls.nvmlDeviceGetProcessUtilization(device.handle, since_us)):
        pid, ended_us, busy_pct = int(each.pid), int(each.timeStamp), int(each.smUtil)
        if pid and since_us < ended_us <= _now_us() and busy_pct <= 100:
            known = found.get(pid)
            if known is None or known.ended_us < ended_us:
                found[pid] = ProcessUsage(pid, busy_pct, since_us, ended_us)
    return tuple(found.values())


def _listed(call: Callable[[], list[Any]]) -> list[Any]:
    """A list that `pynvml` reads by two calls, the first for its length; the list may grow between them."""
    for _ in range(_LISTS):
        try:
            return offered(call, [])
        except pynvml.NVMLError_InsufficientSize:
            continue
    return []


def _number(value_type: int, value: Any) -> float:  # noqa: ANN401 - pynvml's untyped union
    if value_type == pynvml.NVML_VALUE_TYPE_DOUBLE:
        return float(value.dVal)
    if value_type == pynvml.NVML_VALUE_TYPE_SIGNED_LONG_LONG:
        return float(value.sllVal)
    # All unsigned members of the union begin at the same address and hold small numbers in little-endian order.
    return float(value.uiVal)
