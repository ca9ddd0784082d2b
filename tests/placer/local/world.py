"""Emulated nodes with real brokers, and a local front end over them.

The tests feed reports in directly, as monitors have tests of their own.
"""

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

from placer.core.ledger import Ledger
from placer.decide import Decider
from placer.intake.reports import ReportView
from placer.local.frontend import LocalFrontEnd
from placer.local.node import LocalNode
from placer.local.runner import LocalSettings
from placer.metrics import Metrics
from plimsoll.broker.client import BrokerClient
from plimsoll.broker.wire import CONTROL_NAME
from plimsoll.events import NodeState
from plimsoll.ids import NodeName
from plimsoll.kube.models import Container, ObjectMeta, Pod, PodSpec, ResourceRequirements
from plimsoll.placer_api.http import PodRow
from tests.placer.core.worlds import gpu
from tests.servers.waiting import PATIENCE_S

REPOSITORY = Path(__file__).parents[3]
BUILD = REPOSITORY / "build"
BUSY = str(BUILD / "bin" / "busy")
GPU_GIB = 24


def pod(name: str, command: list[str], memory: str | None = "1Gi", **annotations: str) -> Pod:
    """A pod with one container; `annotations` are Plimsoll's, with `_` for `-`."""
    limits: dict[str, str | int | float] = {"plimsoll.dev/gpu-memory": memory} if memory else {}
    given = {f"plimsoll.dev/{key.replace('_', '-')}": value for key, value in annotations.items()}
    container = Container(name="main", command=command, resources=ResourceRequirements(limits=limits))
    return Pod(metadata=ObjectMeta(name=name, annotations=given), spec=PodSpec(containers=[container]))


def gpu_of(node: str) -> str:
    """The UUID of a node's only GPU."""
    return f"GPU-{sum(node.encode()):08d}-0000-0000-0000-000000000000"


def idle_report(node: str, seq: int = 1, idle_pct: float = 100.0, other_bytes: int = 0) -> NodeState:
    """A report of a node's one GPU."""
    one = gpu(gpu_of(node), idle_pct=idle_pct, usable_gib=GPU_GIB - 1, other_bytes=other_bytes)
    return NodeState(node=NodeName(node), epoch=1, seq=seq, time="2026-01-01T00:00:00Z", gpus=(one,))


@contextlib.asynccontextmanager
async def emulated_node(directory: Path, name: str) -> AsyncIterator[LocalNode]:
    """A node with one GPU and a broker."""
    config = directory / "node.conf"
    await asyncio.to_thread(directory.mkdir, parents=True)
    text = f"[gpu 0]\nmodel = NVIDIA L4\nmemory = {GPU_GIB}Gi\nuuid = {gpu_of(name)}\n"
    await asyncio.to_thread(config.write_text, text)
    root = directory / "broker"
    async with broker(root):
        environment = {"PLIMSOLL_EMULATOR": str(config), "LD_LIBRARY_PATH": str(BUILD / "emulator")}
        yield LocalNode(NodeName(name), root / CONTROL_NAME, environment, directory.parent / "output")


@contextlib.asynccontextmanager
async def broker(root: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    """A running broker."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "hook.broker",
        env={**os.environ, "PLIMSOLL_BROKER_ROOT": str(root), "PYTHONPATH": str(REPOSITORY)},
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with BrokerClient(root, timeout_s=PATIENCE_S):
            pass
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def placed(front_end: LocalFrontEnd, given: Pod) -> PodRow:
    """Submit a pod, and give its row as soon as it runs."""
    changed = asyncio.Event()
    stop_listening = front_end.pods.on_change(lambda _: changed.set())
    try:
        uid = front_end.enqueue(given).uid
        async with asyncio.timeout(PATIENCE_S):
            while True:
                row = front_end.pods.get(uid)
                assert row is not None
                if row.phase != "Pending":
                    assert row.node is not None, row
                    return row
                changed.clear()
                await changed.wait()
    finally:
        stop_listening()


@dataclass(slots=True)
class World:
    """Nodes and the placer's parts over them; `changes` has every row that a front end here announced."""

    nodes: tuple[LocalNode, ...]
    decider: Decider
    changes: list[PodRow] = field(default_factory=list)

    def tell(self, *states: NodeState) -> None:
        """Take reports in as the intake does."""
        for state in states:
            self.decider.reports.apply(state)

    @contextlib.asynccontextmanager
    async def front_end(self) -> AsyncIterator[LocalFrontEnd]:
        """A running front end. It is cancelled at the end and must end by that."""
        settings = LocalSettings(BUILD / "hook" / "libplimsoll.so", {"PATH": os.environ["PATH"]})
        front_end = LocalFrontEnd(self.nodes, self.decider, settings)
        front_end.pods.on_change(self.changes.append)
        task = asyncio.create_task(front_end.run())
        try:
            yield front_end
        finally:
            task.cancel()
            await asyncio.wait([task])
        assert task.cancelled(), task.exception()


@contextlib.asynccontextmanager
async def world(directory: Path, *names: str) -> AsyncIterator[World]:
    """A world of idle nodes with these names, each with a report."""
    async with contextlib.AsyncExitStack() as stack:
        nodes = [await stack.enter_async_context(emulated_node(directory / name, name)) for name in names]
        reports, ledger = ReportView(), Ledger()
        made = World(tuple(nodes), Decider(reports, ledger, Metrics()))
        made.tell(*(idle_report(name) for name in names))
        yield made
