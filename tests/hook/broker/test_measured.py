"""A real broker that gets NVML's figures writes them into `limits`, announces them, and keeps them."""

import asyncio
import time

import msgspec
import pytest

from hook.broker.core.audit.audit import RUN, UNHOOKED_NS
from hook.broker.files.contexts import ContextsFile, driver_version
from plimsoll.broker.announcements import Unenforced, Violated
from plimsoll.broker.wire import Measured, MeasuredGpu, MeasuredProcess
from plimsoll.gpu_events import Condition, GpuHealth, HealthClass
from plimsoll.part.processes import read_stat
from plimsoll.quantity import MIB
from tests.hook.broker.conftest import GIB, GPUS, MAIN, POD, Broker, Process, registration

CONTEXT = 300 * MIB


def measured(*held: tuple[Process, int], later_ns: int = 0) -> Measured:
    """NVML's figures for the first GPU, as of now or some time later."""
    gpu = MeasuredGpu(gpu=GPUS[0], usable_bytes=16 * GIB, used_bytes=sum(used for _, used in held))
    return Measured(
        began_ns=time.monotonic_ns() + later_ns,
        gpus=(gpu,),
        processes=tuple(_measured(process.pid, used) for process, used in held),
    )


def _measured(pid: int, used_bytes: int) -> MeasuredProcess:
    stat = read_stat(pid)
    assert stat is not None
    return MeasuredProcess(pid=pid, start_ticks=stat.start_ticks, gpu=GPUS[0], used_bytes=used_bytes, pod=POD)


async def _settle(broker: Broker, *held: tuple[Process, int]) -> None:
    for _ in range(RUN + 2):
        await broker.client.measure(measured(*held))


async def test_excess_stands_in_limits_until_its_process_is_gone(broker: Broker) -> None:
    """Memory that NVML shows past the word is written under a new generation, until the process dies."""
    await broker.client.register(registration(4 * GIB))
    process, other = await broker.spawn(), await broker.spawn()
    await process.begin(500 * MIB)
    await other.begin(100 * MIB)
    await broker.announced(2, contexts=False)
    before = broker.limits().generation
    await _settle(broker, (process, 700 * MIB), (other, 110 * MIB))
    page = broker.limits()
    assert page.generation == before + 2, "the page was written once"
    assert [gpu.excess_bytes for gpu in page.gpus[:2]] == [210 * MIB, 0]
    assert [gpu.granted_bytes for gpu in page.gpus[:2]] == [4 * GIB] * 2
    await process.kill()
    assert (await broker.announced(3, contexts=False))[2].what == "exited"
    assert broker.limits().gpus[0].excess_bytes == 10 * MIB


async def test_words_that_change_while_nvml_is_read_are_no_excess(broker: Broker) -> None:
    """A program that frees memory after each request to NVML is not charged until it rests."""
    await broker.client.register(registration(4 * GIB))
    process = await broker.spawn()
    await process.begin(GIB)
    await broker.announced(1)
    for _ in range(RUN + 2):
        asked = measured((process, GIB))
        await process.do("use 0 0")
        await broker.client.measure(asked)
        assert broker.limits().gpus[0].excess_bytes == 0
        await process.do(f"use 0 {GIB}")
    await process.do("use 0 0")
    await broker.client.measure(measured((process, GIB)))
    assert broker.limits().gpus[0].excess_bytes == GIB


@pytest.mark.parametrize("how", ["kill", "stop"])
async def test_the_cost_of_a_context_is_kept_over_a_restart(broker: Broker, how: str) -> None:
    """The cost of a context, once measured, is in every later page for that GPU, and in no other's."""
    await broker.client.register(registration(4 * GIB))
    process = await broker.spawn()
    await process.begin()
    await process.do(f"send context {GPUS[0]}")
    await broker.announced(2)
    await _settle(broker, (process, CONTEXT))
    assert [gpu.context_bytes for gpu in broker.limits().gpus[:2]] == [CONTEXT, 0]
    await getattr(broker, how)()
    await broker.start()
    assert [gpu.context_bytes for gpu in broker.limits().gpus[:2]] == [CONTEXT, 0]


