"""`plimsoll demo`: a dozen pods on three emulated nodes, shown live, checked at the end.

The parts are the real ones; only the GPUs are emulated. The checks read the placer, the event stream and the pods'
own exit codes, and the exit code is 0 only if all of them hold.
"""

import asyncio
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

import nats
import yaml
from rich.console import Console
from rich.live import Live

from plimsoll.bus.subjects import STREAM
from plimsoll.ids import NodeName, PodUid
from plimsoll.placer_api.client import PlacerClient
from plimsoll.placer_api.http import PODS_PATH, PodRow, State
from plimsoll_cli.demo.cluster import EmulatedGpu, EmulatedNode, LocalCluster
from plimsoll_cli.demo.day import go_on
from plimsoll_cli.demo.table import render

MANIFESTS: Final = Path(__file__).parent / "pods.yaml"
GREEDY: Final = "greedy"
"""The pod of the manifests that allocates past its line on purpose."""

# Five seconds in place of Kang et al.'s minute, and frequent samples, so that a short demo shows changes.
QUICK: Final = {"idle_period_s": "5", "reconcile_s": "2"}
NODES: Final = tuple(
    EmulatedNode(NodeName(name), (EmulatedGpu(model, memory), EmulatedGpu(model, memory)), QUICK)
    for name, model, memory in (
        ("alpha", "NVIDIA L4", "24Gi"),
        ("bravo", "NVIDIA A10", "24Gi"),
        ("charlie", "Tesla T4", "16Gi"),
    )
)

SOCKET: Final = "placer.sock"
SEED: Final = 7
"""The seed of the pods that a kept demo draws."""

DEADLINE_S: Final = 50.0
WAVE_S: Final = 0.7
POLL_S: Final = 0.25
ENDED: Final = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class Check:
    """A promise that must have held, and the observation that shows it."""

    promise: str
    held: bool
    seen: str


async def run_demo(console: Console, *, keep: bool = False) -> int:
    """Run the demo. Returns the exit code: 0 if every promise held.

    Args:
        console: takes the table and the verdict.
        keep: let the servers run on after the verdict, until cancelled.
    """
    started = time.monotonic()
    console.print(
        "Plimsoll demo: 3 emulated nodes × 2 GPUs; starting NATS, Valkey, 3 brokers, 3 monitors, a placer …"
    )
    with tempfile.TemporaryDirectory(prefix="plimsoll-demo-") as folder, _Steps(console) as steps:
        async with LocalCluster(Path(folder), NODES, steps.next) as cluster:
            socket = cluster.directory / SOCKET
            part = await cluster.placer(
                http_port="0",
                control_socket=str(socket),
                local_nodes=str(await cluster.write_local_nodes()),
            )
            steps.end()
            page_url = await cluster.page_url(part)
            console.print(f"ready after {time.monotonic() - started:.0f} s; pods arrive")
            console.print(f"the live page: {page_url}   NATS: {cluster.nats.url}", soft_wrap=True)
            async with PlacerClient(socket) as placer:
                await _until_reported(placer)
                watched = await _watch(console, placer)
                events = await _count_events(cluster.nats.url, tasks=len(watched.last.pods))
                code = _summarise(console, _judge(watched, events), watched, time.monotonic() - started)
                if keep:
                    await _keep(console, placer, cluster, page_url)
    return code


async def _keep(console: Console, placer: PlacerClient, cluster: LocalCluster, page_url: str) -> None:
    """Let pods arrive and end until cancelled, and print how a reader submits one."""
    documents = list(yaml.safe_load_all(await asyncio.to_thread(MANIFESTS.read_text)))
    own = cluster.directory / "pod.yaml"
    mine = {**documents[0], "metadata": {"name": "mine"}}
    await asyncio.to_thread(own.write_text, yaml.safe_dump(mine, sort_keys=False))
    console.print(
        f"kept running until Ctrl-C; pods arrive and end; the live page: {page_url}", soft_wrap=True
    )
    console.print(
        "a pod of yours, whose command runs on an emulated node; change the file first:\n"
        f"  curl --unix-socket {cluster.directory / SOCKET} -H Content-Type:application/yaml "
        f"--data-binary @{own} http://placer{PODS_PATH}",
        soft_wrap=True,
        highlight=False,
        markup=False,
    )
    await go_on(placer, [one for one in documents if one["metadata"]["name"] != GREEDY], SEED)


PARTS: Final = 3 + 2 * len(NODES)
"""NATS, Valkey, the placer, and each node's broker and monitor."""


class _Steps:
    """On a terminal, a line that names the part being started. It vanishes once all parts run."""

    def __init__(self, console: Console) -> None:
        self._status = console.status("")
        self._number = 0

    def __enter__(self) -> Self:
        self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def next(self, part: str) -> None:
        """Another part is being started."""
        self._number += 1
        self._status.update(f"starting {part}, {self._number} of {PARTS}")

    def end(self) -> None:
        """All parts run."""
        self._status.stop()


@dataclass(slots=True)
class Observations:
    """The demo's observations.

    Attributes:
        last: the placer's last state.
        fullest_ratio: the largest used part of any GPU's memory, 0–1.
        submitted: pods submitted so far.
    """

    last: State
    fullest_ratio: float = 0.0
    submitted: int = 0


