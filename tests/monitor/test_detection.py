"""Changes of a hooked program's memory, and delays by a slow or failing driver, over the emulated driver.

The monitors of these tests have no timed samples, unless a test says so: what they publish, an event has caused.
"""

from collections.abc import Callable
from pathlib import Path

from plimsoll.events import Task
from plimsoll_cli.demo.servers import EmbeddedServer
from tests.monitor.emulated import GIB, GPU_0, GPU_1, MIB, Program, book, program
from tests.monitor.harness import Message, tasks_of, until, until_true
from tests.monitor.test_emulator import newest, node, told_of
from tests.monitor.test_hooked import brokering

UNTIMED = {"reconcile_s": 3600, "glance_s": 3600, "idle_period_s": 3600, "broker_away_s": 3600}
AN_HOUR_MS = "3600000"
GPU_IS_LOST, UNKNOWN_ERROR, NOT_SUPPORTED, DRIVER_NOT_LOADED = "15", "999", "3", "9"


def is_shown(messages: list[Message], one: Program, holds: Callable[[Task], bool]) -> bool:
    """Whether the newest report has a program's task for which `holds` is true."""
    tasks = [task for gpu in newest(messages).values() for task in gpu.tasks]
    return any(task.pid == one.process.pid and holds(task) for task in tasks)


def is_loaded_with(messages: list[Message], one: Program, held_mib: int) -> bool:
    """Whether a program's newest task event is a `loaded` with its context and this much memory more."""
    is_loaded = tasks_of(messages, one.process)[-1:] == ["loaded"]
    return is_loaded and told_of(messages, one, "loaded").used_bytes == (held_mib + 300) * MIB


async def test_a_reload_of_a_hooked_program_needs_no_timed_sample(
    tmp_path: Path, nats: EmbeddedServer
) -> None:
    """Memory given back and loaded anew is a second `loaded`, which only the program's counts can have caused."""
    async with (
        brokering(tmp_path / "broker") as broker,
        node(tmp_path, nats.url, **UNTIMED) as (_, environment, context),
    ):
        hooked = {**environment, **await broker.hook(8 * GIB)}
        async with program(hooked) as one:
            await one.do("alloc 2048")
            before = await until(context, lambda all_: is_loaded_with(all_, one, 2048))
            await one.do("free")
            await until(context, lambda all_: is_shown(all_, one, lambda task: task.used_bytes < GIB))
            await one.do("alloc 3072")
            messages = await until(context, lambda all_: is_loaded_with(all_, one, 3072))
            assert tasks_of(messages, one.process) == [*tasks_of(before, one.process), "loaded"]


async def test_a_glance_finds_a_program_without_the_library(tmp_path: Path, nats: EmbeddedServer) -> None:
    """Without timed samples, start and reload of a program without the library are found by its memory alone."""
    async with (
        node(tmp_path, nats.url, **(UNTIMED | {"glance_s": 0.2})) as (_, environment, context),
        program(environment) as one,
    ):
        await until(context, lambda all_: is_loaded_with(all_, one, 0))
        await one.do("alloc 1024")
        messages = await until(context, lambda all_: is_loaded_with(all_, one, 1024))
        assert tasks_of(messages, one.process) == ["started", "loaded", "loaded"]


async def test_a_peak_between_two_samples_is_published(tmp_path: Path, nats: EmbeddedServer) -> None:
    """Memory that was freed at once is in the task's peak, and in its exit, though no sample ever showed it."""
    async with (
        brokering(tmp_path / "broker") as broker,
        node(tmp_path, nats.url, **UNTIMED) as (_, environment, context),
    ):
        hooked = {**environment, **await broker.hook(16 * GIB)}
        async with program(hooked) as one:
            await until(context, lambda all_: tasks_of(all_, one.process) == ["started", "loaded"])
            await one.do("spike 8192")
            await until(context, lambda all_: is_shown(all_, one, lambda task: task.peak_bytes >= 8 * GIB))
        messages = await until(context, lambda all_: tasks_of(all_, one.process)[-1] == "exited")
        assert told_of(messages, one, "exited").peak_bytes >= 8 * GIB


