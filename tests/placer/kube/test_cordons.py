"""Closed GPUs and nodes, and a pause: on a real API server, by the commands, with the chart's role alone."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from placer.api.http import Api, serving_port
from placer.core.explain.scan import PageAsked
from placer.scheduler.cache.cache import PAUSED
from plimsoll.part.errors import InputError
from plimsoll.quantity import GIB
from plimsoll_cli.cluster import Cluster
from plimsoll_cli.cordon import NotCordonedError, cordon, uncordon
from plimsoll_cli.demo.servers import EmbeddedServer
from plimsoll_cli.drain import DrainRules, drain
from plimsoll_cli.gpus import nodes_of, shown
from plimsoll_cli.nodes import nodes
from tests.logs import capture_logs
from tests.placer.kube.objects import MEMORY
from tests.placer.kube.world import World, gpu_of, scheduler
from tests.placer.states import reader_of
from tests.servers.apiserver import ApiServer, Object
from tests.servers.objects import create_node, create_pod, pod_manifest
from tests.servers.waiting import PATIENCE_S, until, until_true

ROLE = Path(__file__).parents[3] / "deploy" / "cordon-role.yaml"
BINDINGS = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
CORDONED = "node(s) had cordoned GPUs"
SHORT = "Insufficient plimsoll.dev/gpu-memory on one GPU"


@pytest.fixture
async def operator(apiserver: ApiServer) -> AsyncIterator[Cluster]:
    """A user that has the role of deploy/cordon-role.yaml, and no other right."""
    await apiserver.kubectl("apply", f"--filename={ROLE}")
    await apiserver.must(
        "POST",
        BINDINGS,
        {
            "metadata": {"name": "operator"},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": "plimsoll-cordon",
            },
            "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "somebody"}],
        },
    )
    yield Cluster(str(apiserver.kubeconfig("somebody")))
    await apiserver.must("DELETE", f"{BINDINGS}/operator")


@contextlib.asynccontextmanager
async def two_gpus(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str
) -> AsyncIterator[tuple[World, str]]:
    """A scheduler, with the URL of its answers, and a node of two cards with 24 GiB."""
    async with scheduler(apiserver, valkey, namespace) as world:
        reader = reader_of(world.parts.context.decider)
        api = Api(reader.rows, reader, tuple, tuple, world.metrics.registry)
        async with serving_port(api, "127.0.0.1", 0) as port:
            await create_node(apiserver, "n1")
            await world.report("n1", 24, 24)
            yield world, f"http://127.0.0.1:{port}"


def pod(name: str, gib: int, **spec: Any) -> Object:  # noqa: ANN401 - fields of a pod
    """A pod that ends at once when it is evicted."""
    made = pod_manifest(name, {MEMORY: f"{gib}Gi"})
    made["metadata"]["labels"] = {"app": name}
    made["spec"] |= {"terminationGracePeriodSeconds": 0, **spec}
    return made


async def test_a_cordoned_gpu_takes_no_pod_until_it_is_uncordoned(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str, operator: Cluster
) -> None:
    """Pods go beside it, one that waits names it, and lists show no room there; a stale UUID is shown and ended."""
    async with two_gpus(apiserver, valkey, namespace) as (world, url):
        assert await cordon(url, operator, "n1/0") == "n1: GPU-n1-0: cordoned"
        assert await cordon(url, operator, "GPU-n1-0") == "n1: GPU-n1-0: already cordoned"
        for name in ("p", "q"):
            await create_pod(apiserver, namespace, pod(name, 16))
        [bound] = await until(lambda: _bound(world))
        assert gpu_of(bound) == ("n1", "GPU-n1-1")
        waiting = ({"p", "q"} - {bound["metadata"]["name"]}).pop()
        await world.until_refused(waiting, f"1 {SHORT} (most free: 8Gi on n1), 1 {CORDONED}.")
        assert (await wakes_on(world, waiting))[0] == "a GPU is uncordoned (`plimsoll uncordon`)"
        [row] = await nodes_of(url)
        assert [(gpu.cordoned, gpu.free_bytes, gpu.free_share_pct) for gpu in row.gpus] == [
            (True, 0, 0),
            (False, 8 * GIB, 100),
        ]
        await cordon(url, operator, "n1/1")
        name = bound["metadata"]["name"]
        explained = await world.parts.doors.explainer.explain(namespace, name, PageAsked())
        assert explained is not None
        assert explained.running is not None
        assert explained.running.taken_out == (
            "GPU-n1-1 is cordoned: it takes no new pods, and this one may stay",
        )
        await uncordon(url, operator, "n1/1")
        assert await uncordon(url, operator, "n1/0") == "n1: GPU-n1-0: uncordoned"
        assert gpu_of(await world.until_bound(waiting)) == ("n1", "GPU-n1-0")

        await cordon(url, operator, "n1/1")
        await world.report("n1", 8)  # the card was taken out
        assert "GPU-n1-1 is cordoned, but not on this node" in [*shown(await nodes_of(url))][-1]
        assert "no GPU of it: GPU-n1-1 (cordoned)" in await nodes(url, None, "table", None)
        assert await uncordon(url, operator, "GPU-n1-1") == "n1: GPU-n1-1: uncordoned"
        assert not (await nodes_of(url))[0].stale_cordons

        with capture_logs() as logs:
            await world.change_node("n1", annotated("GPU-n1-1 GPU-n1-0,n1/0,,all"))
            await until_true(lambda: any("entries" in one for one in logs))
        [told] = [one for one in logs if "entries" in one]
        assert told["entries"] == ["GPU-n1-1 GPU-n1-0", "all", "n1/0"]
        await world.change_node("n1", annotated(None))


def annotated(cordoned: str | None) -> Object:
    """The change of a node by which a user's own tool cordons its GPUs."""
    return {"metadata": {"annotations": {"plimsoll.dev/cordoned-gpus": cordoned}}}


