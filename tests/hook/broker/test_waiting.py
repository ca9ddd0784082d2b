"""On a node that promises more than it has, processes wait and go on, and no wait is in vain."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TypeVar

import pytest

from plimsoll.broker.announcements import Paused, Resumed
from plimsoll.broker.wire import ContainerLines, Line, Measured, MeasuredGpu, Register
from plimsoll.ids import PodUid
from plimsoll.quantity import MIB
from tests.hook.broker.conftest import GIB, GPUS, MAIN, Broker, Process, until

A, B = PodUid("pod-a"), PodUid("pod-b")


def pod(uid: PodUid, *line_bytes: int) -> Register:
    """A pod of one container with these lines."""
    lines = tuple(Line(gpu=gpu, line_bytes=line) for gpu, line in zip(GPUS, line_bytes, strict=False))
    return Register(
        pod=uid, namespace="default", name=uid, containers=(ContainerLines(name=MAIN, lines=lines),)
    )


def measured(usable_bytes: int) -> Measured:
    """Both GPUs have this many bytes, and NVML shows no process on them."""
    gpus = [MeasuredGpu(gpu=gpu, usable_bytes=usable_bytes, used_bytes=0) for gpu in GPUS]
    return Measured(began_ns=time.monotonic_ns(), gpus=tuple(gpus), processes=())


@pytest.fixture(name="crowded")
async def _crowded(tmp_path: Path) -> AsyncIterator[Broker]:
    """A broker of a node with 1 GiB on each GPU, promised in full to each of two pods."""
    broker = Broker(tmp_path / "root", {"audit_s": "3600", "overcommit": "true"})
    try:
        await broker.start()
        await broker.client.measure(measured(GIB))
        await broker.client.register(pod(A, GIB))
        await broker.client.register(pod(B, GIB))
        yield broker
    finally:
        await broker.close()


async def _begun(broker: Broker, uid: PodUid) -> Process:
    process = await broker.spawn(pod=uid)
    await process.begin()
    return process


@contextlib.asynccontextmanager
async def _asking(process: Process, size: int, place: int = 0) -> AsyncIterator[asyncio.Task[str]]:
    """A process that allocates this much, and may wait for it, for the length of a block."""
    task = asyncio.create_task(process.do(f"take {place} {size}"))
    try:
        yield task
    finally:
        if not task.done():
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError, AssertionError):
            await task


Wait = TypeVar("Wait", Paused, Resumed)


async def _told(broker: Broker, sort: type[Wait], count: int = 1) -> list[Wait]:
    """Wait for this many announcements of one sort, and return them."""

    async def are_there() -> bool:
        return len([entry for entry in broker.journaled() if isinstance(entry, sort)]) >= count

    await until(are_there, f"{count} × {sort.__name__}")
    return [entry for entry in broker.journaled() if isinstance(entry, sort)]


def _granted(broker: Broker, uid: PodUid, place: int = 0) -> int:
    return int(broker.limits(uid).gpus[place].granted_bytes)


async def test_the_second_waits_and_goes_on_when_the_first_gives_back(crowded: Broker) -> None:
    """A process that finds the GPU full is paused at once, and resumed by freed memory. Both are announced."""
    first, second = await _begun(crowded, A), await _begun(crowded, B)
    assert await first.do(f"take 0 {700 * MIB}") == "taken"
    async with _asking(second, 600 * MIB) as taking:
        (paused,) = await _told(crowded, Paused)
        assert (paused.pid, paused.gpu, paused.requested_bytes) == (second.pid, GPUS[0], 600 * MIB)
        assert (paused.pod, paused.text, paused.line_bytes) == (B, "others hold it", GIB)
        await until(lambda: _is_asked_to_tell(crowded), "the first is asked to tell")
        assert not taking.done()
        await first.do("use 0 0")
        await first.do(f"send freed {GPUS[0]}")
        assert await taking == "taken"
    (resumed,) = await _told(crowded, Resumed)
    assert (resumed.pid, resumed.text) == (second.pid, "granted")
    assert resumed.waited_s > 0
    assert not await _is_asked_to_tell(crowded)
    assert _granted(crowded, A) + _granted(crowded, B) <= GIB


async def _is_asked_to_tell(broker: Broker) -> bool:
    return bool(broker.limits(A).gpus[0].is_wanted)


async def test_kill_9_lets_a_waiter_go_on(crowded: Broker) -> None:
    """A killed process's memory goes to a waiting one."""
    first, second = await _begun(crowded, A), await _begun(crowded, B)
    assert await first.do(f"take 0 {GIB}") == "taken"
    async with _asking(second, GIB) as taking:
        await _told(crowded, Paused)
        await first.kill()
        assert await taking == "taken"


async def test_what_no_message_told_is_found_by_looking(crowded: Broker) -> None:
    """Memory freed without a message is found while a process waits."""
    first, second = await _begun(crowded, A), await _begun(crowded, B)
    assert await first.do(f"take 0 {GIB}") == "taken"
    async with _asking(second, GIB) as taking:
        await _told(crowded, Paused)
        await first.do("use 0 0")
        assert await taking == "taken"


