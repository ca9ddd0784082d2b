"""A Kubernetes cluster of emulated nodes for the end-to-end tests: real API server, real parts, no kubelet.

Where a kubelet would start a bound pod's container, a test starts its program itself on the node that the pod was
bound to; nothing else is left out.
"""

import asyncio
import os
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import nats

from plimsoll.broker.pages import COUNTS_DIR_VARIABLE, LIMITS_DIR_VARIABLE, SOCKET_NAME
from plimsoll.bus.subjects import STREAM
from plimsoll.envelope import decode_event, decode_report
from plimsoll.events import Report
from plimsoll.ids import NodeName
from plimsoll.native import HOOK_LIBRARY, PROGRAMS
from plimsoll.quantity import GIB
from plimsoll_cli.demo.cluster import EmulatedGpu, EmulatedNode, LocalCluster
from plimsoll_cli.demo.servers import EmbeddedServer
from tests.servers.apiserver import ApiServer, Object
from tests.servers.objects import copied_capacity, create_node, create_pod, pod_manifest
from tests.servers.waiting import until

NODES = (NodeName("alpha"), NodeName("bravo"), NodeName("charlie"))
ALPHA = NODES[0]
GPUS_PER_NODE = 2
USABLE_BYTES = 23 * GIB
PLACER_CONSUMER = "placer-placer"


@dataclass(slots=True)
class KubeCluster:
    """The parts, the API server, and the programs that a test started on nodes."""

    local: LocalCluster
    api: ApiServer
    namespace: str
    placer: EmbeddedServer
    programs: list[asyncio.subprocess.Process] = field(default_factory=list)

    async def load(self, node: NodeName, gpu: int, memory: str, *options: str) -> asyncio.subprocess.Process:
        """Run a CUDA program on a node outside any pod; returns at once."""
        process = await asyncio.create_subprocess_exec(
            str(PROGRAMS / "busy"),
            *("--device", str(gpu), "--memory", memory, "--hold-seconds", "600", *options),
            env={**os.environ, **self.local.node_environment(node)},
            stdout=asyncio.subprocess.DEVNULL,
        )
        self.programs.append(process)
        return process

    async def start_in(
        self, name: str, place: tuple[str, str], memory: str, *options: str, container: str = "main"
    ) -> asyncio.subprocess.Process:
        """Start the program of a pod's container on its node, as the kubelet and the container runtime would."""
        uid = (await self.pods())[name]["metadata"]["uid"]
        node = NodeName(place[0])
        root = self.local.broker_root(node)

        async def laid_out() -> bool:  # the socket comes last
            return await asyncio.to_thread((root / "limits" / uid / container / SOCKET_NAME).exists)

        await until(laid_out)
        process = await asyncio.create_subprocess_exec(
            *(str(PROGRAMS / "busy"), "--memory", memory, *options),
            env={
                **os.environ,
                **self.local.node_environment(node),
                "LD_PRELOAD": str(HOOK_LIBRARY),
                "CUDA_VISIBLE_DEVICES": place[1],
                LIMITS_DIR_VARIABLE: str(root / "limits" / uid / container),
                COUNTS_DIR_VARIABLE: str(root / "counts" / uid / container),
            },
            stdout=asyncio.subprocess.PIPE,
        )
        self.programs.append(process)
        return process

    async def submit(
        self, name: str, memory: str, share: int = 0, annotations: dict[str, str] | None = None
    ) -> None:
        """Create a pod with this declaration."""
        limits = {"plimsoll.dev/gpu-memory": memory, "plimsoll.dev/gpu": "1"}
        if share:
            limits["plimsoll.dev/gpu-share"] = str(share)
        await create_pod(self.api, self.namespace, pod_manifest(name, limits, annotations=annotations))

    async def pods(self) -> dict[str, Object]:
        """All pods by name, as the API server has them."""
        listed = await self.api.get(f"/api/v1/namespaces/{self.namespace}/pods")
        return {pod["metadata"]["name"]: pod for pod in listed["items"]}

    async def until_bound(self, *names: str) -> dict[str, tuple[str, str]]:
        """Wait until all these pods are bound; returns node and GPU of each."""

        async def look() -> dict[str, tuple[str, str]] | None:
            pods = await self.pods()
            places = {name: place(pods[name]) for name in names}
            bound = {name: found for name, found in places.items() if found is not None}
            return bound if len(bound) == len(names) else None

        found = await until(look)
        assert found is not None
        return found

    async def until_told_why(self, name: str) -> str:
        """Wait for the message of a pod's PodScheduled condition, and return it."""

        async def look() -> str:
            conditions = (await self.pods())[name]["status"].get("conditions", [])
            return next((c.get("message", "") for c in conditions if c["type"] == "PodScheduled"), "")

        return await until(look)

    async def until_placer_caught_up(self) -> None:
        """Wait until the placer has acknowledged every report in the stream."""
        client = await nats.connect(self.local.nats.url)
        try:

            async def look() -> bool:
                info = await client.jetstream().consumer_info(STREAM, PLACER_CONSUMER)
                return (info.num_pending, info.num_ack_pending) == (0, 0)

            await until(look)
        finally:
            await client.close()

    async def reports(self) -> list[Report]:
        """Every report in the stream, in its order."""
        return [decode_report(message) for message in await self.messages() if b'"state":' in message]

    async def messages(self) -> list[bytes]:
        """Every message of a node in the stream, in order."""
        client = await nats.connect(self.local.nats.url)
        try:
            jetstream = client.jetstream()
            info = await jetstream.stream_info(STREAM)
            first, last = info.state.first_seq, info.state.last_seq
            found = [await jetstream.get_msg(STREAM, seq) for seq in range(first, last + 1)]
            return [
                message.data for message in found if message.data and "pod" not in (message.subject or "")
            ]
        finally:
            await client.close()


