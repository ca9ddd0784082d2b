"""NVML behind types: the one facade over `pynvml`, for every part that reads GPUs.

What always holds:

* Everything here blocks and runs on one thread (`plimsoll.nvml.thread`); NVML serialises calls inside the driver
  anyway.
* A GPU that fails (fallen off the bus, being reset) is left out of a reading and does not spoil the others.
* A missing driver raises `NvmlAwayError`, and the caller tries again later: a node may get its driver after us.
"""

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeVar

import pynvml

from plimsoll.gpu_events import GpuInfo
from plimsoll.ids import GpuUuid
from plimsoll.nvml import hardware, limits, queries
from plimsoll.nvml.calls import DRIVER_GONE, Calls, Took, away, ignore
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
            reading, processes = queries.memory(device), queries.processes(device)
            found = GpuSample(reading, processes or {}, (), lists_processes=processes is not None)
            if since_us is None:
                return found
            since = since_us.get(device.uuid, 0)
            busy, traffic = queries.utilisation(device, since), queries.memory_traffic(device, since)
            return replace(found, utilisation=busy, memory_traffic=traffic)

        return tuple(self._read(sample).values())

    def used_bytes(self) -> dict[GpuUuid, int]:
        """The used memory of every GPU that answers, by one call each.

        Raises:
            NvmlAwayError: there is no driver, or it went away; the next call starts a new session.
        """
        return self._read(lambda device: queries.memory(device).used_bytes)

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
        now_us = queries.now_us()
        known_us = {gpu: ended_us for gpu, ended_us in since_us.items() if ended_us <= now_us}
        return self._read(
            lambda device: queries.usage(device, max(known_us.get(device.uuid, 0), earliest_us))
        )

    def health(self) -> dict[GpuUuid, HealthReading]:
        """The health of every GPU that answers.

        Raises:
            NvmlAwayError: there is no driver, or it went away; the next call starts a new session.
        """
        return self._read(lambda device: queries.health(device.card))

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
