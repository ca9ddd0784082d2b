"""A whole Plimsoll on this machine: embedded NATS and Valkey, and per node a broker and a monitor, as processes.

For the demo, the benchmarks and the end-to-end tests. Nodes are emulated: each is one small file for the emulator,
which replaces the driver's libraries, so broker, monitor, placer and library run unchanged. What always holds: all
processes listen on loopback or on UNIX sockets in the cluster's folder, and die with this process.
"""

import asyncio
import contextlib
import hashlib
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import msgspec

from plimsoll.broker.wire import CONTROL_NAME
from plimsoll.ids import NodeName
from plimsoll.native import BUILD, EMULATOR, FILES, PROGRAMS, REMEDY
from plimsoll.part.errors import PlimsollError
from plimsoll.part.program import program_of
from plimsoll_cli.demo.servers import EmbeddedServer, ServerKind, nats_server, running, valkey_server


class NotBuiltError(PlimsollError):
    """The C libraries are missing."""


@dataclass(frozen=True, slots=True)
class EmulatedGpu:
    """A GPU of an emulated node; `memory` is a quantity (`24Gi`), `options` are the node file's other keys."""

    model: str
    memory: str
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class EmulatedNode:
    """A node to emulate, with the settings of its monitor and broker that differ from the default (in lower case)."""

    name: NodeName
    gpus: tuple[EmulatedGpu, ...]
    monitor: Mapping[str, str] = field(default_factory=dict)
    broker: Mapping[str, str] = field(default_factory=dict)


