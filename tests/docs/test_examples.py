"""The examples in docs/examples, applied with kubectl to a real API server that asks our webhook."""

import json
import re
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from plimsoll.demand import parse_pod, relocation_cost_of
from plimsoll.kube.models import decode_pod
from tests.placer.webhook.scene import Scene, scene
from tests.servers.apiserver import ApiServer, Object
from tests.servers.waiting import until

EXAMPLES: Final = Path(__file__).parents[2] / "docs" / "examples"
STORED: Final = "pod-as-stored.yaml"
"""Not for applying: tests/placer/webhook/test_readme_pod.py writes it."""

RUNTIME_CLASSES: Final = "/apis/node.k8s.io/v1/runtimeclasses"

ASKED: Final[dict[str, dict[str, Any]]] = {
    "first-pod.yaml": {"first": {"gib": 4, "share": 30}},
    "notebook.yaml": {"notebook": {"gib": 6, "share": 10}},
    "trainer.yaml": {"trainer": {"gib": 16, "share": 50}},
    "inference.yaml": {"inference": {"gib": 10, "share": 40, "limit": 80, "anti_affinity": "inference"}},
    "two-gpus.yaml": {
        "two-gpus": {"gpus": 2, "gib": 20, "share": 50, "policy": "topology", "cpu_affinity": True}
    },
    "best-effort.yaml": {"best-effort": {"best_effort": True}},
    "whole-gpu.yaml": {"whole-gpu": {"whole": True, "models": ("NVIDIA H100 80GB HBM3", "NVIDIA H200")}},
    "priorities.yaml": {
        "serving": {"gib": 16, "share": 60, "priority": 1000},
        "batch": {"gib": 12, "share": 40, "priority": -1000},
    },
    "relocation.yaml": {"movable": {"gib": 4, "share": 20, "cost": 1.0}, "wide": {"gib": 20, "share": 90}},
}
"""The demand of each object's pods on each of their GPUs, by file and object. The rest is the default."""


@pytest.fixture(scope="module", name="webhook")
async def _webhook(session_apiserver: ApiServer) -> AsyncIterator[Scene]:
    """One webhook for all examples, on a cluster with NVIDIA's runtime class."""
    api, namespace = session_apiserver, f"examples-{uuid.uuid4().hex[:8]}"
    await api.must("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
    await api.must("POST", RUNTIME_CLASSES, {"metadata": {"name": "nvidia"}, "handler": "nvidia"})
    async with scene(api, namespace) as found:
        yield found
    await api.must("DELETE", f"{RUNTIME_CLASSES}/nvidia")
    await api.purge_namespace(namespace)


@pytest.mark.parametrize("file", ASKED)
async def test_an_example_is_applied_as_it_stands(webhook: Scene, file: str) -> None:
    """The server takes the file, a second time without a change, and each pod asks for what the example is about."""
    kubectl = webhook.api.kubectl
    where = (f"--namespace={webhook.namespace}", f"--filename={EXAMPLES / file}")
    try:
        await kubectl("apply", *where)
        objects = await _objects(webhook, where)
        await kubectl("apply", *where)
        assert [one.get("spec") for one in await _objects(webhook, where)] == [
            one.get("spec") for one in objects
        ]
        asked = {
            one["metadata"]["name"]: _asked(await _stored(webhook, pod))
            for one in objects
            if (pod := _pod(one)) is not None
        }
        assert asked == ASKED[file]
    finally:
        await kubectl("delete", "--ignore-not-found", "--force", "--wait=false", *where)


def test_the_index_names_every_example() -> None:
    """Each file stands in the index once, and all but the stored pod are applied here."""
    named = re.findall(r"^\| \[([^]]*)\]\(\1\) \|", (EXAMPLES / "index.md").read_text(), re.MULTILINE)
    assert sorted(named) == sorted(path.name for path in EXAMPLES.glob("*.yaml"))
    assert set(named) == {*ASKED, STORED}


async def _objects(webhook: Scene, where: tuple[str, ...]) -> list[Object]:
    """The objects of a file as the server has them."""
    found = json.loads(await webhook.api.kubectl("get", "--output=json", *where))
    objects: list[Object] = found.get("items", [found])
    return objects


def _pod(one: Object) -> Object | None:
    """The pod of an object as its controller would make it; no controller runs here. None for one without pods."""
    if one["kind"] == "Pod":
        return {"metadata": {"annotations": one["metadata"].get("annotations", {})}, "spec": one["spec"]}
    if "template" not in one.get("spec", {}):
        return None
    template = one["spec"]["template"]
    claims = [
        {"name": name, "persistentVolumeClaim": {"claimName": f"{name}-{one['metadata']['name']}-0"}}
        for name in (claim["metadata"]["name"] for claim in one["spec"].get("volumeClaimTemplates", []))
    ]
    spec = {**template["spec"], "volumes": [*template["spec"].get("volumes", []), *claims]}
    return {"metadata": template["metadata"], "spec": spec}


async def _stored(webhook: Scene, pod: Object) -> Object:
    """The pod as the API server would store it, once it knows the pod's priority class, which takes a moment."""
    made = {**pod, "metadata": {**pod["metadata"], "name": "tried"}}

    async def stored() -> Object | None:
        answer = await webhook.create(made, dry=True)
        is_early = "no PriorityClass with name" in answer.get("message", "")
        return None if is_early else answer

    found = await until(stored)
    assert found is not None
    return found


def _asked(pod: Object) -> dict[str, Any]:
    """The demand of the pod's only container on each GPU, without defaults; asserts that it has the library."""
    assert pod["kind"] == "Pod", pod
    assert [one["csi"]["driver"] for one in pod["spec"]["volumes"] if one["name"] == "plimsoll"] == [
        "plimsoll.dev"
    ]
    decoded = decode_pod(msgspec.json.encode(pod))
    demand = parse_pod(decoded)
    [one] = demand.containers
    found = {
        "gpus": one.gpus - 1 and one.gpus,
        "gib": one.memory_bytes and one.memory_bytes / (1 << 30),
        "share": one.share_pct,
        "limit": one.limit_pct % 100,
        "whole": one.whole,
        "best_effort": one.best_effort,
        "models": demand.gpu_models,
        "policy": demand.policy,
        "cpu_affinity": demand.cpu_affinity,
        "anti_affinity": demand.locality.stated.anti_affinity,
        "cost": relocation_cost_of(decoded.metadata.annotations or {}),
        "priority": pod["spec"]["priority"],
    }
    return {name: value for name, value in found.items() if value}
