"""A demo for the dashboards: four emulated nodes under a real API server, pods of two teams, each part's metrics.

Its pods and events are chosen for the panels: containers that share GPUs and want more than their shares, one that
asks past its line, one that waits for memory on a node that overcommits, one that owns its GPU, pods that fit nowhere
and that are malformed, a process outside of containers, and a GPU with an XID error.
"""

import asyncio
import os
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import aiohttp

from bench.placer.servers import session
from bench.webhook.load import measure
from bench.webhook.process import Webhook, webhook
from bench.webhook.reviews import cases
from placer.extender.http import PATH
from plimsoll.ids import NodeName
from plimsoll.native import EMULATOR
from plimsoll_cli.demo.cluster import EmulatedGpu, EmulatedNode, LocalCluster
from plimsoll_cli.demo.servers import ServerKind, free_port, part_kind, running
from tests.e2e.cluster import KubeCluster
from tests.servers.alertmanager import alertmanager
from tests.servers.apiserver import ApiServer
from tests.servers.control_plane import control_plane
from tests.servers.objects import copied_capacity, create_node, pod_manifest
from tests.servers.waiting import until

TEAMS: Final = ("team-vision", "team-text")
MODELS: Final = {"alpha": "NVIDIA L4", "bravo": "NVIDIA A10", "charlie": "Tesla T4", "delta": "NVIDIA L4"}
QUICK: Final = {"idle_period_s": "5", "reconcile_s": "2"}
"""As in `plimsoll demo`, so that minutes show what hours would."""

MEMORY: Final = "plimsoll.dev/gpu-memory"
SHARE: Final = "plimsoll.dev/gpu-share"
GPUS: Final = "plimsoll.dev/gpu"
REVIEWS_S: Final = 2.0

UNWELL: Final = NodeName("charlie")
OVERCOMMITTED: Final = "delta"
"""It has one GPU, so that two pods of it share that one."""


@dataclass(frozen=True, slots=True)
class DemoPod:
    """A pod and its program.

    Attributes:
        limits: what the pod declares.
        memory: what the program allocates; empty for a pod that never runs.
        options: further options of `busy`.
        node: the only node that will do; empty for any.
    """

    limits: Mapping[str, str]
    memory: str = ""
    options: tuple[str, ...] = ()
    node: str = ""


STEADY: Final = ("--steps", "6", "--step-ms", "300", "--kernel-ms", "8", "--gap-ms", "1", "--seconds", "3600")
CALM: Final = ("--steps", "3", "--step-ms", "200", "--kernel-ms", "2", "--gap-ms", "60", "--seconds", "3600")
SHORT: Final = ("--steps", "3", "--step-ms", "200", "--kernel-ms", "5", "--gap-ms", "5", "--seconds", "5")

PODS: Final = (
    DemoPod({MEMORY: "20Gi"}, "18Gi", ("--hold-seconds", "10"), OVERCOMMITTED),
    DemoPod({MEMORY: "16Gi"}, "15Gi", ("--hold-seconds", "10"), OVERCOMMITTED),  # waits for the other's end
    *(DemoPod({MEMORY: "8Gi", SHARE: "60"}, "6Gi", STEADY) for _ in range(5)),  # one on each GPU that is left
    DemoPod({GPUS: "1"}, "10Gi", STEADY),  # owns its GPU
    *(DemoPod({MEMORY: "4Gi", SHARE: "30"}, "3Gi", STEADY) for _ in range(3)),  # beside others that want all
    DemoPod({MEMORY: "2Gi", SHARE: "10"}, "1Gi", CALM),
    DemoPod({MEMORY: "2Gi", SHARE: "5"}, "4Gi", (*SHORT, "--keep-going")),  # asks past its line
    DemoPod({MEMORY: "90Gi"}),  # fits nowhere
    DemoPod({MEMORY: "3", GPUS: "2"}),  # malformed
)


@dataclass(frozen=True, slots=True)
class Demo:
    """The running parts.

    Attributes:
        targets: the address of each part's metrics, by job, then by node.
        teams: the cluster, once for each namespace.
        extending: the extender's port.
        reviewing: the webhook.
    """

    targets: Mapping[str, Mapping[str, str]]
    teams: Sequence[KubeCluster]
    extending: int
    reviewing: Webhook

    async def work(self) -> list[tuple[str, str]]:
        """Create the pods and start their programs; returns namespace and name of each pod."""
        await until(lambda: copied_capacity(self.teams[0].api))
        made = []
        for number, work in enumerate(PODS):
            team, name = self.teams[number % len(self.teams)], f"pod-{number}"
            await _start(team, name, work)
            made.append((team.namespace, name))
        await _trouble(self.teams[0])
        await self.ask()
        return made

    async def ask(self) -> None:
        """Ask the extender as kube-scheduler does, and the webhook as the API server does."""
        pod = pod_manifest("asked", {MEMORY: "4Gi"}, scheduler="gpu-scheduler")
        question = {"Pod": pod, "NodeNames": list(MODELS)}
        connector = aiohttp.TCPConnector(ssl=ssl.create_default_context(cadata=self.reviewing.authority))
        async with aiohttp.ClientSession(connector=connector) as http:
            for verb in ("filter", "prioritize"):
                url = f"http://127.0.0.1:{self.extending}{PATH}/{verb}"
                async with http.post(url, json=question) as answer:
                    assert answer.status == 200, await answer.text()
            await measure(http, f"https://127.0.0.1:{self.reviewing.port}/review", cases(), REVIEWS_S)


