"""The binding of claims without a server: writes happen only under the Lease, and each change ends the wait."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import cast

import pytest

from placer.core.mounts import ClaimKey, mounts_of
from placer.scheduler.binding.volumes import ClaimsNotBoundError, VolumeBinder
from placer.scheduler.plugins.volume_binding import AssumedVolumes, revert
from placer.scheduler.plugins.volumes.store import VolumeStore
from plimsoll.ids import NodeName, PodUid
from plimsoll.kube.lease import Lease, LeasedTransport
from plimsoll.kube.transport import Body, PatchKind, Transport
from tests.placer.scheduler.plugins.volumes.objects import (
    BOUND,
    SELECTED_NODE,
    claim_of,
    class_of,
    no_volumes,
    on_nodes_with,
    user_of,
    volume_of,
)

NODE, LABELS = NodeName("n"), {"zone": "a"}


@dataclass(slots=True)
class Written:
    """Answers each patch, and keeps it. No server can be asked for a write without the Lease."""

    patches: list[tuple[str, Body]] = field(default_factory=list)

    async def patch(self, path: str, body: Body, kind: PatchKind) -> bytes:
        """See `Transport`."""
        assert kind is PatchKind.MERGE
        self.patches.append((path, body))
        return b'{"metadata": {"resourceVersion": "5"}}'


@dataclass(slots=True)
class Scene:
    """A claim that is reserved for a node, and the binder that binds it."""

    written: Written
    store: VolumeStore
    binder: VolumeBinder
    reserved: AssumedVolumes
    nodes: dict[NodeName, Mapping[str, str]]

    def claim(self, version: int, node: str | None = NODE, volume: str = "") -> None:
        """The watch shows the claim in this version."""
        notes = ({SELECTED_NODE: node} if node else {}) | (BOUND if volume else {})
        self.store.put(
            claim_of("c", {"resourceVersion": str(version), "annotations": notes}, volumeName=volume)
        )

    def volume(self, zone: str) -> None:
        """The watch shows the claim's volume, which is in this zone."""
        self.store.put(volume_of("v", nodeAffinity=on_nodes_with("zone", zone)))


def scene(
    timeout_s: float = 600.0, around: Callable[[Transport], Transport] = lambda transport: transport
) -> Scene:
    """A pod's claim, reserved for the node."""
    volumes, written = no_volumes(), Written()
    volumes.store.put(class_of())
    volumes.store.put(claim_of())
    pod = user_of("p", "c")
    reserved = volumes.reserve(pod, mounts_of(pod), NODE, LABELS)
    assert reserved is not None
    nodes: dict[NodeName, Mapping[str, str]] = {NODE: LABELS}
    transport = around(cast("Transport", written))
    binder = VolumeBinder(transport, volumes.store, nodes.get, asyncio.Semaphore(1), timeout_s)
    return Scene(written, volumes.store, binder, reserved, nodes)


async def test_no_volume_is_written_without_the_lease() -> None:
    """A placer that does not hold the Lease writes nothing; its assumption is dropped in the end."""

    def leased(transport: Transport) -> Transport:
        return LeasedTransport(transport, Lease(transport, "default", "lease", "me"))

    made = scene(0.2, leased)
    with pytest.raises(ClaimsNotBoundError, match="context deadline exceeded"):
        await made.binder.bind(made.reserved, lambda: True)
    assert not made.written.patches
    revert(made.store, made.reserved)
    claim = made.store.claims.get(ClaimKey("default", "c"))
    assert claim is not None
    assert not claim.metadata.annotations


async def test_bind_ends_once_the_claim_is_bound_to_a_volume_that_the_node_reaches() -> None:
    """The write names the version that was read. Earlier versions that the watch shows late do not count."""
    made = scene()
    task = asyncio.create_task(made.binder.bind(made.reserved, lambda: True))
    await asyncio.sleep(0.01)
    ((path, body),) = made.written.patches
    assert path == "/api/v1/namespaces/default/persistentvolumeclaims/c"
    assert body == {
        "metadata": {
            "uid": "uid-c",
            "resourceVersion": "1",
            "annotations": {SELECTED_NODE: "n"},
        }
    }
    made.claim(4, node=None)  # before the write
    made.claim(6, volume="v")  # the watch of volumes is later
    await asyncio.sleep(0.01)
    assert not task.done()
    made.volume("a")
    await task


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda made: made.claim(6, node=None), 'provisioning failed for PVC "c"'),
        (lambda made: made.claim(6, node="other"), 'provisioning failed for PVC "c"'),
        (lambda made: made.store.remove(claim_of()), 'persistentvolumeclaim "c" not found'),
        (
            lambda made: (made.volume("b"), made.claim(6, volume="v")),
            'pv "v" node affinity doesn\'t match node "n"',
        ),
        (lambda made: (made.nodes.clear(), made.binder.note_nodes()), 'failed to get node "n": not found'),
    ],
)
async def test_change_that_makes_the_place_useless_ends_the_wait(
    change: Callable[[Scene], object], problem: str
) -> None:
    """A pod does not wait for what cannot come any more."""
    made = scene()
    task = asyncio.create_task(made.binder.bind(made.reserved, lambda: True))
    await asyncio.sleep(0.01)
    change(made)
    with pytest.raises(ClaimsNotBoundError) as caught:
        await task
    assert str(caught.value) == problem


async def test_pod_that_is_gone_ends_the_wait() -> None:
    """Nothing waits for a pod that was deleted, or that somebody else bound."""
    made, wanted = scene(), [True]
    task = asyncio.create_task(made.binder.bind(made.reserved, lambda: bool(wanted)))
    await asyncio.sleep(0.01)
    wanted.clear()
    made.binder.note_pod(PodUid("p"))
    with pytest.raises(ClaimsNotBoundError, match="pod does not exist any more"):
        await task
    assert not made.binder._by_claim
    assert not made.binder._by_pod
