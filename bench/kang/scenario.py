"""Kang et al. 2024, Tables IV and V, on emulated cards: free slots against Plimsoll.

Two nodes with one 24 GB card each and 30 slots. Node 1 holds 23 tasks that peak at 1205 MiB, node 2 holds 25 that
peak at 821 MiB. Two more pods of the first kind arrive. By free slots (7 against 5) both go to node 1, and tasks fail
for want of memory; by Plimsoll they go to node 2, and none fails.

The model: 23 × 1205 MiB is more than the card holds, yet the paper's Table I has 23 such tasks
complete and 24 fail. So not all hold their peak at once, and a task's constant part lies between 1/24 and
1/23 of the card (24114 MiB usable), 1005 to 1048 MiB. Here a task holds 985 MiB throughout a run (its context's 300
included) and 1205 MiB for the last 10 % of it, evenly out of step with the others: 23 leave room for six peaks at
once where at most three are held, and 25 cannot fit in any order of steps. The 821 MiB tasks are the same in
proportion. A run takes 2 s where the paper's takes 8.6 s. A task whose allocation is refused has failed, and runs
again, as the paper's tasks are "arranged to run repeatedly". Pods with at least one failed run are counted.

The resident tasks are placed by hand, as in the paper, and run without the library: Plimsoll sees them through NVML
alone. The two new pods declare no memory (best-effort), as the paper's do.

Source: J. Kang, H. Lee, D. Lee, IJASEIT 2024, §III.A, Tables I, III, IV and V.
"""

import asyncio
import json
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from plimsoll.ids import NodeName
from plimsoll.placer_api.client import PlacerClient
from plimsoll.placer_api.http import PodRow
from plimsoll_cli.demo.cluster import EmulatedGpu, EmulatedNode, LocalCluster

SLOTS: Final = 30
RUN_S: Final = 2.0
SETTLED_RUNS: Final = 3
"""Each resident task completes this many runs before the new pods come."""
WATCH_S: Final = 16.0
"""Failures are counted during eight runs afterwards."""
LOOK_S: Final = 0.1
"""The time between two polls of a state that has no events. No figure depends on it."""

DECIDE_S: Final = 60.0
CONTEXT_MIB: Final = 300

NODE_1, NODE_2 = NodeName("node-1"), NodeName("node-2")
TASK: Final = Path(__file__).with_name("task.py")


@dataclass(frozen=True, slots=True)
class TaskKind:
    """A row of the paper's Table III: memory held throughout a run and at its peak, context included."""

    kept_mib: int
    peak_mib: int

    def command(self, phase_s: float = 0.0, seconds: float = 3600.0) -> list[str]:
        """The program that runs such a task."""
        options = {
            "kept-mib": self.kept_mib - CONTEXT_MIB,
            "peak-mib": self.peak_mib - self.kept_mib,
            "run-s": RUN_S,
            "phase-s": round(phase_s, 3),
            "seconds": seconds,
        }
        return [sys.executable, str(TASK), *(f"--{name}={value}" for name, value in options.items())]


LARGE: Final = TaskKind(kept_mib=985, peak_mib=1205)
SMALL: Final = TaskKind(kept_mib=671, peak_mib=821)
RESIDENT: Final = {NODE_1: (LARGE, 23), NODE_2: (SMALL, 25)}
NODES: Final = tuple(
    EmulatedNode(
        name,
        (
            EmulatedGpu(
                "NVIDIA GeForce RTX 4090", "24564Mi", {"reserved": "450Mi", "context": f"{CONTEXT_MIB}Mi"}
            ),
        ),
        {"idle_period_s": "2", "reconcile_s": "1"},
    )
    for name in RESIDENT
)


@dataclass(slots=True)
class RunningTask:
    """One task and the results of its runs."""

    node: NodeName
    process: asyncio.subprocess.Process
    completed: int = 0
    failures: list[str] = field(default_factory=list)

    @property
    def failed(self) -> bool:
        """Whether any run of the task failed."""
        return bool(self.failures)


@dataclass(frozen=True, slots=True)
class PlacingResult:
    """The result of one way of placing.

    Attributes:
        placed: new pods by node.
        failed: pods with a failed run after the new ones came, by node.
        unfit: resident tasks that had failed before the new pods came; the scene is valid only if there is none.
    """

    placed: Counter[NodeName]
    failed: Counter[NodeName]
    unfit: int


class Placing(Protocol):
    """A way of placing the two new pods."""

    async def place(self, cluster: LocalCluster, tasks: list[RunningTask]) -> Counter[NodeName]:
        """Place the pods and start them; returns the number of pods on each node."""

    async def failed(self) -> Counter[NodeName]:
        """New pods with a failed run that are not among the scene's tasks, by node."""


