"""NVIDIA's Multi-Process Service over the emulated driver: a server, its clients, and the end of either."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path

from monitor.processes import read_process
from plimsoll.ids import ProcessKey
from plimsoll_cli.demo.servers import EmbeddedServer
from tests.monitor.emulated import GIB, GPU_0, GPU_1, MIB, program
from tests.monitor.harness import EMULATOR, tasks_of, until
from tests.monitor.test_detection import UNTIMED
from tests.monitor.test_emulator import newest, node, told_of
from tests.monitor.test_hooked import POD, brokering
from tests.servers.waiting import PATIENCE_S


class Server:
    """A running MPS server."""

    def __init__(self, child: asyncio.subprocess.Process, process: ProcessKey) -> None:
        self._child = child
        self.process = process

    async def kill(self) -> None:
        """End it by SIGKILL."""
        with contextlib.suppress(ProcessLookupError):
            self._child.kill()
        await self._child.wait()


def clients_of(environment: dict[str, str], pipe: Path) -> dict[str, str]:
    """The environment of a server's clients; makes the server's directory."""
    pipe.mkdir(exist_ok=True)
    return environment | {"CUDA_MPS_PIPE_DIRECTORY": str(pipe)}


@contextlib.asynccontextmanager
async def serving(environment: dict[str, str], pipe: Path) -> AsyncIterator[tuple[Server, dict[str, str]]]:
    """An MPS server, and the environment of its clients."""
    clients = clients_of(environment, pipe)
    child = await asyncio.create_subprocess_exec(
        str(EMULATOR / "nvidia-cuda-mps-server"),
        stdout=asyncio.subprocess.PIPE,
        env={"PATH": os.environ["PATH"], **clients},
    )
    process = read_process(child.pid)
    assert process is not None
    server = Server(child, process)
    assert child.stdout is not None
    try:
        async with asyncio.timeout(PATIENCE_S):
            assert await child.stdout.readline() == b"serving\n"
        yield server, clients
    finally:
        await server.kill()


async def test_the_server_and_its_clients_are_tasks_of_their_own(
    tmp_path: Path, nats: EmbeddedServer
) -> None:
    """Each has its own bytes and its own life; a process outside of the service is followed as before."""
    async with (
        node(tmp_path, nats.url) as (_, environment, context),
        serving(environment, tmp_path / "pipe") as (server, clients),
        program(clients) as one,
        program(clients, 1) as two,
        program(environment) as other,
    ):
        for each, mib in ((one, 1024), (two, 512), (other, 256)):
            await each.do(f"alloc {mib}")
        await until(
            context,
            lambda all_: (
                {
                    uuid: sorted((task.pid, task.used_bytes // MIB) for task in gpu.tasks)
                    for uuid, gpu in newest(all_).items()
                }
                == {
                    GPU_0: sorted(
                        [(server.process.pid, 28), (one.process.pid, 1324), (other.process.pid, 556)]
                    ),
                    GPU_1: sorted([(server.process.pid, 28), (two.process.pid, 812)]),
                }
            ),
        )
        messages = await until(context, lambda all_: tasks_of(all_, one.process)[-1:] == ["loaded"])
        assert told_of(messages, one, "loaded").gpu == GPU_0
        await one.kill()
        messages = await until(context, lambda all_: tasks_of(all_, one.process)[-1:] == ["exited"])
        assert "exited" not in tasks_of(messages, server.process)
        assert "exited" not in tasks_of(messages, two.process)


async def test_the_end_of_the_server_ends_its_clients_tasks(tmp_path: Path, nats: EmbeddedServer) -> None:
    """The clients' processes live on, but hold nothing on the GPU any more; others lose nothing."""
    async with (
        node(tmp_path, nats.url) as (_, environment, context),
        serving(environment, tmp_path / "pipe") as (server, clients),
        program(clients) as client,
        program(environment) as other,
    ):
        for each in (client, other):
            await until(context, lambda all_, each=each: tasks_of(all_, each.process)[-1:] == ["loaded"])  # type: ignore[misc]
        await server.kill()
        messages = await until(
            context,
            lambda all_: all(tasks_of(all_, each.process)[-1:] == ["exited"] for each in (client, server)),
        )
        assert read_process(client.process.pid) == client.process
        messages = await until(
            context, lambda all_: [task.pid for task in newest(all_)[GPU_0].tasks] == [other.process.pid]
        )
        assert newest(messages)[GPU_0].used_bytes == 300 * MIB
        assert "exited" not in tasks_of(messages, other.process)


async def test_a_client_of_the_next_server_is_a_task_again(tmp_path: Path, nats: EmbeddedServer) -> None:
    """A server that is started anew serves new clients under the same directory."""
    async with node(tmp_path, nats.url) as (_, environment, context):
        for _ in range(2):
            async with (
                serving(environment, tmp_path / "pipe") as (server, clients),
                program(clients) as client,
            ):
                await until(context, lambda all_: tasks_of(all_, client.process)[-1:] == ["loaded"])
            await until(
                context,
                lambda all_: all(
                    tasks_of(all_, each.process)[-1:] == ["exited"] for each in (client, server)
                ),
            )


async def test_a_client_is_held_to_its_line(tmp_path: Path, nats: EmbeddedServer) -> None:
    """The library counts in the client as in any program, and the task has its pod; the server has none."""
    async with (
        brokering(tmp_path / "broker") as broker,
        node(tmp_path, nats.url, **UNTIMED) as (_, environment, context),
        serving(environment, tmp_path / "pipe") as (server, clients),
        program(clients | await broker.hook(2 * GIB)) as client,
    ):
        await client.do("alloc 1024")
        await client.do("refused 1536")
        messages = await until(context, lambda all_: tasks_of(all_, client.process)[-1:] == ["loaded"])
        assert told_of(messages, client, "loaded").pod == POD
        await until(
            context,
            lambda all_: (
                {(task.pid, task.pod) for task in newest(all_)[GPU_0].tasks}
                == {(client.process.pid, POD), (server.process.pid, None)}
            ),
        )
