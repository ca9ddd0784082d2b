"""`docs/waiting-pods.md`: what `kubectl describe pod` says of ten pods that wait, word for word.

A real placer refuses the pods on a real API server. `UPDATE_DOCS=1` writes the document anew.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import yaml

from plimsoll.placer_api.client import PlacerClient
from plimsoll.placer_api.explain import Explained, PodState
from plimsoll_cli.demo.servers import EmbeddedServer
from tests.placer.arrivals import bus, publish, report
from tests.placer.core.worlds import gpu
from tests.placer.kube.objects import MEMORY, SHARE
from tests.placer.kube.world import condition
from tests.placer.placers import Placer, free_lease, placers
from tests.servers.apiserver import ApiServer, Object
from tests.servers.objects import create_node, create_pod, get_pod, pod_manifest
from tests.servers.waiting import until, until_true

DOCUMENT = Path(__file__).parents[4] / "docs" / "waiting-pods.md"
COUNT = "plimsoll.dev/gpu"

HEAD = """\
# Pods that wait

These are the texts of `kubectl describe pod` for ten pods that wait, word for word. A test writes them
(`tests/placer/scheduler/pods/test_waiting_pods.py`): it creates the pods on a real API server, and a real placer
refuses them. Ages and the name of the namespace are replaced.

The cluster has six nodes. `n1` has one NVIDIA L4 with 24Gi, of which a pod has 20Gi and 80 % of the compute time.
`n2` has one that belongs to one container alone. `n3` is cordoned, `n4` has the taint `team: b`, `n5` has no GPU, and
`n6` is not ready. A pod that fits nowhere waits until a node changes in a way that helps. `plimsoll explain` says
more about each: the reason of every node, and what would have to be freed. Each event is shown without the heads of
its columns: type, reason, age, from, message.
"""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A pod that waits.

    Attributes:
        name: its name.
        why: a sentence for people.
        limits: its container's.
        annotations: its annotations.
        spec: further fields of its spec.
    """

    name: str
    why: str
    limits: Mapping[str, str]
    annotations: Mapping[str, str] = field(default_factory=dict)
    spec: Object = field(default_factory=dict)

    def manifest(self) -> Object:
        """The pod, for the API server."""
        made = pod_manifest(self.name, self.limits, annotations=self.annotations)
        made["spec"] |= self.spec
        return made

    def shown(self) -> str:
        """The part of the manifest that matters, for people."""
        found: Object = {}
        if self.annotations:
            found["metadata"] = {"annotations": dict(self.annotations)}
        container = {"name": "main", "resources": {"limits": dict(self.limits)}}
        found["spec"] = {**self.spec, "containers": [container]}
        return yaml.safe_dump(found, sort_keys=False)


PODS = (
    Waiting("memory", "No GPU has 10Gi of memory left.", {MEMORY: "10Gi"}),
    Waiting("share", "No GPU has half of its compute time left.", {MEMORY: "1Gi", SHARE: "50"}),
    Waiting("whole", "Each GPU is in use, and the pod asks for a whole one.", {COUNT: "1"}),
    Waiting("two", "No node has two GPUs with 2Gi each.", {COUNT: "2", MEMORY: "4Gi"}),
    Waiting(
        "model",
        "No node has a GPU of the model.",
        {MEMORY: "1Gi"},
        annotations={"plimsoll.dev/gpu-model": "NVIDIA B200"},
    ),
    Waiting(
        "named",
        "No node has the GPU.",
        {MEMORY: "1Gi"},
        annotations={"plimsoll.dev/gpu-id": "GPU-5a1c0d2e"},
    ),
    Waiting(
        "cpu",
        "No node has 100 CPUs. The placer does not check the GPUs of such a node.",
        {MEMORY: "1Gi", "cpu": "100"},
    ),
    Waiting("selector", "No node has the label.", {MEMORY: "1Gi"}, spec={"nodeSelector": {"zone": "moon"}}),
    Waiting(
        "typo",
        "An annotation is misspelt. Only a change of the pod helps, so the placer does not try it again.",
        {MEMORY: "1Gi", SHARE: "20"},
        annotations={"plimsoll.dev/gpu-share-limt": "40"},
    ),
    Waiting(
        "claim",
        "The pod uses a feature that the placer does not have; it is refused by name, and never placed without it.",
        {},
        spec={"resourceClaims": [{"name": "gpu", "resourceClaimName": "mine"}]},
    ),
)