async def test_the_cost_of_a_context_is_forgotten_with_its_driver(broker: Broker) -> None:
    """After an update of the driver, a cost that was measured under the earlier version is in no page."""
    await broker.client.register(registration(4 * GIB))
    process = await broker.spawn()
    await process.begin()
    await process.do(f"send context {GPUS[0]}")
    await broker.announced(2)
    await _settle(broker, (process, CONTEXT))
    assert broker.limits().gpus[0].context_bytes == CONTEXT
    await process.kill()
    await broker.stop()
    saved = await asyncio.to_thread(ContextsFile(broker.root, driver_version()).read)
    await asyncio.to_thread(ContextsFile(broker.root, "535.104.05").write, saved)
    await broker.start()
    assert broker.limits().gpus[0].context_bytes == 0
    [line] = broker.log("contexts_of_another_driver")
    assert line["measured_under"] == "535.104.05"


async def test_the_page_shows_where_a_contexts_cost_is_measured_soon(broker: Broker) -> None:
    """Only on a GPU that is measured, and whose processes NVML lists: elsewhere no program waits for the cost."""
    await broker.client.measure(measured())
    await broker.client.register(registration(4 * GIB))
    process = await broker.spawn()
    await process.begin()
    await process.do(f"send context {GPUS[0]}")
    await broker.announced(2)
    assert [gpu.is_measured for gpu in broker.limits().gpus[:2]] == [1, 0]
    for _ in range(RUN):
        await broker.client.measure(measured())
    assert broker.limits().gpus[0].is_measured == 0


async def test_damaged_costs_are_forgotten_and_said(broker: Broker) -> None:
    """A broker with a damaged file of costs starts without any, and logs the damage."""
    await broker.stop()
    (broker.root / "contexts.json").write_text('{"GPU-aaaa": -7}')
    await broker.start()
    await broker.client.register(registration())
    assert broker.limits().gpus[0].context_bytes == 0
    assert broker.log("contexts_damaged")


async def test_a_violation_and_an_unhooked_process_are_announced(broker: Broker) -> None:
    """A violation and an unhooked process are each announced and logged once, with the reason."""
    await broker.client.register(registration(GIB))
    process, bare = await broker.spawn(), await broker.spawn()
    await process.begin(GIB)
    await broker.announced(1)
    await _settle(broker, (process, GIB), (bare, 300 * MIB))
    assert [entry.what for entry in await broker.announced(2, contexts=False)] == ["hello", "violated"]
    await broker.client.measure(measured((process, GIB), (bare, 300 * MIB), later_ns=UNHOOKED_NS))
    [use] = (await broker.client.describe()).containers
    assert use.unheld_pids == (bare.pid,)
    hello, violated, unenforced = await broker.announced(3, contexts=False)
    assert hello.what == "hello"
    assert isinstance(violated, Violated)
    assert isinstance(unenforced, Unenforced)
    assert (violated.container, violated.gpu, violated.pid) == (MAIN, GPUS[0], 0)
    assert (violated.used_bytes, violated.line_bytes) == (GIB + 300 * MIB, GIB)
    assert (unenforced.pid, unenforced.used_bytes) == (bare.pid, 300 * MIB)
    [logged] = broker.log("unenforced")
    assert (logged["text"], logged["gpu"]) == (unenforced.text, GPUS[0])
    assert unenforced.text
    assert broker.limits().gpus[0].excess_bytes == 300 * MIB
    await process.kill()
    assert (await broker.announced(4))[3].what == "exited", "no finding was announced twice"


async def test_the_monitors_word_on_health_is_in_the_description(broker: Broker) -> None:
    """The broker passes the health of GPUs on to `plimsoll status`, as the monitor sent it last."""
    fell = Condition(what="xid", health=HealthClass.FATAL, since="t", text="XID 79: fell", xid=79)
    lost = GpuHealth(
        gpu=GPUS[0], index=0, model="L4", health=HealthClass.FATAL, since="t", conditions=(fell,)
    )
    await broker.client.measure(msgspec.structs.replace(measured(), health=(lost,)))
    assert (await broker.client.describe()).unhealthy == {GPUS[0]: "fatal: XID 79: fell"}
    await broker.client.measure(measured())
    assert (await broker.client.describe()).unhealthy == {}