async def test_a_slow_driver_delays_no_start_and_no_exit(tmp_path: Path, nats: EmbeddedServer) -> None:
    """While a call of the driver hangs, hooked programs start and end as ever, and the GPUs stay in the state."""
    async with (
        brokering(tmp_path / "broker") as broker,
        node(tmp_path, nats.url, **UNTIMED) as (monitor, environment, context),
    ):
        hooked = {**environment, **await broker.hook(8 * GIB)}
        async with program(hooked) as one:
            await until(context, lambda all_: tasks_of(all_, one.process) == ["started", "loaded"])
            await book(environment, "slow", "0", "nvmlDeviceGetMemoryInfo", AN_HOUR_MS)
            async with program(hooked) as two:
                messages = await until(context, lambda all_: tasks_of(all_, two.process) == ["started"])
                assert list(newest(messages)) == [GPU_0, GPU_1]
                # The sample may begin after the round that published the start.
                await until_true(lambda: monitor.logged("the driver answers slowly"))
        messages = await until(
            context,
            lambda all_: all(tasks_of(all_, each.process)[-1] == "exited" for each in (one, two)),
        )
        assert tasks_of(messages, one.process) == ["started", "loaded", "exited"]


async def test_a_driver_that_was_slow_is_caught_up_with(tmp_path: Path, nats: EmbeddedServer) -> None:
    """A sample that comes late is used: the memory that it shows is published."""
    async with (
        node(tmp_path, nats.url) as (monitor, environment, context),
        program(environment) as one,
    ):
        await until(context, lambda all_: tasks_of(all_, one.process) == ["started", "loaded"])
        await book(environment, "slow", "0", "nvmlDeviceGetMemoryInfo", "700")
        await until_true(lambda: monitor.logged("the driver answers slowly"))
        await one.do("alloc 1024")
        messages = await until(
            context, lambda all_: tasks_of(all_, one.process) == ["started", "loaded", "loaded"]
        )
        assert told_of(messages, one, "loaded").used_bytes == (1024 + 300) * MIB


async def test_an_error_of_one_call_leaves_out_one_gpu_and_ends_no_task(
    tmp_path: Path, nats: EmbeddedServer
) -> None:
    """Whichever call of a GPU fails, the other GPU is still reported, and no task exits for it."""
    async with node(tmp_path, nats.url) as (_, environment, context), program(environment) as one:
        await until(context, lambda all_: tasks_of(all_, one.process) == ["started", "loaded"])
        for call in ("nvmlDeviceGetMemoryInfo", "nvmlDeviceGetComputeRunningProcesses_v3"):
            for error in (UNKNOWN_ERROR, GPU_IS_LOST):
                await book(environment, "fail", "0", call, error)
                await until(context, lambda all_: list(newest(all_)) == [GPU_1])
                await book(environment, "heal", "0")
                await until(context, lambda all_: list(newest(all_)) == [GPU_0, GPU_1])
        messages = await until(context, bool)
        assert tasks_of(messages, one.process) == ["started", "loaded"]


async def test_a_call_that_the_driver_does_not_offer_is_done_without(
    tmp_path: Path, nats: EmbeddedServer
) -> None:
    """A driver without MPS lists and without utilisation is read all the same."""
    async with node(tmp_path, nats.url, idle_period_s=0.3) as (monitor, environment, context):
        for call in ("nvmlDeviceGetMPSComputeRunningProcesses", "nvmlDeviceGetSamples"):
            await book(environment, "fail", "0", call, NOT_SUPPORTED)
            async with program(environment) as one:
                await until(context, lambda all_: tasks_of(all_, one.process)[:1] == ["started"])
            await until(context, lambda all_: tasks_of(all_, one.process)[-1:] == ["exited"])
        assert not monitor.logged("a GPU cannot be read")


async def test_a_driver_that_is_loaded_again_is_found_and_ends_no_task(
    tmp_path: Path, nats: EmbeddedServer
) -> None:
    """While the driver is away the state has no GPU; afterwards tasks go on where they were."""
    async with node(tmp_path, nats.url) as (monitor, environment, context), program(environment) as one:
        await until(context, lambda all_: tasks_of(all_, one.process) == ["started", "loaded"])
        for gpu in ("0", "1"):
            await book(environment, "fail", gpu, "nvml", DRIVER_NOT_LOADED)
        await until(context, lambda all_: newest(all_) == {})
        assert monitor.logged("no GPU")
        for gpu in ("0", "1"):
            await book(environment, "heal", gpu)
        await until(context, lambda all_: list(newest(all_)) == [GPU_0, GPU_1])
        await one.kill()
        messages = await until(context, lambda all_: tasks_of(all_, one.process)[-1] == "exited")
        assert tasks_of(messages, one.process) == ["started", "loaded", "exited"]