class LocalCluster:
    """Servers and nodes in one folder. Entering the context starts all; leaving it ends all.

    Attributes:
        nats, valkey: the embedded servers, which may be killed and restarted.
        brokers, monitors: one process per node, by node name; they may be killed and restarted as well.
    """

    def __init__(
        self,
        directory: Path,
        nodes: tuple[EmulatedNode, ...],
        on_step: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Prepare a cluster; `on_step` gets the name of each part before it is started."""
        self._on_step = on_step
        self.directory = directory.absolute()
        self.nodes = nodes
        self.nats: EmbeddedServer
        self.valkey: EmbeddedServer
        self.brokers: dict[NodeName, EmbeddedServer] = {}
        self.monitors: dict[NodeName, EmbeddedServer] = {}
        self._exit = contextlib.AsyncExitStack()

    async def __aenter__(self) -> Self:
        """Start the servers, then each node's broker and monitor; returns once all are ready.

        Raises:
            NotBuiltError: the libraries are missing.
            EmbeddedServerError: a process did not start; the message has the end of its log.
        """
        await asyncio.to_thread(require_built)
        try:
            await self._start()
        except BaseException:
            await self._exit.aclose()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End all processes, the last started first."""
        await self._exit.aclose()

    async def placer(self, **settings: str) -> EmbeddedServer:
        """Start a placer on this cluster's NATS and Valkey; `settings` are in lower case, without prefix."""
        environment = {
            "NATS_URL": self.nats.url,
            "REDIS_URL": self.valkey.url.replace("valkey://", "redis://"),
            **{name.upper(): value for name, value in settings.items()},
        }
        return await self._part("placer", "placer", "placer", environment)

    async def page_url(self, placer: EmbeddedServer) -> str:
        """The URL of a placer's HTTP port, where its page is; the placer was started with `http_port`."""
        log = await asyncio.to_thread((placer.directory / "server.log").read_bytes)
        opened = [line for line in log.splitlines() if b'"http ready"' in line]
        return f"http://127.0.0.1:{msgspec.json.decode(opened[-1])['port']}/"

    def node_environment(self, node: NodeName) -> dict[str, str]:
        """The environment variables that put a process on an emulated node."""
        return {"PLIMSOLL_EMULATOR": str(self._folder(node) / "node.conf"), "LD_LIBRARY_PATH": str(EMULATOR)}

    def broker_root(self, node: NodeName) -> Path:
        """The root directory of the node's broker."""
        return self._folder(node) / "broker"

    async def write_local_nodes(self) -> Path:
        """Write the file that describes these nodes to a placer's local front end."""
        path_variable = f"{PROGRAMS}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
        described = [
            {
                "name": node.name,
                "broker_socket": str(self.broker_root(node.name) / CONTROL_NAME),
                "environment": {**self.node_environment(node.name), "PATH": path_variable},
                "output": str(self.directory / "output"),
            }
            for node in self.nodes
        ]
        path = self.directory / "nodes.json"
        await asyncio.to_thread(path.write_bytes, msgspec.json.encode(described))
        return path

    async def start_node(self, node: EmulatedNode) -> None:
        """Start one node's broker, then its monitor."""
        folder = self._folder(node.name)
        await asyncio.to_thread(_write_node_file, folder, node)
        root = {"BROKER_ROOT": str(self.broker_root(node.name))}
        broker = root | {f"BROKER_{name.upper()}": value for name, value in node.broker.items()}
        self.brokers[node.name] = await self._part(f"{node.name}/broker", "hook.broker", "broker", broker)
        settings = {
            "NODE": node.name,
            "NATS_URL": self.nats.url,
            "STATE_DIR": str(folder / "monitor-state"),
            **root,
            **{name.upper(): value for name, value in node.monitor.items()},
        }
        self.monitors[node.name] = await self._part(
            f"{node.name}/monitor", "monitor", "monitor", settings, self.node_environment(node.name)
        )

    async def _start(self) -> None:
        self._on_step("NATS")
        self.nats = await self._exit.enter_async_context(nats_server(self.directory / "nats"))
        self._on_step("Valkey")
        self.valkey = await self._exit.enter_async_context(valkey_server(self.directory / "valkey"))
        # The parts start in turn: a dozen interpreters started at once on two cores would not be ready any sooner.
        for node in self.nodes:
            await self.start_node(node)

    async def _part(
        self,
        folder: str,
        module: str,
        name: str,
        settings: Mapping[str, str],
        extra: Mapping[str, str] | None = None,
    ) -> EmbeddedServer:
        self._on_step(folder)
        environment = {f"PLIMSOLL_{key}": value for key, value in settings.items()} | dict(extra or {})
        kind = ServerKind(
            name=name,
            scheme="http",
            ready=READY[name],
            program=lambda: Path(sys.executable),
            arguments=lambda *_: program_of(module)[1:],
            environment=environment,
        )
        return await self._exit.enter_async_context(running(kind, self.directory / folder))

    def _folder(self, node: NodeName) -> Path:
        return self.directory / node


READY: Final = {"broker": "broker_ready", "monitor": "monitoring", "placer": "placer ready"}
"""A part of the log event of each part once it serves."""


def require_built() -> None:
    """Check that the files that C makes are there.

    Raises:
        NotBuiltError: a file is missing; the error names it.
    """
    for path in (BUILD / file for file in FILES):
        if not path.exists():
            raise NotBuiltError(f"{path} is missing; {REMEDY}")


def _write_node_file(folder: Path, node: EmulatedNode) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    lines = ["driver = 570.124.06", "cuda = 12.8"]
    for index, gpu in enumerate(node.gpus):
        lines += [f"[gpu {index}]", f"model = {gpu.model}", f"memory = {gpu.memory}"]
        lines += [f"{key} = {value}" for key, value in gpu.options.items()]
        lines.append(f"uuid = {gpu_uuid(node.name, index)}")
    (folder / "node.conf").write_text("\n".join(lines) + "\n")


def gpu_uuid(node: NodeName, index: int) -> str:
    """The UUID of an emulated node's GPU: a function of node and index, so that tests and tables are repeatable."""
    digest = hashlib.sha256(f"{node}/{index}".encode()).hexdigest()
    return f"GPU-{digest[:8]}-{digest[8:12]}-{digest[12:16]}-{digest[16:20]}-{digest[20:32]}"
