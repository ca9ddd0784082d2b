"""Tickets on pods of a real API server are carried out once, answered once."""

import asyncio
import json
from functools import partial

import nats.errors
import pytest

from plimsoll.events import Limit
from plimsoll.part.errors import InputError
from plimsoll.placer_api.resize_tickets import TICKET
from plimsoll.placer_api.rpc import Resize, Resizing
from plimsoll_cli.cluster import Cluster
from plimsoll_cli.demo.servers import EmbeddedServer
from plimsoll_cli.resize_pod import NotConfirmedError, NotResizedError, resize_pod
from tests.placer.kube.world import World, scheduler
from tests.placer.resize.pods import Counted, one_gpu, placed, written
from tests.servers.apiserver import ApiServer, Object
from tests.servers.tickets import answer_in, ticket, ticketing
from tests.servers.waiting import PATIENCE_S


class Brokers:
    """Stands in for the events of brokers, which need a node: `tests/e2e` has real ones.

    Attributes:
        confirm: set while brokers confirm what they are asked.
        are_heard: False while NATS is away.
    """

    def __init__(self) -> None:
        self.confirm = asyncio.Event()
        self.confirm.set()
        self.are_heard = True

    async def newest(self) -> int:
        """See `Confirmations`."""
        if not self.are_heard:
            raise nats.errors.ConnectionClosedError
        return 0

    async def until(self, request: Resize, asked: Resizing, after: int) -> tuple[Limit, ...]:  # noqa: ARG002
        """See `Confirmations`."""
        await self.confirm.wait()
        return tuple(
            Limit(
                node=asked.node,
                gpu=line.gpu,
                pod=asked.pod,
                container=asked.container,
                used_bytes=0,
                line_bytes=line.line_bytes,
                share_pct=line.share_pct,
                limit_pct=line.limit_pct,
            )
            for line in asked.after
        )


async def ticketed(world: World, name: str, text: str | None) -> None:
    """Put a ticket on a pod."""
    path = f"/api/v1/namespaces/{world.namespace}/pods/{name}"
    await world.api.must("PATCH", path, ticketing(text))


async def answered(world: World, name: str, text: str) -> Object:
    """Wait for the final answer to a ticket."""
    pod = await world.until(name, lambda pod: bool(answer_in(pod, text).get("final")))
    return answer_in(pod, text)


def cluster(world: World) -> Cluster:
    """The cluster as a command names it."""
    return Cluster(str(world.api.kubeconfig()))


async def test_a_ticket_is_carried_out_and_answered(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str
) -> None:
    """The command succeeds once the change is confirmed; a refusal reaches it with its reason."""
    async with one_gpu(apiserver, valkey, namespace) as world:
        brokers = world.parts.doors.tickets.confirmations = Brokers()
        await placed(world, "p", "4Gi", 30)
        request = Resize(pod="p", namespace=namespace, gpu_memory="6Gi", gpu_share="40")
        confirmed = await resize_pod(request, cluster(world), PATIENCE_S)
        assert [line.partition(",")[0] for line in confirmed.lines()] == ["GPU-n1-0 on n1: line 4Gi -> 6Gi"]
        assert await written(world, "p") == Counted(6, 40, 100)
        with pytest.raises(NotResizedError, match="gpu-memory: '60Gi' does not fit"):
            await resize_pod(
                Resize(pod="p", namespace=namespace, gpu_memory="60Gi"), cluster(world), PATIENCE_S
            )
        brokers.are_heard = False
        with pytest.raises(NotConfirmedError, match=r"no node could confirm it.*nothing was changed"):
            await resize_pod(
                Resize(pod="p", namespace=namespace, gpu_memory="5Gi"), cluster(world), PATIENCE_S
            )
        brokers.are_heard = True
        assert await written(world, "p") == Counted(6, 40, 100)
        brokers.confirm.clear()
        with pytest.raises(
            NotConfirmedError, match="the broker on n1 did not confirm in 5 s; the values before"
        ):
            await resize_pod(Resize(pod="p", namespace=namespace, gpu_memory="5Gi"), cluster(world), 5.0)
        assert (await written(world, "p")).line_gib == 5
        with pytest.raises(NotResizedError, match=r"pod: '.*/none' does not exist; name a running pod"):
            await resize_pod(
                Resize(pod="none", namespace=namespace, gpu_memory="5Gi"), cluster(world), PATIENCE_S
            )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("six", "is no ticket (JSON is malformed"),
        ('{"gpu_memroy":"6Gi"}', "is no ticket (Object contains unknown field `gpu_memroy`)"),
        ("{}", "gpu-memory: None is not given"),
        ('{"gpu_memory":"' + "6" * 3000 + '"}', "has more than 2000 characters"),
    ],
)
async def test_a_damaged_ticket_is_refused(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str, text: str, said: str
) -> None:
    """The refusal names the annotation and the remedy, and the next ticket is carried out."""
    async with one_gpu(apiserver, valkey, namespace) as world:
        world.parts.doors.tickets.confirmations = Brokers()
        await placed(world, "p")
        await ticketed(world, "p", text)
        answer = await answered(world, "p", text)
        assert (answer["type"], said in answer["message"]) == ("refused", True), answer
        later = ticket(gpu_memory="6Gi")
        await ticketed(world, "p", later)
        assert (await answered(world, "p", later))["type"] == "resizing"