@asynccontextmanager
async def demo(directory: Path) -> AsyncIterator[Demo]:
    """Run the servers and all parts until the context ends; no pod is there yet."""
    async with AsyncExitStack() as stack:
        plane = await stack.enter_async_context(control_plane(directory / "cluster"))
        api = ApiServer(plane, await stack.enter_async_context(_trusting(plane.url, plane.ca_file)))
        admin = await stack.enter_async_context(session(plane))
        for team in TEAMS:
            await api.must("POST", "/api/v1/namespaces", {"metadata": {"name": team}})
        for name in MODELS:
            await create_node(api, name)
        monitors, brokers = ({name: free_port() for name in MODELS} for _ in range(2))
        placing, extending, reviewing, alerting = (free_port() for _ in range(4))
        kubeconfig = str(api.kubeconfig())
        nodes = tuple(_node(name, kubeconfig, monitors[name], brokers[name]) for name in MODELS)
        local = await stack.enter_async_context(LocalCluster(directory / "local", nodes))
        placer = await local.placer(
            kubeconfig=kubeconfig,
            unheld_pods="place",
            http_port=str(placing),
            extender_port=str(extending),
        )
        hook = await stack.enter_async_context(webhook(plane, admin, http_port=str(reviewing)))
        manager = await stack.enter_async_context(alertmanager(directory / "alertmanager"))
        alerts = _alerts(local.nats.url, manager.url, alerting)
        await stack.enter_async_context(running(alerts, directory / "alerts"))
        teams = [KubeCluster(local, api, team, placer) for team in TEAMS]
        stack.push_async_callback(_end, teams)
        single = {"placer": placing, "webhook": reviewing, "alerts": alerting}
        jobs = {"monitor": monitors, "broker": brokers, **{part: {"": port} for part, port in single.items()}}
        targets = {
            f"plimsoll-{part}": {node: f"127.0.0.1:{port}" for node, port in ports.items()}
            for part, ports in jobs.items()
        }
        yield Demo(targets, teams, extending, hook)


def scrapes(targets: Mapping[str, Mapping[str, str]]) -> list[dict[str, Any]]:
    """Prometheus' settings for these targets: as the chart's, with the broker's node as a label."""
    return [
        {
            "job_name": job,
            "honor_labels": True,
            "static_configs": [
                {"targets": [address], "labels": {"node": node} if node else {}}
                for node, address in of_job.items()
            ],
        }
        for job, of_job in targets.items()
    ]


def _node(name: str, kubeconfig: str, monitor_port: int, broker_port: int) -> EmulatedNode:
    gpu = EmulatedGpu(MODELS[name], "16Gi" if name == "charlie" else "24Gi", {"reserved": "1Gi"})
    monitor = {**QUICK, "kubeconfig": kubeconfig, "http_port": str(monitor_port)}
    broker = {"kubeconfig": kubeconfig, "node": name, "http_port": str(broker_port)}
    if name == OVERCOMMITTED:
        monitor |= {"overcommit_ratio": "2"}
        broker |= {"overcommit": "true"}
    return EmulatedNode(NodeName(name), (gpu,) if name == OVERCOMMITTED else (gpu, gpu), monitor, broker)


def _alerts(nats_url: str, manager_url: str, port: int) -> ServerKind:
    settings = {"NATS_URL": nats_url, "ALERTS_ALERTMANAGER_URL": manager_url, "ALERTS_HTTP_PORT": str(port)}
    return part_kind("alerts", "plimsoll_alerts", "watching", settings)


@asynccontextmanager
async def _trusting(url: str, ca_file: Path) -> AsyncIterator[aiohttp.ClientSession]:
    context = await asyncio.to_thread(ssl.create_default_context, cafile=ca_file)
    async with aiohttp.ClientSession(url, connector=aiohttp.TCPConnector(ssl=context)) as http:
        yield http


async def _start(team: KubeCluster, name: str, work: DemoPod) -> None:
    """Create a pod; once it is bound, start its program, as the kubelet would."""
    pod = pod_manifest(name, work.limits)
    if work.node:
        pod["spec"]["nodeSelector"] = {"kubernetes.io/hostname": work.node}
    await team.api.must("POST", f"/api/v1/namespaces/{team.namespace}/pods", pod)
    if work.memory:
        place = (await team.until_bound(name))[name]
        await team.start_in(name, place, work.memory, *work.options)


async def _trouble(team: KubeCluster) -> None:
    """A process that belongs to no container, and an XID error that degrades a GPU."""
    await team.load(UNWELL, 1, "1Gi")
    environment = {**os.environ, **team.local.node_environment(UNWELL)}
    book = await asyncio.create_subprocess_exec(str(EMULATOR / "book"), "xid", "1", "48", env=environment)
    assert await book.wait() == 0, "the emulator's book took no XID error"


async def _end(teams: list[KubeCluster]) -> None:
    for program in (program for team in teams for program in team.programs):
        if program.returncode is None:
            program.kill()
        await program.wait()
