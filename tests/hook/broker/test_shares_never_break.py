"""Compute shares break no program: real brokers, real hooks, two containers that always contend.

Every program ends well with the right data, and its neighbour gets its share by the emulator's book.
"""

import asyncio
import signal
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest

from plimsoll.broker.pages import GATE_METERED, GATE_OPEN
from tests.hook.broker.sharing import STRETCH_S, Card, Looked, Restless, card
from tests.slow import quick_and_slow

SORTS = (
    "capture-global", "callbacks", "threads", "forks", "execs", "deaf",
)  # fmt: skip
MORE_SORTS = (
    "polite", "capture-thread-local", "capture-relaxed", "priorities", "pipeline", "contexts", "closes", "alarmed",
)  # fmt: skip
"""Together the same number as in `restless/streams.c` and `restless/processes.c`."""

WORK_S = 4.0
FAIR = 0.33
"""The least part of a promised half, on a busy machine."""


@pytest.fixture(name="here")
async def _here(tmp_path: Path) -> AsyncIterator[Card]:
    async with card(tmp_path) as here:
        yield here


@pytest.mark.parametrize("sort", quick_and_slow(SORTS, MORE_SORTS))
async def test_a_program_of_any_sort_ends_well_beside_a_greedy_neighbour(here: Card, sort: str) -> None:
    """A program of any sort ends with the right data, and the neighbour gets its half."""
    one, other = await here.register(50), await here.register(50)
    neighbour = await here.start(other, "greedy", 600)
    await here.at_work(neighbour)

    async def worked_beside() -> float:
        subject = await here.start(one, sort, WORK_S)
        await here.at_work(subject, neighbour)
        before, after = await here.during(STRETCH_S)
        assert await subject.finish() > 0
        return after.share(before, neighbour.pid)

    await here.until_had(worked_beside, FAIR)
    await here.at_work(neighbour)


@pytest.mark.parametrize("sort", ["later", "flag"])
async def test_a_stream_that_waits_for_what_is_not_launched_yet_gets_on(here: Card, sort: str) -> None:
    """A stream that waits on the device for a launch at the gate, or for a later one, never waits for ever."""
    one, other = await here.register(50), await here.register(50)
    neighbour = await here.start(other, "greedy", 600)
    await here.at_work(neighbour)
    before = await here.look()
    subject = await here.start(one, sort, WORK_S)
    assert await subject.finish() > 0
    assert (await here.look()).share(before, neighbour.pid) > 0
    await here.at_work(neighbour)


async def test_a_container_with_whole_gpus_is_never_throttled(here: Card) -> None:
    """A whole container's gate is always open and its GPU always at work, whoever contends for the other GPU."""
    whole = await here.register(100, gpus=(1,), whole=True)
    tenants = [await here.register(50) for _ in range(2)]
    programs = [await here.start(tenant, "greedy", 600) for tenant in tenants]
    owner = await here.start(whole, "greedy", 600, gpus=(1,))
    await here.at_work(*programs)
    await here.at_work(owner, gpu=1)
    changes = here.changes(whole)
    await here.until_shared(lambda before, after: after.share(before, owner.pid, gpu=1) > 0.95, "nearly all")
    assert (here.state(whole), here.changes(whole)) == (GATE_OPEN, changes)


async def test_a_container_of_two_gpus_gets_on(here: Card) -> None:
    """A container whose rounds need both GPUs progresses beside a neighbour on each, and neither starves."""
    both = await here.register(50, gpus=(0, 1))
    beside = [await here.register(50, gpus=(gpu,)) for gpu in (0, 1)]
    neighbours = [await here.start(pod, "greedy", 600, gpus=(gpu,)) for gpu, pod in enumerate(beside)]

    async def worked_beside() -> float:
        subject = await here.start(both, "collective", WORK_S, gpus=(0, 1))
        for gpu, neighbour in enumerate(neighbours):
            await here.at_work(subject, neighbour, gpu=gpu)
        before, after = await here.during(STRETCH_S)
        assert await subject.finish() > 50
        return min(after.share(before, neighbour.pid, gpu) for gpu, neighbour in enumerate(neighbours))

    await here.until_had(worked_beside, FAIR)