def place(pod: Object) -> tuple[str, str] | None:
    """A pod's node and GPU, or None while it is not bound."""
    node = pod["spec"].get("nodeName")
    return (node, pod["metadata"]["annotations"]["gpus.plimsoll.dev/main"]) if node else None


def promised_bytes(pods: dict[str, Object], declared: dict[str, int]) -> Counter[str]:
    """Bytes promised on each GPU, computed from the API server's pods."""
    promised: Counter[str] = Counter()
    for name, pod in pods.items():
        if (found := place(pod)) is not None:
            promised[found[1]] += declared[name]
    return promised


def facts(messages: list[bytes]) -> dict[tuple[int, int], list[str]]:
    """The task events of each process (pid, start ticks), in the stream's order."""
    told: defaultdict[tuple[int, int], list[str]] = defaultdict(list)
    for message in messages:
        event = decode_event(message)
        if event.type.startswith("dev.plimsoll.task."):
            task = decode_report(message).task
            assert task is not None
            told[task.pid, task.start_ticks].append(event.type.split(".")[3])
    return told


@asynccontextmanager
async def kube_cluster(
    directory: Path,
    api: ApiServer,
    namespace: str,
    *,
    names: Sequence[NodeName] = NODES,
    quick: dict[str, str] | None = None,
) -> AsyncIterator[KubeCluster]:
    """Nodes of two GPUs, their monitors advertising to the API server, and a placer.

    A test that concerns one node alone has one: each has a monitor and a broker, which are seconds of CPU to start.
    """
    kubeconfig = str(api.kubeconfig())
    settings = {
        "idle_period_s": "2",
        "reconcile_s": "1",
        "kubeconfig": kubeconfig,
        **(quick or {}),
    }
    gpus = tuple(EmulatedGpu("NVIDIA L4", "24Gi", {"reserved": "1Gi"}) for _ in range(GPUS_PER_NODE))
    for name in names:
        await create_node(api, name)
    nodes = tuple(
        EmulatedNode(name, gpus, settings, {"kubeconfig": kubeconfig, "node": name}) for name in names
    )
    async with LocalCluster(directory, nodes) as local:
        placer = await local.placer(kubeconfig=kubeconfig, unheld_pods="place")
        cluster = KubeCluster(local, api, namespace, placer)
        try:
            await until(lambda: copied_capacity(api))
            yield cluster
        finally:
            for program in cluster.programs:
                if program.returncode is None:
                    program.kill()
                await program.wait()
