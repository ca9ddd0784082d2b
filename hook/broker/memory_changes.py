"""The memory of hooked processes, read from their pages and sent to a subscriber when it changes much.

What always holds: a program pays nothing for being watched, because only the broker reads, by `pread`. A slow
subscriber holds up no other and costs no memory: the pages are read again once it has read.
"""

import asyncio
import contextlib
from typing import Final

from hook.broker.core.codec import memory_in
from hook.broker.core.memory.changes import NOTHING, ProcessMemory, is_change
from hook.broker.engine import Engine
from hook.broker.shares.work_pages import WorkPage
from plimsoll.broker.wire import MemoryChange
from plimsoll.ids import GpuUuid, ProcessKey

LOOK_S: Final = 0.05
"""Seconds between two readings: half of the tenth of a second within which a change is seen, because the monitor's
reading of NVML follows. With 64 processes at rest the readings cost about
1 % of a core."""

IDLE_LOOK_S: Final = 1.0
"""The same while no process is hooked; the announcement of one ends the pause."""


class MemoryWatch:
    """One subscriber's view of the pages."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._read: dict[WorkPage, bytes] = {}
        self._sent: dict[WorkPage, dict[GpuUuid, ProcessMemory]] = {}

    async def next(self) -> list[MemoryChange]:
        """Wait for changes that the subscriber does not know."""
        while True:
            await self._pause()
            if changes := self._look():
                return changes

    async def _pause(self) -> None:
        growth = self._engine.growth()
        if self._read:
            await asyncio.sleep(LOOK_S)
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(IDLE_LOOK_S):
                await growth.wait()

    def _look(self) -> list[MemoryChange]:
        changes: list[MemoryChange] = []
        known, page_count = self._read, 0
        for container, gpus, page in self._engine.shares.pages():
            page_count += 1
            data = page.slot_bytes()
            if data == known.get(page):
                continue
            owners = {owner: key for key, owner in self._engine.node.processes(container).items()}
            process = owners.get(page.owner)
            if process is None:
                continue  # Its hello is under way: the next reading takes it.
            changes += self._changes(process, gpus, page, data)
            known[page] = data
        if len(known) > page_count:
            self._forget_all_but({page for _, _, page in self._engine.shares.pages()})
        return changes

    def _forget_all_but(self, pages: set[WorkPage]) -> None:
        self._read = {page: data for page, data in self._read.items() if page in pages}
        self._sent = {page: sent for page, sent in self._sent.items() if page in pages}

    def _changes(
        self, process: ProcessKey, gpus: tuple[GpuUuid, ...], page: WorkPage, data: bytes
    ) -> list[MemoryChange]:
        owner, memory = memory_in(data, len(gpus))
        if owner != page.owner:
            return []
        sent = self._sent.setdefault(page, {})
        new = {
            gpu: now for gpu, now in zip(gpus, memory, strict=True) if is_change(sent.get(gpu, NOTHING), now)
        }
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
