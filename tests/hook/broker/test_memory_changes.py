"""Changes of a program's memory, from the library's counts over the broker to a subscriber."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable
from pathlib import Path

import pytest

from plimsoll.broker.announcements import Announcement
from plimsoll.broker.subscription import subscribed
from plimsoll.broker.wire import MemoryChange, Subscribe
from tests.hook.broker.conftest import GIB, Broker
from tests.hook.broker.test_library import GPU, MIB, emulated_node, one_gpu, start_program
from tests.servers.waiting import PATIENCE_S

Stream = AsyncGenerator[Announcement | MemoryChange]


async def change(stream: Stream, holds: Callable[[MemoryChange], bool]) -> MemoryChange:
    """Wait for a change of memory for which `holds` is true."""
    async with asyncio.timeout(PATIENCE_S):
        async for message in stream:
            if isinstance(message, MemoryChange) and holds(message):
                return message
    raise AssertionError


async def announcements_until(stream: Stream, what: str) -> None:
    """Wait for an announcement; no change of memory may come before."""
    async with asyncio.timeout(PATIENCE_S):
        async for message in stream:
            assert isinstance(message, Announcement)
            if message.what == what:
                return


@pytest.fixture(name="node")
def _node(tmp_path: Path) -> Path:
    return emulated_node(tmp_path)


async def test_a_fall_and_a_new_rise_reach_a_subscriber(broker: Broker, node: Path) -> None:
    """A subscriber gets the memory after each large change; smaller changes come with none of their own."""
    await broker.client.register(one_gpu(4 * GIB))
    program = await start_program(broker, node)
    await program.do("begin")
    async with contextlib.aclosing(subscribed(broker.root, Subscribe(memory=True))) as stream:
        await program.do(f"alloc {GIB}")
        risen = await change(stream, lambda each: each.used_bytes >= GIB)
        assert (risen.pid, risen.gpu) == (program.pid, GPU)
        await program.do("free")
        fallen = await change(stream, lambda each: each.used_bytes < GIB)
        assert fallen.used_bytes <= 64 * MIB  # the context alone
        assert fallen.peak_bytes >= GIB
        await program.do(f"alloc {32 * MIB}")
        await program.do(f"alloc {2 * GIB}")
        again = await change(stream, lambda each: each.used_bytes > fallen.used_bytes)
        assert again.used_bytes >= 2 * GIB


async def test_a_peak_between_two_readings_is_known(broker: Broker, node: Path) -> None:
    """Memory that is freed at once is in the peak, also for a subscriber that comes later."""
    await broker.client.register(one_gpu(4 * GIB))
    program = await start_program(broker, node)
    await program.do("begin")
    await program.do(f"alloc {3 * GIB}")
    await program.do("free")
    async with contextlib.aclosing(subscribed(broker.root, Subscribe(memory=True))) as stream:
        peak = await change(stream, lambda each: each.peak_bytes >= 3 * GIB)
        assert peak.used_bytes <= 64 * MIB


async def test_a_refused_allocation_is_no_peak(broker: Broker, node: Path) -> None:
    """The peak is of memory that the program held, not of what it asked for."""
    await broker.client.register(one_gpu(2 * GIB))
    program = await start_program(broker, node)
    await program.do("begin")
    assert await program.do(f"alloc {3 * GIB}") != "0"
    await program.do(f"alloc {GIB}")
    await program.do("free")
    async with contextlib.aclosing(subscribed(broker.root, Subscribe(memory=True))) as stream:
        peak = await change(stream, lambda each: each.peak_bytes >= GIB)
        assert peak.peak_bytes < 2 * GIB


async def test_a_slot_that_is_claimed_again_has_no_old_peak(broker: Broker, node: Path) -> None:
    """The peak of a dead process is not its successor's in the same slot."""
    await broker.client.register(one_gpu(4 * GIB))
    async with contextlib.aclosing(subscribed(broker.root, Subscribe(memory=True))) as stream:
        for size_bytes in (3 * GIB, GIB):
            program = await start_program(broker, node)
            await program.do("begin")
            await program.do(f"alloc {size_bytes}")
            held = await change(stream, lambda each, pid=program.pid: each.pid == pid)  # type: ignore[misc]
            assert held.peak_bytes <= size_bytes + 64 * MIB
            await program.kill()
            await broker.until_vacant()


async def test_a_subscriber_that_does_not_ask_gets_announcements_alone(broker: Broker, node: Path) -> None:
    """A subscriber that wants announcements alone, as `plimsoll run` does, gets nothing else."""
    await broker.client.register(one_gpu(4 * GIB))
    program = await start_program(broker, node)
    async with (
        contextlib.aclosing(subscribed(broker.root, Subscribe())) as plain,
        contextlib.aclosing(subscribed(broker.root, Subscribe(memory=True))) as asking,
    ):
        await program.do("begin")
        await announcements_until(plain, "context")  # the subscription exists from its first message on
        await program.do(f"alloc {GIB}")
        await change(asking, lambda each: each.used_bytes >= GIB)
        await program.kill()
        await announcements_until(plain, "exited")
