"""Events about waits for a GPU, from real monitor, broker, library and NATS, over the emulated driver."""

import asyncio
import contextlib
from pathlib import Path
from typing import Final

from plimsoll.broker.pages import LATE_NS
from plimsoll.events import Limit
from plimsoll.ids import PodUid
from plimsoll_cli.demo.servers import EmbeddedServer
from tests.monitor.emulated import GIB, GPU_0, program
from tests.monitor.harness import Message, jetstream, until
from tests.monitor.test_audited import limit_events
from tests.monitor.test_hooked import CONTAINER, POD, brokering, monitoring

OTHER: Final = PodUid("1c8f9a4d-2e3b-4d6c-8f70-8b9c0d1e2f3a")


async def test_a_wait_for_memory_has_events_at_its_beginning_and_end(
    tmp_path: Path, nats: EmbeddedServer
) -> None:
    """A wait has one `paused` with the requested bytes and one `resumed` after the holder is gone, and no denial."""
    async with (
        brokering(tmp_path / "broker", overcommit="true") as broker,
        monitoring(tmp_path, nats.url) as (_, bare),
        jetstream(nats.url) as stream,
        program({**bare, **await broker.hook(20 * GIB, OTHER)}) as holder,
        program({**bare, **await broker.hook(20 * GIB)}) as waiter,
    ):
        await holder.do(f"alloc {15 * 1024}")
        waiting = asyncio.create_task(waiter.do(f"alloc {15 * 1024}"))
        (paused,) = waits(await until(stream, lambda all_: bool(waits(all_, "paused"))), "paused")
        assert not waiting.done()
        assert (paused.pid, paused.line_bytes) == (waiter.process.pid, 20 * GIB)
        await holder.kill()
        await waiting
        messages = await until(stream, lambda all_: bool(waits(all_, "resumed")))
        (resumed,) = waits(messages, "resumed")
        assert (resumed.pid, resumed.reason) == (waiter.process.pid, "granted")
        assert resumed.waited_s > paused.waited_s
        assert waits(messages, "paused") == [paused]
        assert limit_events(messages, "denied") == []


async def test_an_unmet_request_for_compute_time_has_an_event(tmp_path: Path, nats: EmbeddedServer) -> None:
    """A container of 50 beside three endless kernels, which no gate can stop, gets a quarter and has an event."""
    async with (
        brokering(tmp_path / "broker", shares="unmet_s=1.0") as broker,
        monitoring(tmp_path, nats.url) as (_, bare),
        jetstream(nats.url) as stream,
        contextlib.AsyncExitStack() as stack,
    ):
        # A limit keeps both containers metered from their first launch on.
        others = {**bare, **await broker.hook(GIB, OTHER, share_pct=40, limit_pct=99)}
        own = {**bare, **await broker.hook(GIB, share_pct=50, limit_pct=99)}
        programs = [await stack.enter_async_context(program(env)) for env in (own, others, others, others)]
        working = [asyncio.create_task(each.do("launch 3600")) for each in programs]
        (unmet, *_) = limit_events(
            await until(stream, lambda all_: bool(limit_events(all_, "unmet"))), "unmet"
        )
        assert (unmet.pod, unmet.container, unmet.gpu, unmet.pid) == (POD, CONTAINER, GPU_0, 0)
        assert unmet.share_pct == 50
        assert 0 < unmet.used_pct < 45
        assert "instead of the 50 % it requested" in unmet.reason
        for each in programs:
            await each.kill()
        await asyncio.gather(*working, return_exceptions=True)


async def test_a_gap_between_two_brokers_has_an_event_per_held_process(
    tmp_path: Path, nats: EmbeddedServer
) -> None:
    """A program behind a shut gate goes on when its broker is killed, and the next broker reports it."""
    async with (
        brokering(tmp_path / "broker") as broker,
        monitoring(tmp_path, nats.url) as (_, bare),
        jetstream(nats.url) as stream,
        program({**bare, **await broker.hook(GIB, limit_pct=50)}) as held,
    ):
        await held.do("launch 0.001")
        await broker.kill()
        await asyncio.sleep(LATE_NS / 1e9 + 0.1)  # Only elapsed time shows the library that no beat comes.
        await held.do("launch 0.02")
        await broker.start()
        (unenforced, *_) = limit_events(
            await until(stream, lambda all_: bool(limit_events(all_, "unenforced"))), "unenforced"
        )
        assert (unenforced.pod, unenforced.container, unenforced.pid) == (POD, CONTAINER, held.process.pid)
        assert "nobody held this process to its share" in unenforced.reason


def waits(messages: list[Message], what: str) -> list[Limit]:
    """The events of the test's own wait. Contexts may also wait until the GPU is measured."""
    return [
        each
        for each in limit_events(messages, what)
        if (each.pod, each.container, each.gpu, each.requested_bytes) == (POD, CONTAINER, GPU_0, 15 * GIB)
    ]