async def wakes_on(world: World, name: str) -> tuple[str, ...]:
    """The changes that bring a waiting pod back, as `plimsoll explain` tells them."""
    explained = await world.parts.doors.explainer.explain(world.namespace, name, PageAsked())
    assert explained is not None
    assert explained.waiting is not None
    assert explained.waiting.queue is not None
    return explained.waiting.queue.wakes_on


async def test_a_user_without_the_role_cordons_nothing(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str
) -> None:
    """The refusal is the API server's own, with the role that would help."""
    async with two_gpus(apiserver, valkey, namespace) as (_, url):
        with pytest.raises(NotCordonedError, match=r'cannot get resource "nodes".*deploy/cordon-role.yaml'):
            await cordon(url, Cluster(str(apiserver.kubeconfig("somebody"))), "n1/0")


async def _bound(world: World) -> list[Object]:
    pods = (await world.api.get(f"/api/v1/namespaces/{world.namespace}/pods"))["items"]
    return [one for one in pods if one["spec"].get("nodeName")]


async def test_a_drain_evicts_the_pods_of_one_gpu(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str, operator: Cluster
) -> None:
    """A pod without a controller is refused, a budget is waited for, and the pod on the other GPU stays."""
    async with two_gpus(apiserver, valkey, namespace) as (world, url):
        for name in ("a", "b"):
            await create_pod(apiserver, namespace, pod(name, 16))
        gpus = {name: gpu_of(await world.until_bound(name))[1] for name in ("a", "b")}
        assert set(gpus.values()) == {"GPU-n1-0", "GPU-n1-1"}
        with pytest.raises(NotCordonedError, match=f"no controller replaces {namespace}/a; give --force"):
            await drain(url, operator, gpus["a"], DrainRules(), lambda _: None)
        path = f"/api/v1/namespaces/{namespace}/pods/a/status"
        await apiserver.must(
            "PATCH", path, {"status": {"phase": "Running"}}
        )  # no budget counts pods before that
        budget = {
            "metadata": {"name": "budget"},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "a"}}},
        }
        budgets = f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets"
        await apiserver.must("POST", budgets, budget)
        lines: asyncio.Queue[str] = asyncio.Queue()
        rules = DrainRules(force=True)
        with pytest.raises(NotCordonedError, match=f"after 0.1 s these pods are still there: {namespace}/a"):
            await drain(url, operator, gpus["a"], DrainRules(force=True, timeout_s=0.1), lambda _: None)
        draining = asyncio.create_task(drain(url, operator, gpus["a"], rules, lines.put_nowait))
        async with asyncio.timeout(PATIENCE_S):
            assert await lines.get() == f"n1: {gpus['a']}: already cordoned"
            assert "its disruption budget forbids an eviction now" in await lines.get()
            await apiserver.must("DELETE", f"{budgets}/budget")
            assert await lines.get() == f"pod {namespace}/a: evicted"
            assert await draining == f"n1: {gpus['a']}: drained"
        assert (await world.pod("b"))["spec"]["nodeName"] == "n1"
        await create_pod(apiserver, namespace, pod("c", 4, volumes=[{"name": "v", "emptyDir": {}}]))
        await world.until_bound("c")
        with pytest.raises(NotCordonedError, match="give --delete-emptydir-data"):
            await drain(url, operator, gpus["b"], rules, lambda _: None)
        with pytest.raises(InputError, match="is no GPU of a node that reports"):
            await drain(url, operator, "GPU-none", rules, lambda _: None)