async def _until_reported(placer: PlacerClient) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while len((await placer.state()).nodes) < len(NODES):  # noqa: ASYNC110 - the API pushes nothing
            await asyncio.sleep(POLL_S)


async def _watch(console: Console, placer: PlacerClient) -> Observations:
    watched = Observations(State())
    async with asyncio.TaskGroup() as tasks:
        submitting = tasks.create_task(_submit_all(placer, watched), name="submit")
        with Live(console=console, refresh_per_second=8, transient=console.is_terminal) as live:
            try:
                async with asyncio.timeout(DEADLINE_S):
                    while not (submitting.done() and _all_ended(watched)):
                        await _poll(console, live, placer, watched)
            except TimeoutError:
                console.print(f"[red]not all pods ended within {DEADLINE_S:.0f} s[/]")
        submitting.cancel()
    return watched


async def _poll(console: Console, live: Live, placer: PlacerClient, watched: Observations) -> None:
    before = {pod.uid: pod for pod in watched.last.pods}
    watched.last = await placer.state()
    ratios = [gpu.used_bytes / gpu.usable_bytes for node in watched.last.nodes for gpu in node.gpus]
    watched.fullest_ratio = max(watched.fullest_ratio, *ratios)
    counts = Counter(pod.phase for pod in watched.last.pods)
    if console.is_terminal:
        footer = "  ".join(f"{phase}: {count}" for phase, count in counts.items())
        live.update(render(watched.last, footer, console.height))
    else:
        _print_changes(console, before, watched.last.pods)
    await asyncio.sleep(POLL_S)


def _print_changes(console: Console, before: dict[PodUid, PodRow], pods: tuple[PodRow, ...]) -> None:
    """Print a line per change: the output without a terminal, in place of the live table."""
    for pod in pods:
        if pod.uid not in before or before[pod.uid].phase != pod.phase:
            where = f" on {pod.node}" if pod.node else ""
            console.print(f"  {pod.name:<12} {pod.phase:<9}{where} {pod.message}".rstrip(), soft_wrap=True)


async def _submit_all(placer: PlacerClient, watched: Observations) -> None:
    text = await asyncio.to_thread(MANIFESTS.read_text)
    for document in text.split("\n---\n"):
        await placer.submit(document)
        watched.submitted += 1
        await asyncio.sleep(WAVE_S)


def _all_ended(watched: Observations) -> bool:
    pods = watched.last.pods
    return len(pods) == watched.submitted > 0 and all(pod.phase in ENDED for pod in pods)


async def _count_events(url: str, tasks: int) -> Counter[str]:
    """The number of events of each kind in the stream, once the last exits are there."""
    client = await nats.connect(url, connect_timeout=5)
    counts: Counter[str] = Counter()
    try:
        jetstream = client.jetstream()
        for _ in range(40):
            info = await jetstream.stream_info(STREAM, subjects_filter=">")
            counts = Counter()
            for subject, count in (info.state.subjects or {}).items():
                counts[subject.removeprefix("plimsoll.v1.").rpartition(".")[0]] += count
            if counts["task.exited"] >= tasks:
                break
            await asyncio.sleep(POLL_S)
    finally:
        await client.close()
    return counts


def _judge(watched: Observations, events: Counter[str]) -> list[Check]:
    pods = {pod.name: pod for pod in watched.last.pods}
    others = [pod for name, pod in pods.items() if name != GREEDY]
    succeeded = [pod for pod in others if pod.phase == "Succeeded"]
    failed = ", ".join(f"{pod.name}: {pod.phase} {pod.message}" for pod in others if pod not in succeeded)
    greedy = pods.get(GREEDY)
    refused = greedy is not None and greedy.phase == "Failed" and "CUDA_ERROR_OUT_OF_MEMORY" in greedy.message
    return [
        Check(
            f"all {watched.submitted - 1} pods within their lines run to their end",
            bool(others) and len(succeeded) == len(others) == watched.submitted - 1,
            failed or f"{len(succeeded)} succeeded",
        ),
        Check(
            "the pod that asks past its line gets CUDA's out-of-memory error",
            refused,
            f"{greedy.phase}: {greedy.message}" if greedy else "it never arrived",
        ),
        Check(
            "no GPU is ever past its memory",
            0 < watched.fullest_ratio <= 1,
            f"the fullest was at {watched.fullest_ratio:.0%}",
        ),
        Check(
            "every task's start and exit is on the bus",
            events["task.started"] == events["task.exited"] == len(pods)
            and events["task.loaded"] >= len(others),
            f"{events['task.started']} started, {events['task.loaded']} loaded, {events['task.exited']} exited",
        ),
        Check(
            "the refusal is on the bus", events["limit.denied"] > 0, f"{events['limit.denied']} limit.denied"
        ),
    ]


def _summarise(console: Console, checks: list[Check], watched: Observations, seconds: float) -> int:
    if console.is_terminal:
        console.print(render(watched.last))
    for check in checks:
        mark = "[green]✓[/]" if check.held else "[red]✗[/]"
        console.print(f"{mark} {check.promise}: {check.seen}", soft_wrap=True)
    broken = sum(not check.held for check in checks)
    verdict = "everything held" if not broken else f"{broken} of {len(checks)} promises broke"
    console.print(f"{verdict}; {len(watched.last.pods)} pods in {seconds:.0f} s")
    return 1 if broken else 0
