"""Two ways to run tasks on one emulated card: as plain processes, and as pods that declare their memory."""

import asyncio
import contextlib
import json
import os
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from bench.kang.card.connections import PATIENCE_S, Connections, listening
from bench.kang.card.paper import ALONE_MIB
from bench.kang.scenario import NODE_1, NODES
from plimsoll.native import EMULATOR
from plimsoll.placer_api.client import PlacerClient
from plimsoll.placer_api.http import PodRow
from plimsoll.quantity import MIB
from plimsoll_cli.demo.cluster import LocalCluster, require_built

_LOOK_S: Final = 0.05
"""The time between two polls of the placer, which pushes nothing. No figure depends on it."""
_NODE: Final = next(node for node in NODES if node.name == NODE_1)


class Way(Protocol):
    """Tasks on a card."""

    connections: Connections

    async def start(self, count: int) -> None:
        """Start this many tasks, and wait until all that can run have connected."""

    async def ended(self, number: int) -> None:
        """Wait until a task that was asked to exit has ended, and the task that follows it has connected."""

    async def used_mib(self) -> float:
        """The memory in use on the card, as its driver has it."""


@dataclass(slots=True)
class Plain:
    """Every task is a process without the library, and all start at once."""

    connections: Connections
    environment: dict[str, str]
    processes: dict[int, asyncio.subprocess.Process] = field(default_factory=dict)

    async def start(self, count: int) -> None:
        """Start the processes."""
        for number in range(count):
            self.processes[number] = await asyncio.create_subprocess_exec(
                *self.connections.command(number), env=os.environ | self.environment
            )
        await self.connections.until(count)

    async def ended(self, number: int) -> None:
        """Wait for the process. No task follows it."""
        async with asyncio.timeout(PATIENCE_S):
            await self.processes[number].wait()

    async def used_mib(self) -> float:
        """The memory in use, from the emulator's book."""
        return await _used_mib(self.environment)


@contextlib.asynccontextmanager
async def plain() -> AsyncIterator[Plain]:
    """A card of its own for plain processes, for the length of a block."""
    await asyncio.to_thread(require_built)
    with tempfile.TemporaryDirectory(prefix="plimsoll-kang-card-") as name:
        folder, gpu = Path(name), _NODE.gpus[0]
        lines = (
            "[gpu 0]",
            f"memory = {gpu.memory}",
            *(f"{key} = {value}" for key, value in gpu.options.items()),
        )
        await asyncio.to_thread((folder / "node.conf").write_text, "\n".join([*lines, ""]))
        environment = {"PLIMSOLL_EMULATOR": str(folder / "node.conf"), "LD_LIBRARY_PATH": str(EMULATOR)}
        async with listening(folder) as connections:
            way = Plain(connections, environment)
            try:
                yield way
            finally:
                for process in way.processes.values():
                    if process.returncode is None:
                        process.kill()
                        await process.wait()


@dataclass(slots=True)
class Declared:
    """Every task is a pod that declares the memory of Table III, under a whole Plimsoll."""

    connections: Connections
    environment: dict[str, str]
    placer: PlacerClient
    count: int = 0

    async def start(self, count: int) -> None:
        """Hand in all pods at once; the placer starts those that fit, and says of the others why they wait."""
        self.count = count
        await self.placer.submit("\n---\n".join(self._manifest(number) for number in range(count)))
        async with asyncio.timeout(PATIENCE_S):
            while not all(pod.node or pod.message for pod in await self._pods()):  # noqa: ASYNC110 - the API pushes nothing
                await asyncio.sleep(_LOOK_S)
        await self.connections.until(sum(pod.node is not None for pod in await self._pods()))

    async def ended(self, number: int) -> None:
        """Wait for the pod's end, and for the next pod if there is one that waits."""
        following = min(self.count, len(self.connections.numbers) + 1)
        async with asyncio.timeout(PATIENCE_S):
            while (await self._pod(number)).exit_code is None:  # noqa: ASYNC110 - as above
                await asyncio.sleep(_LOOK_S)
        await self.connections.until(following)

    async def used_mib(self) -> float:
        """The memory in use, from the emulator's book."""
        return await _used_mib(self.environment)

    async def _pods(self) -> tuple[PodRow, ...]:
        return (await self.placer.state()).pods

    async def _pod(self, number: int) -> PodRow:
        return next(pod for pod in await self._pods() if pod.name == f"task-{number}")

    def _manifest(self, number: int) -> str:
        container = {
            "name": "main",
            "command": self.connections.command(number),
            "resources": {"limits": {"plimsoll.dev/gpu-memory": f"{ALONE_MIB}Mi"}},
        }
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"task-{number}"},
            "spec": {"schedulerName": "plimsoll", "restartPolicy": "Never", "containers": [container]},
        }
        return json.dumps(pod)


@contextlib.asynccontextmanager
async def declared() -> AsyncIterator[Declared]:
    """A card under a whole Plimsoll, for the length of a block."""
    with tempfile.TemporaryDirectory(prefix="plimsoll-kang-card-") as name:
        folder = Path(name)
        async with LocalCluster(folder, (_NODE,)) as cluster, listening(folder) as connections:
            socket = folder / "placer.sock"
            await cluster.placer(
                control_socket=str(socket),
                local_nodes=str(await cluster.write_local_nodes()),
            )
            async with PlacerClient(socket) as placer:
                yield Declared(connections, cluster.node_environment(NODE_1), placer)


async def _used_mib(environment: dict[str, str]) -> float:
    book = await asyncio.create_subprocess_exec(
        EMULATOR / "book", env=os.environ | environment, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await book.communicate()
    return float(json.loads(output)["gpus"][0]["used_bytes"]) / MIB
