"""An emulated node with GPUs, its broker and monitor, and programs on it that obey commands."""

import asyncio
import contextlib
import json
import os
import sys
import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from bench.monitor.subscriber import Subscriber, subscribed
from plimsoll.broker.client import BrokerClient
from plimsoll.broker.pages import COUNTS_DIR_VARIABLE, LIMITS_DIR_VARIABLE
from plimsoll.broker.wire import CONTROL_NAME, ContainerLines, Line, Register
from plimsoll.ids import ContainerName, GpuUuid, NodeName, PodUid, ProcessKey
from plimsoll.native import HOOK_LIBRARY, PROGRAMS
from plimsoll.quantity import GIB
from plimsoll_cli.demo.cluster import EmulatedGpu, EmulatedNode, LocalCluster, gpu_uuid
from plimsoll_cli.demo.servers import EmbeddedServer

Json = dict[str, Any]

NODE: Final = NodeName("alpha")
GPUS: Final = 8
PATIENCE_S: Final = 60.0
"""The longest wait for an event; then it counts as lost."""

PROGRAM: Final = Path(__file__).with_name("program.py")


class Program:
    """A program that obeys commands; see `program.py`.

    Attributes:
        reports: the lines that the program and its children printed, in order.
    """

    def __init__(self, child: asyncio.subprocess.Process, gpu: int, *, is_hooked: bool) -> None:
        self.child = child
        self.gpu = gpu
        self.is_hooked = is_hooked
        self.reports: list[Json] = []
        self._news = asyncio.Event()
        self._reading = asyncio.create_task(self._read())

    @property
    def pid(self) -> int:
        """The process id of the program, its children aside."""
        return self.child.pid

    def send(self, *lines: str) -> None:
        """Send commands, and do not wait."""
        assert self.child.stdin is not None
        with contextlib.suppress(ConnectionError):
            self.child.stdin.write("".join(f"{line}\n" for line in lines).encode())

    def close(self) -> None:
        """End the commands: the program ends once it has carried them out."""
        assert self.child.stdin is not None
        self.child.stdin.close()

    async def reported(self, what: str, count: int = 1) -> Json:
        """Wait until the program itself has reported a command this many times; returns that report.

        Raises:
            TimeoutError: it did not in time.
        """
        async with asyncio.timeout(PATIENCE_S):
            while len(found := self._of(what)) < count:
                self._news.clear()
                await self._news.wait()
        return found[count - 1]

    async def contexts(self, count: int) -> set[int]:
        """Wait until this many processes of the program have made a context; returns their pids.

        Raises:
            TimeoutError: they did not in time.
        """
        async with asyncio.timeout(PATIENCE_S):
            while len(pids := {each["pid"] for each in self.reports if each["what"] == "context"}) < count:
                self._news.clear()
                await self._news.wait()
        return pids

    async def process(self) -> ProcessKey:
        """The program as one identifier, once it has a context."""
        first = await self.reported("context")
        return ProcessKey(first["pid"], first["start_ticks"])

    async def ended(self) -> None:
        """Wait until the program and all of its children are gone."""
        await self.child.wait()
        await self._reading

    def kill(self) -> None:
        """End the program by SIGKILL; its children live on."""
        with contextlib.suppress(ProcessLookupError):
            self.child.kill()

    def _of(self, what: str) -> list[Json]:
        return [each for each in self.reports if each["what"] == what and each["pid"] == self.pid]

    async def _read(self) -> None:
        assert self.child.stdout is not None
        async for line in self.child.stdout:
            with contextlib.suppress(ValueError):  # a line cut off by a kill
                self.reports.append(json.loads(line))
            self._news.set()


