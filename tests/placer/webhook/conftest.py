"""A webhook on a real API server."""

from collections.abc import AsyncIterator

import pytest

from tests.placer.webhook.scene import Scene, scene
from tests.servers.apiserver import ApiServer

CLASSES = "/apis/node.k8s.io/v1/runtimeclasses"


@pytest.fixture
async def webhook(apiserver: ApiServer, namespace: str) -> AsyncIterator[Scene]:
    """A webhook as shipped, on a cluster with NVIDIA's runtime class."""
    await apiserver.must("POST", CLASSES, {"metadata": {"name": "nvidia"}, "handler": "nvidia"})
    async with scene(apiserver, namespace) as found:
        yield found
    await apiserver.must("DELETE", f"{CLASSES}/nvidia")
