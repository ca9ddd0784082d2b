"""Monitor and broker do their work with the chart's accounts alone, and the monitor reaches no other node."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Sequence
from functools import partial
from pathlib import Path
from typing import ClassVar, cast

import pytest
import yaml

from hook.broker import pods
from hook.broker.engine import Engine
from hook.broker.layouts import Layouts
from monitor import advertise
from monitor.settings import Settings
from plimsoll.events import Gpu
from plimsoll.ids import GpuUuid, NodeName
from plimsoll.kube.client import KubeClient, connect
from plimsoll.kube.models import Pod
from plimsoll.kube.reflector import Added, Change, Modified
from plimsoll.kube.transport import Body, PatchKind, RefusedError
from plimsoll.quantity import GIB
from tests.deploy.accounts import Account, Recorder, account, kubeconfig_of, recorded
from tests.servers.apiserver import ApiServer
from tests.servers.objects import create_node, create_pod, pod_manifest
from tests.servers.waiting import until
from tools.chart import BASE, NAMESPACE

GPUS = (
    Gpu(
        uuid=GpuUuid("GPU-1"),
        index=0,
        model="NVIDIA L4",
        usable_bytes=24 * GIB,
        used_bytes=0,
        idle_pct=100.0,
    ),
)


async def create_part(api: ApiServer, namespace: str, part: str, node: str) -> str:
    """A pod of a part's account on a node; returns its name."""
    name = f"{part}-{uuid.uuid4().hex[:6]}"
    pod = pod_manifest(name, scheduler="default-scheduler")
    pod["spec"] |= {"serviceAccountName": f"plimsoll-{part}", "nodeName": node}
    await create_pod(api, namespace, pod)
    return name


@pytest.fixture
async def monitor(apiserver: ApiServer, namespace: str, tmp_path: Path) -> AsyncIterator[Account]:
    """The monitor's account with the token of a pod on `n1`, and the policy about it in force."""
    for name in ("n1", "n2"):
        await create_node(apiserver, name, labels={"zone": "a"})
    pod = await create_part(apiserver, namespace, "monitor", "n1")
    text = (BASE / "plimsoll.yaml").read_text().replace(NAMESPACE, namespace)
    read = [one for one in yaml.safe_load_all(text) if one]
    objects = [one for one in read if one["metadata"]["name"] == "plimsoll-monitor"]
    policy = yaml.safe_dump_all(one for one in objects if one["kind"].startswith("ValidatingAdmission"))
    async with account(apiserver, namespace, "monitor", tmp_path, pod=pod) as given:
        await apiserver.kubectl("apply", "--server-side", "--filename=-", stdin=policy)
        try:
            async with connect(given.kubeconfig) as client:
                await until(
                    partial(refused, client, "n2", {"status": {"capacity": {"plimsoll.dev/gpu": "1"}}})
                )
            yield given
        finally:
            await apiserver.kubectl("delete", "--ignore-not-found", "--filename=-", stdin=policy)


async def refused(client: KubeClient, node: str, change: Body) -> str:
    """The refusal of a change of a node's status; empty if it was accepted."""
    try:
        await client.patch(f"/api/v1/nodes/{node}/status", change, PatchKind.MERGE)
    except RefusedError as error:
        return str(error)
    return ""


