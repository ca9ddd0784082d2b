"""A node of two GPUs for containers of both, whose work on one waits, on the device, for their work on the other.

Real brokers, real hooks; shares come from the emulator's own book. In a step of
`programs/gangs.c` neither GPU gets on without the other: from one thread, from two, or from two processes of one
container, as data-parallel training has it.
"""

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from plimsoll.ids import PodUid
from tests.hook.broker.sharing import PROGRAMS, Card, Looked, Restless, card, compiled

KERNEL_US: Final = "2000"
BOTH: Final = (0, 1)
WAYS: Final = (("one",), ("two",), ("0", "1"))
"""One thread, two threads, two processes."""


@dataclass(frozen=True, slots=True)
class Gang:
    """A container of both GPUs, and its processes."""

    pod: PodUid
    page: Path
    members: Sequence[Restless]

    async def finish(self) -> None:
        """Let all come to their common end, and well."""
        with self.page.open("r+b") as file:
            file.write(struct.pack("<I", 1))
        steps = await asyncio.gather(*(member.finish() for member in self.members))
        assert len(set(steps)) == 1
        assert steps[0] > 0


def had(programs: Sequence[Restless], before: Looked, after: Looked, gpu: int) -> float:
    """The part of the time in which a GPU executed work of these."""
    return sum(after.share(before, program.pid, gpu) for program in programs)


@dataclass(frozen=True, slots=True)
class Stage:
    """A node of two GPUs for gangs and others."""

    here: Card
    program: Path
    folder: Path

    async def gang(self, request: int, *hows: str, gpus: Sequence[int] = BOTH) -> Gang:
        """A container of both GPUs, which it sees in this order, with a process for each of these."""
        pod = await self.here.register(request, gpus=gpus)
        page = self.folder / pod
        page.write_bytes(bytes(4096))
        members = [await self.here.run(pod, gpus, self.program, how, KERNEL_US, str(page)) for how in hows]
        return Gang(pod, page, members)

    async def singles(self, request: int) -> list[Restless]:
        """A greedy program on each GPU, in a container of its own."""
        pods = [await self.here.register(request, gpus=(gpu,)) for gpu in BOTH]
        return [await self.here.start(pod, "greedy", 600, gpus=(gpu,)) for gpu, pod in enumerate(pods)]

    async def until_at_work(self, *groups: Sequence[Restless]) -> None:
        """Wait until of each of these somebody has launched anew on each GPU."""
        before = await self.here.look()

        def launched(now: Looked, group: Sequence[Restless], gpu: int) -> bool:
            return any(
                now.launches.get((one.pid, gpu), 0) > before.launches.get((one.pid, gpu), 0) for one in group
            )

        await self.here.until(
            lambda now: all(launched(now, group, gpu) for group in groups for gpu in BOTH), "all at work"
        )


@contextlib.asynccontextmanager
async def staged(folder: Path, restless: Path, gangs: Path) -> AsyncIterator[Stage]:
    """Such a node, with a broker."""
    async with card(folder, restless) as here:
        yield Stage(here, gangs, folder)


def programs(folder: Path) -> tuple[Path, Path]:
    """The programs of every sort, and the gangs."""
    return compiled(folder), compiled(folder, "gangs", [PROGRAMS / "gangs.c"])