@dataclass(slots=True)
class MonitoredNode:
    """A running node.

    Attributes:
        cluster: the node's parts and servers.
        subscriber: sees every event.
        containers: environments of programs in registered containers, by GPU.
    """

    cluster: LocalCluster
    subscriber: Subscriber
    containers: Mapping[int, Mapping[str, str]]
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def monitor_pid(self) -> int:
        """The monitor's process id."""
        return self.cluster.monitors[NODE].pid

    @property
    def broker_pid(self) -> int:
        """The broker's process id."""
        return self.cluster.brokers[NODE].pid

    def environment(self, gpu: int, *, is_hooked: bool) -> dict[str, str]:
        """The environment of a program on this node."""
        hook = self.containers[gpu] if is_hooked else {}
        plain = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
        return {**plain, **self.cluster.node_environment(NODE), **hook}

    async def start(self, gpu: int, *, is_hooked: bool) -> Program:
        """Start a program without a context."""
        child = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-S", str(PROGRAM)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=self.environment(gpu, is_hooked=is_hooked),
        )
        return Program(child, gpu, is_hooked=is_hooked)

    async def busy(self, gpu: int, *options: str) -> asyncio.subprocess.Process:
        """Start an ordinary program with the hook, `build/bin/busy`, which costs a few milliseconds of CPU."""
        return await asyncio.create_subprocess_exec(
            *(str(PROGRAMS / "busy"), "--device", str(gpu), *options),
            stdout=asyncio.subprocess.DEVNULL,
            env=self.environment(gpu, is_hooked=True),
        )

    async def until(self, look: Callable[[], bool], patience_s: float = PATIENCE_S) -> bool:
        """Wait until `look` is true after some task event; False if it did not become true in time."""
        try:
            async with asyncio.timeout(patience_s):
                while not look():
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            return False
        return True

    def noticed(self) -> None:
        """Wake those that wait: a task event came."""
        self._news.set()


@contextlib.asynccontextmanager
async def monitored_node(folder: Path, gpus: int = GPUS, **monitor: str) -> AsyncIterator[MonitoredNode]:
    """A node with a registered container on each GPU, until the context ends.

    Args:
        folder: for all of its files.
        gpus: how many it has, of 80 GiB each.
        monitor: settings of the monitor that differ from the default, in lower case.
    """
    node = EmulatedNode(NODE, tuple(EmulatedGpu("NVIDIA H100", "80Gi") for _ in range(gpus)), monitor)
    async with (
        LocalCluster(folder, (node,)) as cluster,
        BrokerClient(cluster.broker_root(NODE)) as broker,
        subscribed(cluster.nats.url) as subscriber,
    ):
        containers = {gpu: await _register(broker, gpu) for gpu in range(gpus)}
        here = MonitoredNode(cluster, subscriber, containers)
        subscriber.noticed.append(here.noticed)
        yield here


async def start_placer(cluster: LocalCluster) -> EmbeddedServer:
    """Start a placer that lists every node that reports.

    It must have a front end to run at all. The local one takes an unknown pod off its nodes' brokers, and the
    benchmarks register pods by themselves; so its one node is elsewhere.
    """
    path = cluster.directory / "nodes.json"
    node = {"name": "elsewhere", "broker_socket": str(cluster.directory / "elsewhere" / CONTROL_NAME)}
    await asyncio.to_thread(path.write_text, json.dumps([node]))
    return await cluster.placer(local_nodes=str(path))


async def _register(broker: BrokerClient, gpu: int) -> dict[str, str]:
    """Register a container on one GPU; returns the environment of its programs."""
    line = Line(gpu=GpuUuid(gpu_uuid(NODE, gpu)), line_bytes=78 * GIB)
    lines = ContainerLines(name=ContainerName("main"), lines=(line,))
    pod = PodUid(str(uuid.uuid5(uuid.NAMESPACE_OID, f"{NODE}/{gpu}")))
    request = Register(pod=pod, namespace="bench", name=f"gpu-{gpu}", containers=(lines,))
    (directories,) = (await broker.register(request)).containers
    return {
        "LD_PRELOAD": str(HOOK_LIBRARY),
        LIMITS_DIR_VARIABLE: directories.limits_dir,
        COUNTS_DIR_VARIABLE: directories.counts_dir,
    }
