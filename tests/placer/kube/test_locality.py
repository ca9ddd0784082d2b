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
from tests.placer.locality import Placed
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
        await world.parts.doors.resizer.resize(asked)
        stored = json.loads((await world.pod("owner"))["metadata"]["annotations"][DECISION])
        assert stored["labels"] == {"exclusion": "e"}
