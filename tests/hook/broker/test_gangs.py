"""Collectives over two GPUs end under contention, and get their shares of both GPUs. See `gangs`."""

import signal
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Final

import pytest

from tests.hook.broker.gangs import BOTH, WAYS, Gang, Stage, had, staged
from tests.hook.broker.sharing import Looked, Restless

NEAR: Final = 0.15
"""The largest error of a share of all containers' time.

A busy machine sees flags late, and the GPU waits meanwhile.
"""


@pytest.fixture(name="stage")
async def _stage(tmp_path: Path) -> AsyncIterator[Stage]:
    async with staged(tmp_path) as stage:
        yield stage


async def _until_divided(stage: Stage, one: Gang, others: Gang | Sequence[Restless], part: float) -> None:
    """Wait until a span shows that one container had this part of all containers' time on each GPU."""
    beside = others.members if isinstance(others, Gang) else others
    await stage.until_at_work(one.members, beside)

    def is_near(before: Looked, after: Looked) -> bool:
        parts = [(had(one.members, before, after, gpu), had(beside, before, after, gpu)) for gpu in BOTH]
        return all(abs(its / (its + theirs or 1) - part) < NEAR for its, theirs in parts)

    await stage.here.until_shared(is_near, f"{part:.0%} of both GPUs")


async def _until_left(stage: Stage, singles: Sequence[Restless], part: float) -> None:
    """Wait until a span shows that each of these had at least this part of its GPU."""

    def is_left(before: Looked, after: Looked) -> bool:
        return all(had([single], before, after, gpu) > part for gpu, single in enumerate(singles))

    await stage.here.until_shared(is_left, f"{part:.0%} for those on one GPU")


@pytest.mark.parametrize("hows", WAYS)
async def test_a_collective_has_its_share_of_both_gpus(stage: Stage, hows: tuple[str, ...]) -> None:
    """A collective with 40 of both GPUs, beside a greedy neighbour with 60 on each, gets that and ends."""
    gang, singles = await stage.gang(40, *hows), await stage.singles(60)
    await _until_divided(stage, gang, singles, 0.4)
    await gang.finish()


@pytest.mark.parametrize("hows", WAYS)
async def test_two_collectives_on_the_same_gpus_never_wait_for_each_other(
    stage: Stage, hows: tuple[str, ...]
) -> None:
    """Two collectives that launch on the GPUs in opposite order get half of both GPUs each, and end."""
    one, other = await stage.gang(50, *hows), await stage.gang(50, *hows, gpus=BOTH[::-1])
    await _until_divided(stage, one, other, 0.5)
    await one.finish()
    await other.finish()


async def test_who_uses_one_of_its_gpus_leaves_the_other_its_request(stage: Stage) -> None:
    """A container of both GPUs that works on one gets half of it, and the neighbour on the other gets its half."""
    gang, (beside, elsewhere) = await stage.gang(50, "solo"), await stage.singles(50)

    def is_fair(before: Looked, after: Looked) -> bool:
        parts = [had(programs, before, after, 0) for programs in (gang.members, [beside])]
        # Its slices end early, where a kernel of 20 us ends, and no NVML here corrects the broker.
        is_half = abs(parts[0] / (sum(parts) or 1) - 0.5) < NEAR + 0.05
        return is_half and had([elsewhere], before, after, 1) > 0.5 - NEAR

    await stage.here.until_shared(is_fair, "half of the first GPU, and half left of the second")
    await gang.finish()


@pytest.mark.parametrize("hows", WAYS[1:])
async def test_a_stopped_collective_does_not_stop_the_others(stage: Stage, hows: tuple[str, ...]) -> None:
    """While one process of a collective is stopped with work on both GPUs, others go on.

    After SIGCONT all share again.
    """
    gang, singles = await stage.gang(40, *hows), await stage.singles(60)
    await stage.until_at_work(gang.members, singles)
    gang.members[0].signal(signal.SIGSTOP)
    await _until_left(stage, singles, 0.5)
    gang.members[0].signal(signal.SIGCONT)
    await _until_divided(stage, gang, singles, 0.4)
    await gang.finish()


@pytest.mark.parametrize("hows", WAYS[1:])
async def test_a_killed_collective_leaves_both_gpus(stage: Stage, hows: tuple[str, ...]) -> None:
    """A collective's processes are killed one by one with work on both GPUs.

    The others go on, and then have all of both GPUs.
    """
    gang, singles = await stage.gang(40, *hows), await stage.singles(60)
    await stage.until_at_work(gang.members, singles)
    for member in gang.members:
        await member.end()
        await _until_left(stage, singles, 0.4)
    await _until_left(stage, singles, 0.8)
