"""The README's pod, as printed there, applied with kubectl through the webhook: `docs/examples` has what is stored.

`PLIMSOLL_UPDATE=1` writes the file anew.
"""

import asyncio
import os
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml

from plimsoll.dialects import Json
from tests.placer.webhook.scene import Scene, scene
from tests.servers.apiserver import ApiServer

ROOT = Path(__file__).parents[3]
STORED = ROOT / "docs" / "examples" / "pod-as-stored.yaml"
OF_THE_SERVER = ("uid", "resourceVersion", "creationTimestamp", "managedFields", "generation", "namespace")
HEADING = (
    "# The pod of the README as the API server stored it, without the fields that differ from pod to pod.\n"
)


@pytest.fixture
async def webhook(apiserver: ApiServer, namespace: str) -> AsyncIterator[Scene]:
    """A webhook as shipped, on a cluster with NVIDIA's runtime class."""
    classes = "/apis/node.k8s.io/v1/runtimeclasses"
    await apiserver.must("POST", classes, {"metadata": {"name": "nvidia"}, "handler": "nvidia"})
    async with scene(apiserver, namespace) as found:
        yield found
    await apiserver.must("DELETE", f"{classes}/nvidia")


async def test_the_pod_as_printed_is_stored_with_all_it_needs(webhook: Scene) -> None:
    """`kubectl apply` of the README's pod gives the pod that the documents show; applied again, nothing changes."""
    printed = await asyncio.to_thread(_printed)
    path = f"/api/v1/namespaces/{webhook.namespace}/pods/trainer"
    await webhook.api.kubectl("apply", f"--namespace={webhook.namespace}", "--filename=-", stdin=printed)
    stored = await webhook.api.get(path)
    await webhook.api.kubectl("apply", f"--namespace={webhook.namespace}", "--filename=-", stdin=printed)
    assert await webhook.api.get(path) == stored
    shown = await asyncio.to_thread(_shown, stored)
    if os.environ.get("PLIMSOLL_UPDATE"):
        await asyncio.to_thread(STORED.write_text, shown)
    assert await asyncio.to_thread(STORED.read_text) == shown


def _printed() -> str:
    [pod] = re.findall(r"```yaml\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    return str(pod)


def _shown(stored: Json) -> str:
    """The pod as YAML, without what the API server fills in for this one pod."""
    for name in OF_THE_SERVER:
        stored["metadata"].pop(name, None)
    stored["metadata"].get("annotations", {}).pop("kubectl.kubernetes.io/last-applied-configuration", None)
    if not stored["metadata"].get("annotations"):
        stored["metadata"].pop("annotations", None)
    del stored["status"]
    return HEADING + yaml.safe_dump(stored, sort_keys=False)
