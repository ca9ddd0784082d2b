"""On a real API server: locality labels of pods that come in one second, after a restart, and on forged pods."""

import asyncio
import json
from collections.abc import Iterable

from plimsoll.demand import parse_pod
from plimsoll.ids import ContainerName, PodUid
from plimsoll.placer_api.rpc import Resize
from plimsoll_cli.demo.servers import EmbeddedServer
from tests.placer.kube.objects import MEMORY
from tests.placer.kube.world import World, gpu_of, read_pod, scheduler
from tests.placer.locality import Placed, violations
from tests.servers.apiserver import ApiServer, Object
from tests.servers.objects import create_node, create_pod, pod_manifest

DECISION = "plimsoll.dev/decision"


async def create(world: World, size: str, names: Iterable[str], **labels: str) -> list[Object]:
    """Create pods with these labels at once, and wait until all are bound."""
    annotations = {f"plimsoll.dev/{name.replace('_', '-')}": label for name, label in labels.items()}
    for name in names:
        manifest = pod_manifest(name, {MEMORY: size}, annotations=annotations)
        await create_pod(world.api, world.namespace, manifest)
    return list(await asyncio.gather(*(world.until_bound(name) for name in names)))


def placed(pods: Iterable[Object]) -> list[Placed]:
    """The pods with their GPUs and the labels that their authors wrote."""
    return [
        Placed(pod["metadata"]["name"], frozenset({gpu_of(pod)[1]}), parse_pod(read_pod(pod)).locality)
        for pod in pods
    ]


async def test_labels_hold_for_pods_of_one_second_and_after_a_restart(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str
) -> None:
    """Pods that are decided right after each other heed each other's labels, and so do those of the next placer."""
    await create_node(apiserver, "n1")
    await create_node(apiserver, "n2")

    async with scheduler(apiserver, valkey, namespace) as world:
        await world.report("n1", 24, 24, 24)
        await world.report("n2", 24, 24)
        pods = await create(world, "1Gi", ("e1", "e2"), exclusion="e")
        spread, together, plain = await asyncio.gather(
            create(world, "1Gi", ("z1", "z2", "z3"), anti_affinity="z"),
            create(world, "2Gi", ("x1", "x2", "x3"), affinity="x"),
            create(world, "3Gi", ("p1", "p2")),
        )
        pods += [*spread, *together, *plain]
        assert violations(placed(pods)) == []
    async with scheduler(apiserver, valkey, namespace) as world:
        await world.report("n1", 24, 24, 24)
        await world.report("n2", 24, 24)
        [follows] = await create(world, "2Gi", ("x4",), affinity="x")
        assert gpu_of(follows) == gpu_of(together[0])
        await create_pod(
            apiserver,
            namespace,
            pod_manifest("z4", {MEMORY: "1Gi"}, annotations={"plimsoll.dev/anti-affinity": "z"}),
        )
        refused = await world.until_refused("z4", "had GPUs with pods of the same anti-affinity label")
        kept = "had GPUs that pods with an exclusion label keep for themselves"
        assert kept in refused["status"]["conditions"][0]["message"]
        pods += [follows, *await create(world, "1Gi", ("e3",), exclusion="e")]
        assert violations(placed(pods)) == []
        await apiserver.must("DELETE", f"/api/v1/namespaces/{namespace}/pods/z2?gracePeriodSeconds=0")
        last = await world.until_bound("z4")
        assert violations(placed([*(one for one in pods if one is not spread[1]), last])) == []


async def test_a_forged_decision_takes_no_label_from_a_gpu(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str
) -> None:
    """Whatever somebody writes on a bound pod, its label keeps others out, and the next resize writes it again."""
    async with scheduler(apiserver, valkey, namespace) as world:
        await create_node(apiserver, "n1")
        await world.report("n1", 24)
        [pod] = await create(world, "1Gi", ("owner",), exclusion="e")
        decision = json.loads(pod["metadata"]["annotations"][DECISION])
        assert decision.pop("labels") == {"exclusion": "e"}
        forged = {DECISION: json.dumps(decision), "plimsoll.dev/exclusion": None}
        path = f"/api/v1/namespaces/{namespace}/pods/owner"
        await apiserver.must("PATCH", path, {"metadata": {"annotations": forged}})
        uid = PodUid(pod["metadata"]["uid"])

        def in_doubt(_: Object) -> bool:
            booking = world.ledger.booking(uid)
            return booking is not None and booking.doubt is not None

        await world.until("owner", in_doubt)
        await create_pod(apiserver, namespace, pod_manifest("other", {MEMORY: "1Gi"}))
        await world.until_refused("other", "GPUs that pods with an exclusion label keep for themselves")
        asked = Resize(pod="owner", namespace=namespace, gpu_memory="2Gi", container=ContainerName("main"))
        await world.parts.resizer.resize(asked)
        stored = json.loads((await world.pod("owner"))["metadata"]["annotations"][DECISION])
        assert stored["labels"] == {"exclusion": "e"}
