"""Health and pressure over the emulated driver: from the driver's own signs to events, reports and metrics."""

import asyncio
from pathlib import Path

import msgspec
from nats.js import JetStreamContext

from plimsoll.events import NodeState
from plimsoll.gpu_events import HealthChange, HealthClass, Pressure
from plimsoll_cli.demo.servers import EmbeddedServer
from plimsoll_cli.status import shown
from tests.monitor.emulated import GPU_0, GPU_1, book, program, write_node
from tests.monitor.harness import Message, MonitorProcess, until, until_true
from tests.monitor.test_emulator import node
from tests.monitor.test_hooked import brokering
from tests.monitor.test_metrics import scraped
from tests.servers.waiting import PATIENCE_S

QUICK = {"health_hold_s": 0.2, "idle_period_s": 0.2, "glance_s": 0.2}
"""The driver's figures are read with the utilisation, at most once in each period of the idle average."""


def changes(messages: list[Message]) -> list[HealthChange]:
    """All `gpu.health` events."""
    bodies = [message.event.data for message in messages if message.what == "gpu.health"]
    return [msgspec.json.decode(body, type=HealthChange) for body in bodies]


def classes(messages: list[Message], gpu: str = GPU_0) -> list[str]:
    """The classes of a GPU, in the order of its events."""
    return [one.health.value for one in changes(messages) if one.gpu == gpu]


def state(messages: list[Message]) -> NodeState:
    """The node's state in the newest report."""
    return [message for message in messages if message.event.sequence][-1].report.state


def unhealthy(messages: list[Message]) -> dict[str, str]:
    """The gravest condition of each GPU that the newest report calls unhealthy."""
    return {one.gpu: one.reason for one in state(messages).health}


async def listening(
    monitor: MonitorProcess, context: JetStreamContext, environment: dict[str, str], gpu: str = GPU_1
) -> None:
    """Wait until the monitor receives XID errors, by those of the second card, `gpu`: it repeats none from before."""
    await until(context, bool)
    for _ in range(600):
        await book(environment, "xid", "1", "45")
        if "info" in classes(await until(context, bool), gpu):
            return
        await asyncio.sleep(0.1)
    raise AssertionError(monitor.log)


async def test_a_gpu_off_the_bus_is_fatal_and_comes_back_healthy(
    tmp_path: Path, nats: EmbeddedServer
) -> None:
    """XID 79 and the loss are fatal, in the event and in every report; only a reset of the GPU ends the XID."""
    async with node(tmp_path, nats.url) as (monitor, environment, context):
        await listening(monitor, context, environment)
        await book(environment, "xid", "0", "79")
        messages = await until(context, lambda all_: GPU_0 in unhealthy(all_))
        assert unhealthy(messages)[GPU_0] == "XID 79: the GPU has fallen off the bus"
        assert GPU_0 in [gpu.uuid for gpu in state(messages).gpus]
        await book(environment, "lose", "0")
        messages = await until(context, lambda all_: GPU_0 not in [gpu.uuid for gpu in state(all_).gpus])
        [lost] = [one for one in state(messages).health if one.gpu == GPU_0]
        assert sorted(one.what for one in lost.conditions) == ["lost", "xid"]
        await book(environment, "find", "0")
        messages = await until(context, lambda all_: GPU_0 in [gpu.uuid for gpu in state(all_).gpus])
        assert unhealthy(messages)[GPU_0] == "XID 79: the GPU has fallen off the bus"
        await book(environment, "reset", "0")
        messages = await until(context, lambda all_: GPU_0 not in unhealthy(all_))
        assert classes(messages) == ["fatal", "fatal", "fatal", "healthy"]
        assert changes(messages)[-1].before in (HealthClass.FATAL, HealthClass.INFO)


async def test_a_node_whose_only_gpus_are_lost_says_so_in_plimsoll_status(
    tmp_path: Path, nats: EmbeddedServer
) -> None:
    """The broker, which answers `plimsoll status`, knows that no GPU of its node answers."""
    async with (
        brokering(tmp_path / "broker") as broker,
        node(tmp_path, nats.url) as (_, environment, context),
    ):
        await until(context, lambda all_: len(state(all_).gpus) == 2)
        for gpu in "01":
            await book(environment, "lose", gpu)
        async with asyncio.timeout(PATIENCE_S):
            while (found := await broker.client.describe()).unhealthy.keys() != {GPU_0, GPU_1}:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        assert [
            line for line in shown(found, found, 1.0) if line.startswith(f"{GPU_0} is not healthy: fatal")
        ]


