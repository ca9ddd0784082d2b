"""A node of two GPUs for containers whose work on one GPU waits, on the device, for their work on the other.

Brokers and hooks are real; shares come from the emulator's book. In a step of `programs/gangs.c` neither GPU
progresses without the other: from one thread, from two, or from two processes of one container, as in
data-parallel training.
"""

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from plimsoll.ids import PodUid
from tests.hook.broker.sharing import Card, Looked, Restless, card
from tests.hook.lib.program import compiled

KERNEL_US: Final = "2000"
BOTH: Final = (0, 1)
WAYS: Final = (("one",), ("two",), ("0", "1"))
"""The variants of a gang: one thread, two threads, or two processes."""


@dataclass(frozen=True, slots=True)
class Gang:
    """A container of both GPUs, with its processes."""

    pod: PodUid
    page: Path
    members: Sequence[Restless]

    async def finish(self) -> None:
        """Wait until all processes reach their common end without an error."""
        with self.page.open("r+b") as file:
            file.write(struct.pack("<I", 1))
        steps = await asyncio.gather(*(member.finish() for member in self.members))
        assert len(set(steps)) == 1
        assert steps[0] > 0


def had(programs: Sequence[Restless], before: Looked, after: Looked, gpu: int) -> float:
    """The part of the time in which a GPU executed work of these processes."""
    return sum(after.share(before, program.pid, gpu) for program in programs)


@dataclass(frozen=True, slots=True)
class Stage:
    """A node of two GPUs for gangs and other containers."""

    here: Card
    folder: Path

    async def gang(self, request: int, *hows: str, gpus: Sequence[int] = BOTH) -> Gang:
        """Start a container that sees both GPUs in this order, with a process for each of these programs."""
        pod = await self.here.register(request, gpus=gpus)
        page = self.folder / pod
        page.write_bytes(bytes(4096))
        members = [
            await self.here.run(pod, gpus, compiled("gangs"), how, KERNEL_US, str(page)) for how in hows
        ]
        return Gang(pod, page, members)

    async def singles(self, request: int) -> list[Restless]:
        """Start a greedy program on each GPU, in a container of its own."""
        pods = [await self.here.register(request, gpus=(gpu,)) for gpu in BOTH]
        return [await self.here.start(pod, "greedy", 600, gpus=(gpu,)) for gpu, pod in enumerate(pods)]

    async def until_at_work(self, *groups: Sequence[Restless]) -> None:
        """Wait until each of these has launched anew on each GPU."""
        before = await self.here.look()

        def launched(now: Looked, group: Sequence[Restless], gpu: int) -> bool:
            return any(
                now.launches.get((one.pid, gpu), 0) > before.launches.get((one.pid, gpu), 0) for one in group
            )

        await self.here.until(
            lambda now: all(launched(now, group, gpu) for group in groups for gpu in BOTH), "all at work"
        )


@contextlib.asynccontextmanager
async def staged(folder: Path) -> AsyncIterator[Stage]:
    """A stage with a broker."""
    async with card(folder) as here:
        yield Stage(here, folder)