async def scenario(placing: Placing) -> PlacingResult:
    """Set the scene, place two pods, and count the failures."""
    with tempfile.TemporaryDirectory(prefix="plimsoll-kang-") as folder:
        async with LocalCluster(Path(folder), NODES) as cluster, asyncio.TaskGroup() as readers:
            tasks: list[RunningTask] = []
            try:
                for node, (kind, count) in RESIDENT.items():
                    commands = [kind.command(phase_s=RUN_S * index / count) for index in range(count)]
                    tasks += [await start_task(cluster, node, command, readers) for command in commands]
                await until_settled(tasks)
                unfit = [task for task in tasks if task.failed]
                if unfit:
                    print(
                        f"the scene is not valid: {[(task.node, task.failures) for task in unfit]}",
                        file=sys.stderr,
                    )
                resident = len(tasks)
                placed = await placing.place(cluster, tasks)
                for task in tasks[resident:]:
                    readers.create_task(follow(task), name="new task")
                await asyncio.sleep(WATCH_S)
                failed = Counter(task.node for task in tasks if task.failed) + await placing.failed()
                return PlacingResult(placed, failed, len(unfit))
            finally:
                for task in tasks:
                    if task.process.returncode is None:
                        task.process.kill()


async def until_settled(tasks: list[RunningTask]) -> None:
    """Wait until every task has had some runs, completed or failed."""
    async with asyncio.timeout(DECIDE_S):
        while any(task.completed + len(task.failures) < SETTLED_RUNS for task in tasks):  # noqa: ASYNC110 - counts only
            await asyncio.sleep(LOOK_S)


async def start_task(
    cluster: LocalCluster, node: NodeName, command: Sequence[str], readers: asyncio.TaskGroup | None = None
) -> RunningTask:
    """Start a task on a node, without the library."""
    process = await asyncio.create_subprocess_exec(
        *command, env={**os.environ, **cluster.node_environment(node)}, stdout=asyncio.subprocess.PIPE
    )
    task = RunningTask(node, process)
    if readers is not None:
        readers.create_task(follow(task), name=f"{node}/{process.pid}")
    return task


async def follow(task: RunningTask) -> None:
    """Count a task's runs until it ends."""
    assert task.process.stdout is not None
    async for line in task.process.stdout:
        result = json.loads(line)
        if result["run"] == "failed":
            task.failures.append(f"{result['call']}: CUresult {result['code']}")
        else:
            task.completed += 1
    await task.process.wait()


class BySlots:
    """The placement of Kubernetes' own scheduler: the node with the most free slots."""

    async def place(self, cluster: LocalCluster, tasks: list[RunningTask]) -> Counter[NodeName]:
        """Place two tasks, each counting the other."""
        placed: Counter[NodeName] = Counter()
        for _ in range(2):
            taken = Counter(task.node for task in tasks)
            node = max(RESIDENT, key=lambda name: SLOTS - taken[name])
            tasks.append(await start_task(cluster, node, LARGE.command()))
            placed[node] += 1
        return placed

    async def failed(self) -> Counter[NodeName]:
        """None, as its new pods are tasks of the scene."""
        return Counter()


class ByPlimsoll:
    """Plimsoll's placement, from real manifests and under its library."""

    def __init__(self) -> None:
        self._rows: Callable[[], Awaitable[list[PodRow]]]

    async def place(self, cluster: LocalCluster, tasks: list[RunningTask]) -> Counter[NodeName]:  # noqa: ARG002 - one interface
        """Start a placer, hand in two pods at once, and wait until it has decided."""
        socket = cluster.directory / "placer.sock"
        await cluster.placer(
            control_socket=str(socket),
            local_nodes=str(await cluster.write_local_nodes()),
        )

        async def rows() -> list[PodRow]:
            async with PlacerClient(socket) as placer:
                return list((await placer.state()).pods)

        self._rows = rows
        async with PlacerClient(socket) as placer:
            await placer.submit("\n---\n".join(manifest(name) for name in ("new-1", "new-2")))
        async with asyncio.timeout(DECIDE_S):
            while not all(pod.node for pod in await rows()):  # noqa: ASYNC110 - the API pushes nothing
                await asyncio.sleep(LOOK_S)
        return Counter(pod.node for pod in await rows() if pod.node)

    async def failed(self) -> Counter[NodeName]:
        """The placer's two pods after their end. A task with a failed run ends with an exit code of its own."""
        async with asyncio.timeout(DECIDE_S):
            while not all(pod.exit_code is not None for pod in await self._rows()):  # noqa: ASYNC110 - as above
                await asyncio.sleep(LOOK_S)
        return Counter(pod.node for pod in await self._rows() if pod.exit_code and pod.node)


def manifest(name: str) -> str:
    """The manifest of a new pod, which declares no memory, like the paper's."""
    container = {
        "name": "main",
        "command": LARGE.command(seconds=WATCH_S - 2 * RUN_S),
        "resources": {"limits": {"plimsoll.dev/gpu": 1}},
    }
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": {"plimsoll.dev/best-effort": "true"}},
        "spec": {"schedulerName": "plimsoll", "restartPolicy": "Never", "containers": [container]},
    }
    return json.dumps(pod)