async def test_the_monitor_advertises_its_node(
    apiserver: ApiServer, monitor: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The real advertiser writes the node's resources with the account alone, and uses each right of it."""
    calls = Recorder()
    monkeypatch.setattr(advertise, "connect", lambda _: recorded(monitor.kubeconfig, calls))
    advertiser = advertise.Advertiser(Settings(node="n1", kubeconfig=str(monitor.kubeconfig)), lambda: None)
    advertiser.set_gpus(GPUS)
    task = asyncio.create_task(advertiser.run())
    try:

        async def is_shown() -> bool:
            capacity = (await apiserver.get("/api/v1/nodes/n1"))["status"]["capacity"]
            return bool(capacity.get("plimsoll.dev/gpu-memory") == str(24 * GIB))

        await until(is_shown)
    finally:
        task.cancel()
        await asyncio.wait([task])
    assert calls.used == monitor.rights


FORBIDDEN: Sequence[tuple[str, Body, str]] = (
    ("n2", {"status": {"capacity": {"plimsoll.dev/gpu": "30"}}}, "monitor of node n1 may not write"),
    ("n1", {"status": {"capacity": {"nvidia.com/gpu": "8"}}}, "plimsoll.dev/* alone, not nvidia.com/gpu"),
    ("n1", {"status": {"capacity": {"cpu": None}}}, "plimsoll.dev/* alone, not cpu"),
    ("n1", {"status": {"allocatable": {"cpu": "800"}}}, "plimsoll.dev/* alone, not cpu"),
    ("n1", {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}, "status: the monitor"),
    ("n1", {"status": {"addresses": [{"type": "Hostname", "address": "n2"}]}}, "status: the monitor"),
    ("n1", {"status": {"features": {"supplementalGroupsPolicy": True}}}, "status: the monitor"),
    ("n1", {"status": {"runtimeHandlers": [{"name": "nvidia"}]}}, "status: the monitor"),
    ("n1", {"metadata": {"labels": {"zone": "b"}}}, "metadata: the monitor"),
    ("n1", {"metadata": {"annotations": {"a": "b"}}}, "metadata: the monitor"),
)


async def test_a_stolen_token_of_a_monitor_changes_nothing_else(
    apiserver: ApiServer, monitor: Account, namespace: str, tmp_path: Path
) -> None:
    """With the token of a monitor's pod, nobody writes to another node, or anything else of its own.

    A token of the account that belongs to no pod names no node, so it may write none. The account reads neither pods
    nor Secrets, and deletes nothing.
    """
    assert monitor.user == f"system:serviceaccount:{namespace}:plimsoll-monitor"
    mine = {"status": {"capacity": {"plimsoll.dev/gpu": "30"}}}
    async with connect(monitor.kubeconfig) as client:
        for node, change, text in FORBIDDEN:
            assert text in await refused(client, node, change), change
        assert not await refused(client, "n1", mine)
        for path in ("/api/v1/pods", "/api/v1/secrets", "/api/v1/nodes"):
            with pytest.raises(RefusedError):
                await client.get(path)
        with pytest.raises(RefusedError):
            await client.delete("/api/v1/nodes/n1", {})
    async with connect(await kubeconfig_of(apiserver, namespace, "plimsoll-monitor", tmp_path)) as client:
        assert "the token is not bound to a pod" in await refused(client, "n1", mine)


class Seen:
    """Takes the changes of the broker's pods, and keeps their names."""

    names: ClassVar[set[str]] = set()

    def __init__(self, engine: object, layouts: object, driver_lines: object) -> None:
        """As the follower of `hook.broker.pods`."""

    async def follow(self, changes: asyncio.Queue[Change[Pod]]) -> None:
        """Take changes until cancelled."""
        while True:
            match await changes.get():
                case Added(pod) | Modified(pod):
                    self.names.add(pod.metadata.name)


async def test_the_broker_follows_its_pods(
    apiserver: ApiServer, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker reads the pods of its node with the account alone, and uses each right of it."""
    await create_node(apiserver, "n1")
    first = await create_part(apiserver, namespace, "broker", "n1")
    calls = Recorder()
    monkeypatch.setattr(pods, "Follower", Seen)
    async with account(apiserver, namespace, "broker", tmp_path, pod=first) as broker:
        monkeypatch.setattr(pods, "connect", lambda _: recorded(broker.kubeconfig, calls))
        following = pods.follow_pods(cast("Engine", None), NodeName("n1"), str(broker.kubeconfig), Layouts())
        task = asyncio.create_task(following)
        try:

            async def is_seen(name: str) -> bool:
                return name in Seen.names

            await until(partial(is_seen, first))  # from the list
            await until(partial(is_seen, await create_part(apiserver, namespace, "broker", "n1")))  # watched
        finally:
            task.cancel()
            await asyncio.wait([task])
        assert calls.used == broker.rights
        async with connect(broker.kubeconfig) as client:
            for path in ("/api/v1/secrets", "/api/v1/nodes", f"/api/v1/namespaces/{namespace}/pods/{first}"):
                with pytest.raises(RefusedError):
                    await client.get(path)
