"""On a real API server, preferred constraints lead to the nodes that a real kube-scheduler chooses too."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from plimsoll_cli.demo.servers import EmbeddedServer
from tests.placer.kube.world import scheduler
from tests.placer.scheduler.plugins.topology.rules import evenly, far, near
from tests.placer.scheduler.plugins.topology.test_on_api_server import HOST, ZONE
from tests.placer.scheduler.preemption.test_servers import SIDES, kube_scheduler
from tests.servers.apiserver import ApiServer, Object
from tests.servers.objects import create_node, create_pod, get_pod, pod_manifest
from tests.servers.waiting import until


def replica(name: str, app: str, spec: Object) -> Object:
    """A pod of an app, without GPU."""
    manifest = pod_manifest(name, {"cpu": "100m"})
    manifest["metadata"]["labels"] = {"app": app}
    manifest["spec"] |= spec
    return manifest


def both(first: Object, second: Object) -> Object:
    """A spec with the affinity of two."""
    return {"affinity": {**first["affinity"], **second["affinity"]}}


@dataclass(frozen=True)
class Case:
    """A new pod's wishes and the pods that have a node.

    Attributes:
        spec: the wishes; apps and values of labels are the same on both sides.
        pods: by node, the apps of its pods.
        chosen: the only node that both schedulers take.
    """

    spec: Object
    pods: Mapping[str, tuple[str, ...]]
    chosen: str


# On each side: n1 and n2 in zone a, n3 in zone b, n4 in zone c.
CASES: Final = {
    "evenly": Case(evenly("x", ZONE), {"n1": ("x",), "n3": ("x", "x")}, "n4"),
    "zones-and-nodes": Case(
        {
            "topologySpreadConstraints": [
                *evenly("x", ZONE)["topologySpreadConstraints"],
                *evenly("x", HOST)["topologySpreadConstraints"],
            ]
        },
        {"n1": ("x", "x", "x"), "n3": ("x", "x", "x"), "n4": ("x", "x", "x")},
        "n2",
    ),
    "near": Case(near("cache", ZONE), {"n1": ("y",), "n3": ("cache",), "n4": ("y",)}, "n3"),
    "far": Case(far("noise", HOST), {"n1": ("noise",), "n2": ("noise",), "n4": ("noise", "noise")}, "n3"),
    "far-zone": Case(far("noise", ZONE), {"n2": ("noise",), "n3": ("noise",)}, "n4"),
    "weights": Case(
        both(near("cache", ZONE, 60), far("noise", ZONE, 90)),
        {"n1": ("cache",), "n3": ("cache", "cache", "noise"), "n4": ("noise",)},
        "n1 n2",
    ),
}


async def build(api: ApiServer, namespace: str, side: str, label: str, case: Case) -> None:
    """Make the nodes and bound pods of one side, in domains of its own, and then the new pod."""
    prefix, place = f"{label}-{side}-", {"side": f"{label}-{side}"}
    for node, zone in (("n1", "a"), ("n2", "a"), ("n3", "b"), ("n4", "c")):
        await create_node(api, prefix + node, labels={ZONE: prefix + zone, **place})
        for number, app in enumerate(case.pods.get(node, ())):
            await create_pod(
                api, namespace, replica(f"{prefix}{node}-{number}", app, {"nodeName": prefix + node})
            )
    wanted = replica(prefix + "p", "x", {"nodeSelector": place, **case.spec})
    wanted["spec"]["schedulerName"] = "default-scheduler" if side == "kube" else "plimsoll"
    await create_pod(api, namespace, wanted)


async def test_kube_scheduler_takes_the_same_nodes(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str, tmp_path: Path
) -> None:
    """Where kube-scheduler's scores are decisive, the placer takes the same node."""
    for label, case in CASES.items():
        for side in SIDES:
            await build(apiserver, namespace, side, label, case)
    async with kube_scheduler(apiserver, tmp_path), scheduler(apiserver, valkey, namespace):
        for label, case in CASES.items():
            for side in SIDES:
                prefix = f"{label}-{side}-"

                async def node_of(pod: str = prefix + "p") -> str:
                    return str((await get_pod(apiserver, namespace, pod))["spec"].get("nodeName", ""))

                node = await until(node_of)
                assert node.removeprefix(prefix) in case.chosen.split(), (label, side)