async def test_a_fatal_error_outlives_the_monitor_and_ends_by_a_reset(
    tmp_path: Path, nats: EmbeddedServer
) -> None:
    """A monitor that is killed takes the condition up again without an event; a reset of the GPU ends it."""
    async with node(tmp_path, nats.url) as (monitor, environment, context):
        await listening(monitor, context, environment)
        await book(environment, "xid", "0", "48")
        await until(context, lambda all_: GPU_0 in unhealthy(all_))
        await monitor.kill()
        await monitor.start()
        messages = await until(context, lambda all_: state(all_).epoch == 2)
        assert unhealthy(messages)[GPU_0] == "XID 48: double bit ECC error"
        await book(environment, "reset", "0")
        messages = await until(context, lambda all_: GPU_0 not in unhealthy(all_))
        assert classes(messages) == ["fatal", "healthy"]


async def test_errors_of_a_gpu_that_was_lost_at_the_start_are_seen(
    tmp_path: Path, nats: EmbeddedServer
) -> None:
    """A GPU that could not be registered for errors is registered once it is back."""
    await book(write_node(tmp_path), "lose", "0")
    async with node(tmp_path, nats.url) as (monitor, environment, context):
        await listening(monitor, context, environment)
        await book(environment, "find", "0")
        async with asyncio.timeout(PATIENCE_S):
            while "info" not in classes(await until(context, bool)):
                await book(environment, "xid", "0", "31")
                await asyncio.sleep(0.1)


async def test_the_drivers_figures_are_conditions_while_they_last(
    tmp_path: Path, nats: EmbeddedServer
) -> None:
    """ECC, remapped rows, the driver's advice and lowered clocks: each comes and goes with the driver's figure."""
    faults = {
        "ecc": ("1", "ecc", "degraded"),
        "remap": ("1", "row-remap", "degraded"),
        "retired": ("1", "retired-page", "degraded"),
        "remap-failed": ("1", "row-remap-failure", "fatal"),
        "recovery": ("1", "recovery", "fatal"),
        "clocks": (str(0x40), "thermal", "degraded"),
    }
    async with node(tmp_path, nats.url, **QUICK) as (_, environment, context):
        await until(context, bool)
        for name, (value, what, health) in faults.items():
            await book(environment, "fault", "0", name, value)
            messages = await until(context, lambda all_: GPU_0 in unhealthy(all_))
            [one] = state(messages).health
            assert (one.conditions[0].what, one.health.value) == (what, health)
            await book(environment, "fault", "0", name, "0")
            await until(context, lambda all_: not unhealthy(all_))
        await book(environment, "fault", "0", "clocks", str(0x80))
        messages = await until(context, lambda all_: GPU_0 in unhealthy(all_))
        assert state(messages).health[0].conditions[0].what == "power"


async def test_short_memory_is_one_event_and_its_end_another(tmp_path: Path, nats: EmbeddedServer) -> None:
    """A program that takes nearly all of a GPU makes it short; when the program ends, it is no longer short."""
    async with node(tmp_path, nats.url) as (_, environment, context):

        def pressures(messages: list[Message]) -> list[Pressure]:
            bodies = [message.event.data for message in messages if message.what == "gpu.pressure"]
            return [msgspec.json.decode(body, type=Pressure) for body in bodies]

        async with program(environment) as one:
            await one.do("alloc 22600")
            messages = await until(context, lambda all_: len(pressures(all_)) == 1)
            [begin] = pressures(messages)
            assert (begin.gpu, begin.short) == (GPU_0, True)
            assert begin.free_bytes == begin.usable_bytes - begin.used_bytes < begin.limit_bytes
        messages = await until(context, lambda all_: len(pressures(all_)) == 2)
        assert not pressures(messages)[1].short


async def test_health_is_scraped(tmp_path: Path, nats: EmbeddedServer) -> None:
    """The metrics have each GPU's class and conditions, its pressure, and the errors by number."""
    async with node(tmp_path, nats.url, http_port=0) as (monitor, environment, context):
        await listening(monitor, context, environment)
        await book(environment, "xid", "0", "79")
        await until(context, lambda all_: GPU_0 in unhealthy(all_))
        await until_true(lambda: monitor.logged("metrics"))
        names = {name for name, gpu, _ in await scraped(monitor.logged("metrics")[0]["port"]) if gpu == GPU_0}
    assert names >= {
        "plimsoll_gpu_health",
        "plimsoll_gpu_condition",
        "plimsoll_gpu_pressure",
        "plimsoll_gpu_health_events_total",
        "plimsoll_gpu_xid_errors_total",
    }
