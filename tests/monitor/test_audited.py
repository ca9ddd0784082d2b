"""NVML's measurements correct the counts: real monitor, real broker and real library, over the emulated driver."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from nats.js import JetStreamContext

from hook.broker.core.codec import uses_offset
from plimsoll.broker.pages import COUNTS_DIR_VARIABLE, LIMITS_DIR_VARIABLE, Counts, GpuLimit, Limits
from plimsoll.events import Limit
from plimsoll.quantity import MIB
from plimsoll_cli.demo.servers import EmbeddedServer
from tests.monitor.emulated import GIB, GPU_0, Program, program, write_node
from tests.monitor.harness import Message, MonitorProcess, jetstream, until, until_true
from tests.monitor.test_hooked import CONTAINER, POD, BrokerProcess, brokering

CONTEXT = 300 * MIB


class Node:
    """An emulated node under monitor and broker, with one registered container on GPU 0."""

    def __init__(
        self, monitor: MonitorProcess, broker: BrokerProcess, stream: JetStreamContext, bare: dict[str, str]
    ) -> None:
        self.monitor = monitor
        self.broker = broker
        self.stream = stream
        self.bare = bare
        self.hooked: dict[str, str] = {}

    async def register(self, line_bytes: int) -> None:
        """Give the container this line."""
        self.hooked = {**self.bare, **await self.broker.hook(line_bytes)}

    @property
    def page(self) -> GpuLimit:
        """The limits page that the container's processes read now."""
        path = Path(self.hooked[LIMITS_DIR_VARIABLE]) / "limits"
        page: GpuLimit = Limits.from_buffer_copy(path.read_bytes()).gpus[0]
        return page

    @property
    def counted_bytes(self) -> int:
        """The memory by the counts of the container's processes, plus the excess that the broker measured."""
        path = Path(self.hooked[COUNTS_DIR_VARIABLE]) / "counts"
        counts = Counts.from_buffer_copy(path.read_bytes())
        return sum(int(slot.used_bytes[0]) for slot in counts.slots) + int(self.page.excess_bytes)

    async def limits(self, what: str) -> list[Limit]:
        """Wait for an event `limit.<what>`, and return all of them."""
        messages = await until(self.stream, lambda all_: any(each.what == f"limit.{what}" for each in all_))
        return limit_events(messages, what)


def limit_events(messages: list[Message], what: str) -> list[Limit]:
    """The stream's events `limit.<what>`."""
    return [
        msgspec.json.decode(each.event.data, type=Limit) for each in messages if each.what == f"limit.{what}"
    ]


@contextlib.asynccontextmanager
async def node(tmp_path: Path, url: str, **settings: object) -> AsyncIterator[Node]:
    """A node whose monitor has the default sampling times unless a test sets others."""
    bare = write_node(tmp_path)
    pace = {"sample_s": 0.1, "reconcile_s": 5.0} | settings
    monitor = MonitorProcess(tmp_path, url, **pace)
    monitor.environment |= bare
    async with brokering(tmp_path / "broker") as broker, jetstream(url) as stream:
        await monitor.start()
        try:
            yield Node(monitor, broker, stream, bare)
        finally:
            await monitor.kill()


async def test_the_first_process_teaches_what_a_context_costs(tmp_path: Path, nats: EmbeddedServer) -> None:
    """The first process's context is measured and counted without a timed sample, and then the next process's too."""
    async with node(tmp_path, nats.url, reconcile_s=3600, idle_period_s=3600) as one:
        await one.register(4 * GIB)
        async with program(one.hooked) as first, program(one.hooked) as second:
            await first.do("alloc 256")
            await until_true(lambda: one.page.context_bytes == CONTEXT)
            await second.do("alloc 128")
            await until_true(lambda: one.counted_bytes == 2 * CONTEXT + (256 + 128) * MIB)
            async with program(one.hooked):
                await until_true(lambda: one.counted_bytes == 3 * CONTEXT + (256 + 128) * MIB)
        await until_true(lambda: one.counted_bytes == 0)
        assert one.page.context_bytes == CONTEXT


async def test_a_program_that_clears_its_own_count_is_found_out(tmp_path: Path, nats: EmbeddedServer) -> None:
    """Memory of a program that clears its own count is charged from NVML.

    Past the line the program gets no more memory, and one event reports it.
    """
    async with node(tmp_path, nats.url, reconcile_s=0.2) as one:
        await one.register(GIB)
        async with program(one.hooked) as liar:
            await liar.do("alloc 512")
            await one.monitor.kill()  # however long the next two steps take, nothing is measured between them
            clear_counts(one)
            await liar.do("alloc 768")
            await one.monitor.start()
            (violation,) = await one.limits("violated")
            assert (violation.pod, violation.container, violation.gpu) == (POD, CONTAINER, GPU_0)
            assert (violation.used_bytes, violation.line_bytes) == (CONTEXT + 1280 * MIB, GIB)
            await until_true(lambda: one.counted_bytes == CONTEXT + 1280 * MIB)
            await liar.do("refused 1")
        await until_true(lambda: one.counted_bytes == 0)
        assert len(await one.limits("violated")) == 1