async def test_the_next_placer_carries_out_what_is_not_answered(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str
) -> None:
    """A ticket that came while no placer led, or was not confirmed yet, is answered by the next; no other is."""
    async with one_gpu(apiserver, valkey, namespace) as world:
        brokers = world.parts.doors.tickets.confirmations = Brokers()
        for name in ("done", "begun", "new"):
            await placed(world, name, "4Gi")
        texts = {name: ticket(gpu_memory="5Gi") for name in ("done", "begun", "new")}
        await ticketed(world, "done", texts["done"])
        await answered(world, "done", texts["done"])
        brokers.confirm.clear()
        await ticketed(world, "begun", texts["begun"])
        await world.until("begun", lambda pod: answer_in(pod, texts["begun"]).get("type") == "resizing")
    path = partial("/api/v1/namespaces/{}/pods/{}".format, namespace)
    await apiserver.must("PATCH", path("new"), ticketing(texts["new"]))
    before = (await apiserver.get(path("done")))["metadata"]["resourceVersion"]
    async with scheduler(apiserver, valkey, namespace) as world:
        world.parts.doors.tickets.confirmations = Brokers()
        await world.report("n1", 24)
        for name in ("begun", "new"):
            assert (await answered(world, name, texts[name]))["type"] == "resizing"
            assert (await written(world, name)).line_gib == 5
        assert (await world.pod("done"))["metadata"]["resourceVersion"] == before


async def test_without_a_placer_the_ticket_is_taken_back(apiserver: ApiServer, namespace: str) -> None:
    """A change that was reported as not made is not made later either."""
    path = f"/api/v1/namespaces/{namespace}/pods"
    pod = {
        "metadata": {"name": "p"},
        "spec": {"nodeName": "n", "containers": [{"name": "main", "image": "none"}]},
    }
    await apiserver.must("POST", path, pod)
    with pytest.raises(NotConfirmedError, match=r"no placer took it up in 1 s.*nothing was changed"):
        await resize_pod(
            Resize(pod="p", namespace=namespace, gpu_memory="6Gi"), Cluster(str(apiserver.kubeconfig())), 1.0
        )
    assert TICKET not in (await apiserver.get(f"{path}/p"))["metadata"].get("annotations", {})


@pytest.mark.parametrize(
    ("spec", "phase", "said"),
    [
        ({}, "Pending", "is not placed yet; wait until it is placed"),
        ({"nodeName": "n"}, "Succeeded", "has ended; name a running pod"),
    ],
)
async def test_a_pod_that_no_placer_would_resize_is_refused_at_once(
    apiserver: ApiServer, namespace: str, spec: Object, phase: str, said: str
) -> None:
    """Placers look at tickets of pods that have a node and run, so nobody waits for an answer on another pod."""
    path = f"/api/v1/namespaces/{namespace}/pods"
    pod = {"metadata": {"name": "p"}, "spec": {**spec, "containers": [{"name": "main", "image": "none"}]}}
    await apiserver.must("POST", path, pod)
    await apiserver.must("PATCH", f"{path}/p/status", {"status": {"phase": phase}})
    with pytest.raises(NotResizedError, match=said):
        await resize_pod(
            Resize(pod="p", namespace=namespace, gpu_memory="6Gi"),
            Cluster(str(apiserver.kubeconfig())),
            PATIENCE_S,
        )
    assert TICKET not in (await apiserver.get(f"{path}/p"))["metadata"].get("annotations", {})


async def test_a_ticket_that_was_taken_back_is_not_carried_out(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str
) -> None:
    """The write names the version of the pod that had the ticket, so it fails on any later one."""
    async with one_gpu(apiserver, valkey, namespace) as world:
        await placed(world, "p", "4Gi")
        request = Resize(pod="p", namespace=namespace, gpu_memory="6Gi")
        with pytest.raises(InputError, match="no longer has this ticket"):
            await world.parts.doors.resizer.resize(request, ticket(gpu_memory="6Gi"))
        assert (await written(world, "p")).line_gib == 4


async def test_a_user_without_rights_is_told_which(apiserver: ApiServer, namespace: str) -> None:
    """The refusal is the API server's own, with the role that would help."""
    asked = Resize(pod="p", namespace=namespace, gpu_memory="6Gi")
    with pytest.raises(NotResizedError, match=r'cannot get resource "pods".*deploy/resize-role.yaml'):
        await resize_pod(asked, Cluster(str(apiserver.kubeconfig("somebody"))), PATIENCE_S)


def test_a_ticket_is_json_that_people_can_write() -> None:
    """Only what is asked is in it."""
    assert json.loads(ticket(gpu_memory="6Gi")).keys() == {"gpu_memory", "nonce"}