async def make_nodes(api: ApiServer) -> None:
    """The nodes that the document describes."""
    for name in ("n1", "n2", "n3", "n5"):
        await create_node(api, name)
    await api.must("PATCH", "/api/v1/nodes/n3", {"spec": {"unschedulable": True}})
    await create_node(api, "n4", taints=[{"key": "team", "value": "b", "effect": "NoSchedule"}])
    await create_node(api, "n6", ready=False)


async def until_condition(api: ApiServer, namespace: str, name: str) -> None:
    """Wait until the pod's condition says why it waits."""

    async def is_told() -> bool:
        return bool(condition(await get_pod(api, namespace, name)).get("message"))

    await until(is_told)


async def described(api: ApiServer, namespace: str, name: str) -> str:
    """The pod's event, as kubectl prints it."""
    text = ""

    async def has_event() -> bool:
        nonlocal text
        text = await api.kubectl("describe", "pod", name, f"--namespace={namespace}")
        return "FailedScheduling" in text

    await until(has_event)
    events = "\n".join(text[text.index("Events:") :].splitlines()[3:])  # without the heads of its columns
    events = re.sub(r"(?<= )(\d+[smh])+( \(x\d+ over \w+\))?(?=  )", "<age>", events)
    events = re.sub(r"(?<=\S) {2,}", "  ", events)  # the width of a column depends on the age
    return events.strip().replace(namespace, "team-a")


async def check_explained(placer: Placer, api: ApiServer, namespace: str) -> None:
    """The placer explains each pod over HTTP by the same refusal, and counts each node once."""
    port = (await placer.until("http ready")).port
    async with PlacerClient(f"http://127.0.0.1:{port}") as client:
        for one in PODS:
            found = msgspec.json.decode(await client.explain(namespace, one.name), type=Explained)
            told = condition(await get_pod(api, namespace, one.name))["message"]
            assert found.leads
            assert found.waiting is not None
            assert found.waiting.message == told
            if one.name in {"typo", "claim"}:
                assert found.state is PodState.REFUSED
            else:
                assert found.state is PodState.WAITING
                assert sum(reason.nodes for reason in found.waiting.reasons) == found.waiting.nodes == 6
        runs = msgspec.json.decode(await client.explain(namespace, "holder"), type=Explained)
        assert runs.running is not None
        assert (runs.running.node, runs.running.policy) == ("n1", "headroom")


async def test_the_texts_of_waiting_pods_are_those_of_the_document(
    tmp_path: Path, nats: EmbeddedServer, valkey: EmbeddedServer, apiserver: ApiServer, namespace: str
) -> None:
    """Each text in the document is what kubectl prints about such a pod."""
    await free_lease(apiserver)
    settings = {"nats_url": nats.url, "redis_url": valkey.url, "kubeconfig": str(apiserver.kubeconfig())}
    async with bus(nats) as jetstream, placers(tmp_path, **settings) as running:
        await make_nodes(apiserver)
        await publish(
            jetstream, *(report(name, gpus=(gpu(f"GPU-{name}"),)) for name in ("n1", "n2", "n3", "n4", "n6"))
        )
        placer = await running.start("plimsoll-placer")
        for name, node, limits in (
            ("holder", "n1", {MEMORY: "20Gi", SHARE: "80"}),
            ("owner", "n2", {COUNT: "1"}),
        ):
            holder = pod_manifest(name, limits)
            holder["spec"]["nodeSelector"] = {"kubernetes.io/hostname": node}
            await create_pod(apiserver, namespace, holder)
        await until_true(lambda: {"holder", "owner"} <= set(placer.placed()))
        parts = [HEAD]
        for one in PODS:
            await create_pod(apiserver, namespace, one.manifest())
            await until_condition(apiserver, namespace, one.name)
            text = await described(apiserver, namespace, one.name)
            parts.append(f"\n## {one.name}\n\n{one.why}\n\n```yaml\n{one.shown()}```\n\n```\n{text}\n```\n")
        await check_explained(placer, apiserver, namespace)
    document = "".join(parts)
    if os.environ.get("UPDATE_DOCS"):
        DOCUMENT.write_text(document)
    assert DOCUMENT.read_text() == document, "UPDATE_DOCS=1 writes the document anew"
