"""The lives of real programs, as the monitor publishes them, over the emulated driver."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from monitor.processes import read_process
from plimsoll.broker.pages import COUNTS_DIR_VARIABLE, LIMITS_DIR_VARIABLE
from plimsoll.broker.wire import ContainerLines, Line, Register
from plimsoll.ids import GpuUuid
from plimsoll_cli.demo.servers import EmbeddedServer
from tests.monitor.emulated import GIB, GPU_0, GPU_1, MIB, program
from tests.monitor.harness import tasks_of, until
from tests.monitor.test_detection import UNTIMED, is_loaded_with, is_shown
from tests.monitor.test_emulator import newest, node, told_of
from tests.monitor.test_hooked import CONTAINER, LIBRARY, POD, brokering

PROGRAM = Path(__file__).with_name("program.py")


@pytest.mark.parametrize("is_hooked", [True, False], ids=["hooked", "unhooked"])
async def test_memory_in_steps_is_loaded_after_each(
    tmp_path: Path,
    nats: EmbeddedServer,
    is_hooked: bool,  # noqa: FBT001 - pytest passes it by name
) -> None:
    """A program that loads, rests and loads more is `loaded` at each rest, with the memory of that rest."""
    async with (
        brokering(tmp_path / "broker") as broker,
        node(tmp_path, nats.url, **(UNTIMED if is_hooked else {})) as (_, environment, context),
    ):
        hooked = await broker.hook(16 * GIB) if is_hooked else {}
        async with program({**environment, **hooked}) as one:
            for more_mib, held_mib in ((1024, 1024), (1024, 2048), (2048, 4096)):
                await one.do(f"alloc {more_mib}")
                await until(
                    context,
                    lambda all_, held=held_mib: is_loaded_with(all_, one, held),  # type: ignore[misc]
                )


async def test_a_program_that_shrinks_stays_loaded(tmp_path: Path, nats: EmbeddedServer) -> None:
    """Memory given back is in the state, the peak stays, and no further `loaded` follows."""
    async with node(tmp_path, nats.url) as (_, environment, context), program(environment) as one:
        await one.do("alloc 1024")
        await one.do("alloc 2048")
        before = await until(context, lambda all_: is_loaded_with(all_, one, 3072))
        await one.do("free")
        messages = await until(
            context, lambda all_: is_shown(all_, one, lambda task: task.used_bytes == (1024 + 300) * MIB)
        )
        assert is_shown(messages, one, lambda task: task.peak_bytes == (3072 + 300) * MIB)
        await one.kill()
        messages = await until(context, lambda all_: tasks_of(all_, one.process)[-1:] == ["exited"])
        assert tasks_of(messages, one.process) == [*tasks_of(before, one.process), "exited"]


async def test_processes_of_one_container_on_two_gpus_are_tasks_of_their_own(
    tmp_path: Path, nats: EmbeddedServer
) -> None:
    """Each process is a task on its GPU, all have the container, and each ends for itself."""
    async with (
        brokering(tmp_path / "broker") as broker,
        node(tmp_path, nats.url, **UNTIMED) as (_, environment, context),
    ):
        lines = tuple(Line(gpu=GpuUuid(gpu), line_bytes=8 * GIB) for gpu in (GPU_0, GPU_1))
        container = ContainerLines(name=CONTAINER, lines=lines)
        request = Register(pod=POD, namespace="default", name="train", containers=(container,))
        (directories,) = (await broker.client.register(request)).containers
        hooked = environment | {
            "LD_PRELOAD": str(LIBRARY),
            LIMITS_DIR_VARIABLE: directories.limits_dir,
            COUNTS_DIR_VARIABLE: directories.counts_dir,
        }
        async with program(hooked, 1) as two, program(hooked, 1) as three:
            async with program(hooked, 0) as one:
                messages = await until(
                    context,
                    lambda all_: all(
                        tasks_of(all_, each.process) == ["started", "loaded"] for each in (one, two, three)
                    ),
                )
                found = {each.process.pid: told_of(messages, each, "loaded") for each in (one, two, three)}
                assert [task.gpu for task in found.values()] == [GPU_0, GPU_1, GPU_1]
                assert {(task.pod, task.container) for task in found.values()} == {(POD, CONTAINER)}
            messages = await until(context, lambda all_: tasks_of(all_, one.process)[-1] == "exited")
            assert newest(messages)[GPU_0].tasks == ()
            assert {task.pid for task in newest(messages)[GPU_1].tasks} == {
                two.process.pid,
                three.process.pid,
            }


async def test_a_stopped_program_stays_and_goes_on(tmp_path: Path, nats: EmbeddedServer) -> None:
    """A program that is suspended keeps its memory and its task; after it goes on it is followed as before."""
    async with node(tmp_path, nats.url) as (monitor, environment, context), program(environment) as one:
        await until(context, lambda all_: tasks_of(all_, one.process) == ["started", "loaded"])
        os.kill(one.process.pid, signal.SIGSTOP)
        try:
            await monitor.kill()
            await monitor.start()
            await until(
                context,
                lambda all_: any(each.what == "node.state" and each.report.state.epoch == 2 for each in all_),
            )
            assert is_shown(await until(context, bool), one, lambda task: task.used_bytes == 300 * MIB)
        finally:
            os.kill(one.process.pid, signal.SIGCONT)
        await one.do("alloc 1024")
        messages = await until(
            context, lambda all_: tasks_of(all_, one.process) == ["started", "loaded", "loaded"]
        )
        assert told_of(messages, one, "loaded").used_bytes == (1024 + 300) * MIB


LAST_PID = Path("/proc/sys/kernel/ns_last_pid")
"""The kernel gives the next process the number after this one, if it is free. Root may write it."""


def begun_as(pid: int, environment: dict[str, str]) -> subprocess.Popen[str]:
    """A program with this pid, once it has its context. Other processes may take the number first, so it tries on."""
    for _ in range(500):
        LAST_PID.write_text(str(pid - 1))
        child = subprocess.Popen(
            [sys.executable, PROGRAM, "0"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={"PATH": os.environ["PATH"], **environment},
        )
        if child.pid == pid:
            assert child.stdout is not None
            assert child.stdout.readline() == "ok\n"
            return child
        child.kill()
        child.communicate()
    pytest.skip(f"another process of this machine has taken pid {pid}")


@pytest.mark.skipif(not os.access(LAST_PID, os.W_OK), reason="only root chooses pids")
async def test_a_pid_that_is_used_again_is_another_task(tmp_path: Path, nats: EmbeddedServer) -> None:
    """A program with the pid of one that was killed a moment ago begins its own life; the other's ends."""
    async with node(tmp_path, nats.url) as (_, environment, context), program(environment) as one:
        await until(context, lambda all_: tasks_of(all_, one.process) == ["started", "loaded"])
        await one.kill()
        child = await asyncio.to_thread(begun_as, one.process.pid, environment)
        try:
            other = read_process(child.pid)
            assert other is not None
            assert (other.pid, other == one.process) == (one.process.pid, False)
            await until(
                context,
                lambda all_: (
                    tasks_of(all_, other) == ["started", "loaded"]
                    and tasks_of(all_, one.process) == ["started", "loaded", "exited"]
                ),
            )
        finally:
            child.kill()
            await asyncio.to_thread(child.communicate)
        messages = await until(context, lambda all_: tasks_of(all_, other)[-1:] == ["exited"])
        assert tasks_of(messages, one.process) == ["started", "loaded", "exited"]


async def test_a_program_between_two_samples_is_seen_if_it_is_hooked(
    tmp_path: Path, nats: EmbeddedServer
) -> None:
    """A hooked program that is gone at once has a start and an end; an unhooked one leaves no event."""
    async with (
        brokering(tmp_path / "broker") as broker,
        node(tmp_path, nats.url, **UNTIMED) as (_, environment, context),
    ):
        await until(context, bool)
        async with program(environment) as unseen:
            pass
        async with program(environment | await broker.hook(GIB)) as seen:
            pass
        messages = await until(context, lambda all_: tasks_of(all_, seen.process)[-1:] == ["exited"])
        assert tasks_of(messages, seen.process)[0] == "started"
        assert tasks_of(messages, unseen.process) == []