async def test_a_paused_cluster_places_no_pod_and_says_so(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str
) -> None:
    """A new pod, and one that waits already, name the pause and its reason; afterwards both are tried."""
    async with two_gpus(apiserver, valkey, namespace) as (world, url):
        await create_pod(apiserver, namespace, pod("large", 40))
        await world.until_refused("large", SHORT)
        await apiserver.kubectl("annotate", "namespace", namespace, "plimsoll.dev/paused=new cards")
        await world.until_refused("large", f"0/1 nodes are available: 1 {PAUSED} (new cards).")
        await create_pod(apiserver, namespace, pod("small", 4))
        await world.until_refused("small", f"0/1 nodes are available: 1 {PAUSED} (new cards).")
        assert (await wakes_on(world, "small"))[0].startswith(
            "the pause ends (remove the annotation plimsoll.dev/"
        )
        assert len(await wakes_on(world, "small")) == 1
        [row] = await nodes_of(url)
        assert (row.closed, {gpu.free_bytes for gpu in row.gpus}) == (("paused",), {0})
        await apiserver.kubectl("annotate", "namespace", namespace, "plimsoll.dev/paused-")
        await world.until_bound("small")
        assert (await nodes_of(url))[0].closed == ()
        await world.until_refused("large", SHORT)


@pytest.mark.parametrize(
    ("change", "state"),
    [
        ({"spec": {"unschedulable": True}}, "cordoned"),
        ({"metadata": {"labels": {"plimsoll.dev/node": "off"}}}, "off"),
        (
            {"spec": {"taints": [{"key": "dedicated", "value": "ml", "effect": "NoSchedule"}]}},
            "taint dedicated=ml:NoSchedule",
        ),
    ],
)
async def test_lists_show_a_closed_node_as_what_it_is(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str, change: Object, state: str
) -> None:
    """No room is shown where no pod gets any; where a pod may tolerate a taint, the room and the taint are."""
    async with two_gpus(apiserver, valkey, namespace) as (world, url):
        await world.change_node("n1", change)
        [row] = await nodes_of(url)
        is_closed = not state.startswith("taint")
        assert {gpu.free_bytes for gpu in row.gpus} == ({0} if is_closed else {24 * GIB})
        assert (row.closed, row.taints) == (
            ((state,), ()) if is_closed else ((), (state.removeprefix("taint "),))
        )
        assert all(line.endswith(f"node {state}") for line in [*shown([row])][1:])
        undo: Object = {
            "spec": {"unschedulable": None, "taints": None},
            "metadata": {"labels": {"plimsoll.dev/node": None}},
        }
        await world.change_node("n1", undo)
        assert {gpu.free_bytes for gpu in (await nodes_of(url))[0].gpus} == {24 * GIB}