def clear_counts(one: Node) -> None:
    """Set every word of the container to 0, as any of its processes can."""
    path = Path(one.hooked[COUNTS_DIR_VARIABLE]) / "counts"
    with path.open("r+b", buffering=0) as file:
        for slot in range(8):
            os.pwrite(file.fileno(), bytes(8), uses_offset(slot))


async def test_a_loop_of_allocations_is_no_excess(tmp_path: Path, nats: EmbeddedServer) -> None:
    """A program that takes and frees 1 GiB under ten samples a second is charged for its context and nothing else."""
    async with node(tmp_path, nats.url, sample_s=0.02, reconcile_s=0.05) as one:
        await one.register(4 * GIB)
        async with program(one.hooked) as loop:
            await until_true(lambda: one.page.context_bytes == CONTEXT)
            churning = asyncio.create_task(loop.do("churn 1024 8"))
            seen = set[int]()
            while not churning.done():
                seen.add(int(one.page.excess_bytes))
                await asyncio.sleep(0.01)
            await churning
            assert seen <= {0, CONTEXT}
        assert limit_events(await until(one.stream, bool), "violated") == []


@pytest.fixture(name="pod_cgroup")
def _pod_cgroup() -> Iterator[Path]:
    """A cgroup path as the kubelet makes it for a pod."""
    top = Path("/sys/fs/cgroup")
    path = (top if (top / "cgroup.procs").exists() else top / "pids") / f"pod{POD}"
    try:
        path.mkdir()
    except OSError as error:
        pytest.skip(f"no cgroup can be made here: {error}")
    try:
        yield path
    finally:
        path.rmdir()


async def test_a_process_without_its_hook_has_an_event(
    tmp_path: Path, nats: EmbeddedServer, pod_cgroup: Path
) -> None:
    """A process in a registered pod's cgroup without a greeting causes one event, and its memory counts."""
    async with node(tmp_path, nats.url, reconcile_s=0.2) as one:
        await one.register(GIB)
        async with program(one.bare) as bare:
            (pod_cgroup / "cgroup.procs").write_text(str(bare.process.pid))
            async with renewed(one):
                await bare.do("alloc 100")
                (event,) = await one.limits("unenforced")
                assert (event.pod, event.container, event.gpu) == (POD, CONTAINER, GPU_0)
                assert (event.pid, event.line_bytes) == (bare.process.pid, GIB)
                await until_true(lambda: one.counted_bytes == CONTEXT + 100 * MIB)
                assert len(await one.limits("unenforced")) == 1


@contextlib.asynccontextmanager
async def renewed(one: Node) -> AsyncIterator[None]:
    """Restart until the monitor first samples the process inside its pod.

    A real process never moves between pods.
    """
    await one.monitor.kill()
    await one.monitor.start()
    yield


async def test_a_lost_broker_has_one_event_per_task(tmp_path: Path, nats: EmbeddedServer) -> None:
    """When the broker of two programs is killed, each has one `unenforced`; the next outage causes another."""
    async with node(tmp_path, nats.url, reconcile_s=0.2, broker_away_s=1.0) as one:
        await one.register(4 * GIB)
        async with program(one.hooked) as first, program(one.hooked) as second:
            await until_true(lambda: one.page.context_bytes == CONTEXT)
            await one.broker.kill()
            await until(one.stream, of_both(first, second, times=1))
            await one.broker.start()
            await until_true(lambda: one.monitor.logged("the broker is there again"))
            await one.broker.kill()
            messages = await until(one.stream, of_both(first, second, times=2))
            events = limit_events(messages, "unenforced")
            assert {(event.pod, event.container, event.gpu) for event in events} == {(POD, CONTAINER, GPU_0)}
            assert all("broker is away" in event.reason for event in events)
            assert sorted(event.pid for event in events) == sorted(
                2 * [first.process.pid, second.process.pid]
            )


def of_both(first: Program, second: Program, *, times: int) -> Callable[[list[Message]], bool]:
    """Whether each of two programs has at least this many events `unenforced`."""

    def are_told(messages: list[Message]) -> bool:
        pids = [event.pid for event in limit_events(messages, "unenforced")]
        return all(pids.count(one.process.pid) >= times for one in (first, second))

    return are_told
