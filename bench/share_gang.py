"""Collectives over two GPUs under contention: what each container has of each GPU, against its request.

A step of `tests/hook/broker/programs/gangs.c` is a short kernel on each GPU, and one of 2 ms that waits on the device
until the other GPU has come so far. Such waiting is no unfinished work in the emulator's book, though the library
counts it: what is not launched yet cannot run, while other work could. So a gang's share lies somewhat below its
request, and these cases stand in the table alone.
"""

import asyncio
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from bench.share_figures import worst
from bench.share_place import Json, Place
from tests.hook.broker.gangs import BOTH, Stage, had, programs, staged
from tests.hook.broker.sharing import Restless

SECONDS: Final = 10.0
SETTLE_S: Final = 1.0
"""The first hand-overs wait for what was queued before anybody else was there."""


@dataclass(frozen=True, slots=True)
class GangCase:
    """Gangs with these requests, each of such processes; and, with `beside_pct`, a greedy one on each GPU."""

    name: str
    hows: tuple[str, ...]
    requests: tuple[int, ...]
    beside_pct: int


CASES: Final = (
    GangCase("gang/40-60/one-thread", ("one",), (40,), 60),
    GangCase("gang/40-60/two-processes", ("0", "1"), (40,), 60),
    GangCase("gang/50-50/two-processes", ("0", "1"), (50, 50), 0),
)


async def measure(case: GangCase, here: Place) -> Json:
    """Run one case; lists hold each container's figure on the first GPU, then each one's on the second."""
    folder = here.folder / "gangs"
    folder.mkdir()
    async with staged(folder, *programs(folder)) as stage:
        return await _row(case, stage)


async def _row(case: GangCase, stage: Stage) -> Json:
    gangs = [await stage.gang(request_pct, *case.hows) for request_pct in case.requests]
    singles = await stage.singles(case.beside_pct) if case.beside_pct else []
    groups: list[Sequence[Restless]] = [gang.members for gang in gangs] + ([singles] if singles else [])
    targets = [float(request_pct) for request_pct in (*case.requests, *filter(None, [case.beside_pct]))]
    await stage.until_at_work(*groups)
    await asyncio.sleep(SETTLE_S)
    before, after = await stage.here.during(SECONDS)
    shares = [round(100 * had(group, before, after, gpu), 2) for gpu in BOTH for group in groups]
    errors = [share - target for share, target in zip(shares, targets * len(BOTH), strict=True)]
    for gang in gangs:
        await gang.finish()
    return {
        "case": case.name,
        "target_pct": targets * len(BOTH),
        "share_pct": shares,
        "error_pts": round(worst(errors), 2),
        "load": round(os.getloadavg()[0], 2),
    }
