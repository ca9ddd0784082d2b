"""A webhook on a real API server."""

from collections.abc import AsyncIterator

import pytest

from tests.placer.webhook.scene import Scene, scene
from tests.servers.apiserver import ApiServer

CLASSES = "/apis/node.k8s.io/v1/runtimeclasses"


@pytest.fixture
async def runtime_class(apiserver: ApiServer) -> AsyncIterator[None]:
    """NVIDIA's runtime class, which a pod may only name where it exists."""
    await apiserver.must("POST", CLASSES, {"metadata": {"name": "nvidia"}, "handler": "nvidia"})
    yield
    await apiserver.must("DELETE", f"{CLASSES}/nvidia")


@pytest.fixture
async def webhook(
    apiserver: ApiServer,
    namespace: str,
    runtime_class: None,  # noqa: ARG001 - must be there
) -> AsyncIterator[Scene]:
    """A webhook with the shipped rights and configuration."""
    async with scene(apiserver, namespace) as found:
        yield found