def _halved(programs: list[Restless], before: Looked, after: Looked) -> bool:
    return all(FAIR < after.share(before, program.pid) < 1 - FAIR for program in programs)


def _full(programs: list[Restless], before: Looked, after: Looked) -> bool:
    return sum(after.share(before, program.pid) for program in programs) > 0.9


def _alone(program: Restless, before: Looked, after: Looked) -> bool:
    return after.share(before, program.pid) > 0.8


async def test_programs_go_on_when_the_broker_dies_and_the_next_one_adopts_them(here: Card) -> None:
    """Without a broker no launch stands. The next broker holds the programs again, with the same shares."""
    pods = [await here.register(50) for _ in range(2)]
    programs = [await here.start(pod, "greedy", 600) for pod in pods]
    await here.at_work(*programs)
    for _ in range(2):
        await here.until_state(pods[0], GATE_METERED)
        await here.broker.kill()
        await here.at_work(*programs)
        await here.until_shared(partial(_full, programs), "a GPU at work all the time")
        await here.broker.start()
        await here.until_shared(partial(_halved, programs), "halves after the adoption")


async def test_a_stopped_holder_does_not_stop_the_others(here: Card) -> None:
    """While a program is stopped with queued work its neighbour has the GPU. After SIGCONT both share again."""
    pods = [await here.register(50) for _ in range(2)]
    stopped, neighbour = [await here.start(pod, "greedy", 600) for pod in pods]
    await here.at_work(stopped, neighbour)
    for _ in range(2):
        stopped.signal(signal.SIGSTOP)
        await here.at_work(neighbour)
        await here.until_shared(partial(_alone, neighbour), "the GPU for the neighbour")
        stopped.signal(signal.SIGCONT)
        await here.at_work(stopped, neighbour)
    await here.until_shared(partial(_halved, [stopped, neighbour]), "halves after SIGCONT")


async def test_a_killed_holder_leaves_the_gpu_to_the_others(here: Card) -> None:
    """After a program is killed at work the neighbour has the GPU at once."""
    pods = [await here.register(50) for _ in range(2)]
    neighbour = await here.start(pods[1], "greedy", 600)
    for _ in range(2):
        victim = await here.start(pods[0], "greedy", 600)
        await here.at_work(victim, neighbour)
        await victim.end()
        await here.at_work(neighbour)
        await here.until_shared(partial(_alone, neighbour), "the GPU for the neighbour")


async def test_programs_may_leave_with_work_queued(here: Card) -> None:
    """Programs that exit with queued work exit well, again and again, and the neighbour gets its share."""
    one, other = await here.register(50), await here.register(50)
    neighbour = await here.start(other, "greedy", 600)
    await here.at_work(neighbour)

    async def left() -> float:
        before = await here.look()
        for _ in range(8):
            subject = await here.start(one, "leaves", 0.3)
            assert await subject.finish() == 1
        return (await here.look()).share(before, neighbour.pid)

    await here.until_had(left, FAIR)
    await here.at_work(neighbour)


async def test_a_hundred_brief_processes_pass_through_the_gate(here: Card) -> None:
    """A hundred short processes, four at a time, end well, and the neighbour gets its share."""
    one, other = await here.register(50), await here.register(50)
    neighbour = await here.start(other, "greedy", 600)
    await here.at_work(neighbour)

    async def passed() -> float:
        before = await here.look()
        for _ in range(25):
            batch = [await here.start(one, "brief", 0) for _ in range(4)]
            assert await asyncio.gather(*(process.finish() for process in batch)) == [1] * 4
        return (await here.look()).share(before, neighbour.pid)

    await here.until_had(passed, FAIR)
    await here.at_work(neighbour)