async def test_a_killed_waiter_frees_its_place(crowded: Broker) -> None:
    """After a waiting process is killed the one behind it goes on, and the wait is announced as over."""
    await crowded.client.register(pod(PodUid("pod-c"), 400 * MIB))
    first, second = await _begun(crowded, A), await _begun(crowded, B)
    third = await _begun(crowded, PodUid("pod-c"))
    assert await first.do(f"take 0 {600 * MIB}") == "taken"
    async with _asking(second, GIB):
        await _told(crowded, Paused)
        async with _asking(third, 400 * MIB) as taking:
            await _told(crowded, Paused, 2)
            assert not taking.done(), "the younger process does not pass the older one"
            await second.kill()
            assert await taking == "taken"
    assert (await _told(crowded, Resumed))[0].text == "it gave up or ended"


async def test_a_waiter_asks_the_next_broker_again(crowded: Broker) -> None:
    """After a kill of the broker the next one knows the grants and resumes the waiting process."""
    first, second = await _begun(crowded, A), await _begun(crowded, B)
    assert await first.do(f"take 0 {700 * MIB}") == "taken"
    async with _asking(second, 600 * MIB) as taking:
        await _told(crowded, Paused)
        await crowded.kill()
        granted = _granted(crowded, A)
        await crowded.start()
        assert granted >= 700 * MIB
        assert _granted(crowded, A) == granted, "the new broker adopted the process"
        again = await _told(crowded, Paused, 2)
        assert again[1].text == "this GPU has not been measured yet"
        await crowded.client.measure(measured(GIB))
        await first.do("use 0 0")
        assert await taking == "taken"


async def test_a_wait_that_cannot_end_is_refused(crowded: Broker) -> None:
    """A request for more than unhooked processes leave on the GPU fails with the reason."""
    await crowded.stop()
    await crowded.start()
    await crowded.client.measure(measured(500 * MIB))
    process = await _begun(crowded, A)
    assert await process.do(f"take 0 {600 * MIB}") == "it is more than this GPU has for containers"
    assert await process.do(f"take 0 {400 * MIB}") == "taken"


async def test_what_stands_past_a_lowered_line_is_not_granted_to_others(crowded: Broker) -> None:
    """A resize below the held memory takes nothing away. The rest of the card is smaller by all that is held."""
    first, second = await _begun(crowded, A), await _begun(crowded, B)
    assert await first.do(f"take 0 {700 * MIB}") == "taken"
    await crowded.client.register(pod(A, 200 * MIB))
    assert await second.do(f"take 0 {300 * MIB}") == "taken"
    async with _asking(second, 300 * MIB) as taking:
        await _told(crowded, Paused)
        assert not taking.done()
        await first.do(f"use 0 {200 * MIB}")
        assert await taking == "taken"


async def test_a_circle_is_never_entered(crowded: Broker) -> None:
    """Two containers would each hold half and wait for the other's half.

    Instead one waits before it takes its half.
    """
    first, second = await _begun(crowded, A), await _begun(crowded, B)
    assert await first.do(f"take 0 {500 * MIB}") == "taken"
    async with _asking(second, 500 * MIB) as taking:
        await _told(crowded, Paused)
        assert await first.do(f"take 0 {500 * MIB}") == "taken"
        assert not taking.done()
        await first.kill()
        assert await taking == "taken"


async def test_long_waits_are_told_again_and_end_where_that_is_set(crowded: Broker) -> None:
    """A wait is announced at intervals, and refused after the configured longest wait."""
    await crowded.stop()
    await crowded.start(wait_remind_s="0.5", wait_longest_s="4")
    await crowded.client.measure(measured(GIB))
    first, second = await _begun(crowded, A), await _begun(crowded, B)
    assert await first.do(f"take 0 {GIB}") == "taken"
    assert await second.do(f"take 0 {GIB}") == "it has waited for 4 s"
    paused = await _told(crowded, Paused, 2)
    assert paused[0].waited_s < paused[1].waited_s
    (resumed,) = await _told(crowded, Resumed)
    assert resumed.text == "refused: it has waited for 4 s"


async def test_without_overcommit_nobody_waits(broker: Broker) -> None:
    """Without overcommit every page grants the line, and a process that asks goes on at once."""
    await broker.client.measure(measured(GIB))
    await broker.client.register(pod(A, GIB, 2 * GIB))
    await broker.client.register(pod(B, GIB, 2 * GIB))
    assert [_granted(broker, uid, place) for uid in (A, B) for place in (0, 1)] == [GIB, 2 * GIB] * 2
    first, second = await _begun(broker, A), await _begun(broker, B)
    assert await first.do(f"take 0 {GIB}") == "taken"
    assert await second.do(f"take 0 {GIB}") == "taken"
    await second.do(f"send wait {GPUS[0]}")
    await second.do(f"send freed {GPUS[0]}")
    await first.kill()
    await until(lambda: _is_told(broker, "exited"), "the exit is told")
    assert not {"paused", "resumed"} & {entry.what for entry in broker.journaled()}


async def _is_told(broker: Broker, what: str) -> bool:
    return what in {entry.what for entry in broker.journaled()}
