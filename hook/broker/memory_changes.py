"""The memory of hooked processes, read from their pages and sent to a subscriber when it changes much.

What always holds: after a message, the subscriber's state differs from the counts by less than the least change. A
program pays nothing for being watched, because only the broker reads, by `pread`. A slow
subscriber holds up no other and costs no memory: the pages are read again once it has taken its changes.
"""

import asyncio
import contextlib
from dataclasses import dataclass, field
from typing import Final

from hook.broker.core.codec import SLOT_BYTES, ProcessMemory, memory_in
from hook.broker.core.ids import ContainerKey
from hook.broker.engine import Engine
from hook.broker.shares.work_pages import WorkPage, WorkPages
from plimsoll.broker.wire import MemoryChange
from plimsoll.ids import GpuUuid, ProcessKey

LEAST_CHANGE_BYTES: Final = 64 * 1024 * 1024
"""A smaller change is never sent: activations of a running model come and go by tens of MiB. The monitor's
`monitor.core.lifecycle.RELOAD_BYTES` is the same."""

LEAST_CHANGE_RATIO: Final = 0.1
"""This part of a process's peak, so that a process of 20 GiB is no more talkative than one of 2 GiB."""

NOTHING: Final = ProcessMemory(0, 0)
"""The state before the first message."""

LOOK_S: Final = 0.05
"""Seconds between two readings: half of the tenth of a second within which a change is seen, because the monitor's
reading of NVML follows. Processes at rest cost one comparison of bytes for each container."""

REST_LOOK_S: Final = 0.09
"""The same after a second without a change: at rest the broker's cost is that of its wake-ups."""

REST_AFTER: Final = 20
"""Readings without a change, after which memory is at rest: a second of them."""

IDLE_LOOK_S: Final = 1.0
"""The same while no process is hooked; the announcement of one ends the pause."""


@dataclass(slots=True)
class _Container:
    """A container as last read.

    Attributes:
        changes: see `WorkPages`.
        data: its slots, if each of them belonged to an announced process; else empty.
        slots: the slots of each process.
        sent: the memory that the subscriber knows, by process and GPU.
    """

    changes: int = -1
    data: bytes = b""
    slots: dict[WorkPage, bytes] = field(default_factory=dict)
    sent: dict[WorkPage, dict[GpuUuid, ProcessMemory]] = field(default_factory=dict)


class MemoryWatch:
    """The pages as a subscriber knows them."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._known: dict[ContainerKey, _Container] = {}
        self._has_processes = False
        self._unchanged = 0

    async def next(self) -> list[MemoryChange]:
        """Wait for changes that the subscriber does not know."""
        while True:
            await self._pause()
            changes = self._look()
            self._unchanged = 0 if changes else self._unchanged + 1
            if changes:
                return changes

    async def _pause(self) -> None:
        growth = self._engine.growth()
        if self._has_processes:
            await asyncio.sleep(LOOK_S if self._unchanged < REST_AFTER else REST_LOOK_S)
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(IDLE_LOOK_S):
                await growth.wait()

    def _look(self) -> list[MemoryChange]:
        changes: list[MemoryChange] = []
        before, self._known, self._has_processes = self._known, {}, False
        for container, gpus, pages in self._engine.shares.pages():
            if pages.all:
                self._has_processes = True
                known = self._known[container] = before.get(container) or _Container()
                data = pages.slots()
                if data != known.data or pages.changes != known.changes:
                    changes += self._read(container, gpus, pages, data)
        return changes

    def _read(
        self, container: ContainerKey, gpus: tuple[GpuUuid, ...], pages: WorkPages, data: bytes
    ) -> list[MemoryChange]:
        owners = {owner: key for key, owner in self._engine.node.processes(container).items()}
        changes: list[MemoryChange] = []
        before, known = self._known[container], _Container(pages.changes, data)
        self._known[container] = known
        for page in pages.all:
            slot = data[page.slot * SLOT_BYTES :][:SLOT_BYTES]
            known.sent[page] = before.sent.get(page, {})
            process = owners.get(page.owner)
            if process is None:
                known.data = b""  # Its hello is under way: the next reading takes it.
                continue
            known.slots[page] = slot
            if slot != before.slots.get(page):
                changes += _changes(process, gpus, page.owner, slot, known.sent[page])
        return changes


def _changes(
    process: ProcessKey,
    gpus: tuple[GpuUuid, ...],
    owner: int,
    slot: bytes,
    sent: dict[GpuUuid, ProcessMemory],
) -> list[MemoryChange]:
    """The changes of a process's memory past `sent`, which then has them."""
    found, memory = memory_in(slot, len(gpus))
    if found != owner:
        return []
    new = {gpu: now for gpu, now in zip(gpus, memory, strict=True) if is_change(sent.get(gpu, NOTHING), now)}
    sent |= new
    return [
        MemoryChange(
            pid=process.pid,
            start_ticks=process.start_ticks,
            gpu=gpu,
            used_bytes=now.used_bytes,
            peak_bytes=now.peak_bytes,
        )
        for gpu, now in new.items()
    ]


def is_change(sent: ProcessMemory, now: ProcessMemory) -> bool:
    """Whether `now` is worth a message after `sent`."""
    least_bytes = max(LEAST_CHANGE_BYTES, LEAST_CHANGE_RATIO * now.peak_bytes)
    is_other_use = abs(now.used_bytes - sent.used_bytes) >= least_bytes
    return is_other_use or now.peak_bytes - sent.peak_bytes >= least_bytes
