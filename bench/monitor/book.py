"""The emulator's own book, read some times a second: which processes were on the GPUs, and with how much memory."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Final

from bench.monitor.verdict import Reading
from plimsoll.native import EMULATOR

WATCH_MS: Final = 100


class BookReadings:
    """The readings of the book.

    Attributes:
        readings: by pid, in order; of processes with a context only.
    """

    def __init__(self) -> None:
        self.readings: dict[int, list[Reading]] = {}

    async def follow(self, lines: asyncio.StreamReader) -> None:
        """Take readings in until there are no more."""
        async for line in lines:
            gpu = json.loads(line)
            for process in gpu["processes"]:
                if process["contexts"]:
                    reading = Reading(gpu["time_ns"], process["used_bytes"])
                    self.readings.setdefault(process["pid"], []).append(reading)


@asynccontextmanager
async def watching(environment: Mapping[str, str], gpus: int) -> AsyncIterator[BookReadings]:
    """Read the book of a node until the context ends."""
    readings = BookReadings()
    watches = [
        await asyncio.create_subprocess_exec(
            *(str(EMULATOR / "book"), "watch", str(gpu), str(WATCH_MS)),
            stdout=asyncio.subprocess.PIPE,
            env=dict(environment),
            limit=1 << 22,  # a line names each process
        )
        for gpu in range(gpus)
    ]
    following = [asyncio.create_task(readings.follow(watch.stdout)) for watch in watches if watch.stdout]
    try:
        yield readings
    finally:
        for watch in watches:
            watch.kill()
            await watch.wait()
        await asyncio.wait(following)
