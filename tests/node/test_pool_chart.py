"""The pool as a cluster runs it: the controller and its reservations from the image, with the chart's rights."""

import uuid
from collections.abc import AsyncIterator

import pytest

from tests.node.cards import watching
from tests.node.driver import UUIDS
from tests.node.node import Node, program_pod
from tests.node.pool import NAMESPACE, Pool, running_plugin
from tests.node.progress import say
from tests.node.release import Release, installed, missing_images
from tests.node.tenants import GPU_KEY, template
from tests.placer.webhook.scene import RESTRICTED

pytestmark = [pytest.mark.node, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
async def pool(node: Node) -> AsyncIterator[Pool]:
    """The device plugin."""
    if missing := missing_images():
        pytest.skip(f"no images: {', '.join(missing)}; remedy: `make e2e-kube` builds them")
    async with running_plugin(node) as found:
        yield found


@pytest.fixture(scope="module")
async def release(node: Node, pool: Pool) -> AsyncIterator[Release]:
    """The chart with a pool."""
    assert pool.plugin.is_running
    async with installed(node, pool={"enabled": True, "namespace": NAMESPACE}) as found:
        yield found


async def test_a_reservation_of_the_image_names_its_card(node: Node, pool: Pool, release: Release) -> None:
    """In a `restricted` namespace, by NVML. A pod that shares gets the card, and a native pod the other one."""
    assert release.nats.is_running
    name = f"tenants-{uuid.uuid4().hex[:8]}"
    await node.api.must("POST", "/api/v1/namespaces", {"metadata": {"name": name, "labels": RESTRICTED}})
    await node.until_account(name)
    async with watching(node, NAMESPACE) as watch:
        await node.create(name, template("shares", "sleep", "600"))
        pod = await node.until_ready(name, "shares")
        card = pod["metadata"]["annotations"][GPU_KEY]
        await pool.until_cards(card)
        [reservation] = await pool.reservations()
        spec = reservation["spec"]
        say("a reservation", image=spec["initContainers"][0]["image"], priority=spec["priority"], card=card)
        assert spec["priorityClassName"] == "plimsoll"
        space = "default"
        await node.until_account(space)
        native = program_pod(
            "native", "sleep", "600", limits={"nvidia.com/gpu": "1"}, runtimeClassName="nvidia"
        )
        await node.create(space, native)
        await node.until_ready(space, "native")
        holders = await watch.look()
        assert {one: bool(holders[one].native) for one in UUIDS} == {one: one != card for one in UUIDS}
        await node.delete(name, "shares")
        await pool.until_cards()
        await node.delete(space, "native")
    assert not watch.double
    await node.remove_namespace(name)
