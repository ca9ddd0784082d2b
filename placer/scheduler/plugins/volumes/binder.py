"""Binds the claims of placed pods: writes what the controller needs, and waits until it has bound them.

Follows Kubernetes 1.36, plugin `volumebinding` (`BindPodVolumes`). What always holds: each write names the version of
the object that the decision read. The pod is bound only after all its claims are, to volumes that its node reaches.
The wait ends by changes that the watches show, after `BIND_TIMEOUT_S`, or when the pod is gone. Nothing that was
written is taken back: provisioner and controller own it then.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec

from placer.core.mounts import ClaimKey
from placer.scheduler.plugins.volumes.ask import is_bound
from placer.scheduler.plugins.volumes.index import Volumes
from placer.scheduler.plugins.volumes.reservation import ClaimStep, VolumeReservation, VolumeStep
from placer.scheduler.plugins.volumes.shelf import known_volume
from plimsoll.ids import NodeName, PodUid
from plimsoll.kube.models import Named, ObjectMeta
from plimsoll.kube.storage_models import BOUND_BY_CONTROLLER, SELECTED_NODE, Volume
from plimsoll.kube.transport import ApiError, PatchKind, TransientError, Transport
from plimsoll.part.backoff import Pauses
from plimsoll.part.ending import heed_cancellation
from plimsoll.part.errors import PlimsollError
from plimsoll.part.log import get_logger

BIND_TIMEOUT_S: Final = 600.0
"""The longest time that claims may take, as in kube-scheduler (`bindTimeoutSeconds`)."""


class ClaimsNotBoundError(PlimsollError):
    """The claims of a pod cannot be bound for its node; the message is for people. Decide on the pod again."""


@dataclass(slots=True)
class VolumeBinder:
    """Binds claims on the API server.

    Attributes:
        transport: the connection to the API server; its writes happen only while this placer leads.
        volumes: the volumes, as the watches show them.
        labels_of: the labels of a node; None for a node that does not exist.
        permits: one for each write that may be under way together with others.
        timeout_s: see `BIND_TIMEOUT_S`.
    """

    transport: Transport
    volumes: Volumes
    labels_of: Callable[[NodeName], Mapping[str, str] | None]
    permits: asyncio.Semaphore
    timeout_s: float = BIND_TIMEOUT_S
    _by_claim: defaultdict[ClaimKey, set[asyncio.Event]] = field(default_factory=lambda: defaultdict(set))
    _by_pod: dict[PodUid, asyncio.Event] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.volumes.on_claim(self._note_claim)

    def note_pod(self, uid: PodUid) -> None:
        """Note that a pod is gone, or has a node."""
        if uid in self._by_pod:
            self._by_pod[uid].set()

    def note_nodes(self) -> None:
        """Note that nodes left, or changed their labels."""
        for event in self._by_pod.values():
            event.set()

    async def bind(self, reserved: VolumeReservation, is_wanted: Callable[[], bool]) -> None:
        """Bind the claims of a pod; returns once all are bound. Cancelling leaves open what was written.

        Args:
            reserved: the claims and their volumes.
            is_wanted: whether the pod still waits for its node.

        Raises:
            ClaimsNotBoundError: the claims cannot be bound for this node, or not in time.
        """
        if reserved.problem:
            raise ClaimsNotBoundError(reserved.problem)
        uid, changed = PodUid(reserved.pod.uid), asyncio.Event()
        keys = [step.claim for step in reserved.volumes] + [one.claim for one in reserved.claims]
        self._by_pod[uid] = changed
        for key in keys:
            self._by_claim[key].add(changed)
        try:
            async with asyncio.timeout(self.timeout_s):
                await self._write(reserved)
                while not self._is_done(reserved, is_wanted):
                    heed_cancellation()
                    await changed.wait()
                    changed.clear()
        except TimeoutError as error:
            names = ", ".join(sorted({key.name for key in keys}))
            message = f"context deadline exceeded; claims not bound within {self.timeout_s:.0f} s: {names}"
            raise ClaimsNotBoundError(message) from error
        finally:
            if self._by_pod.get(uid) is changed:
                del self._by_pod[uid]
            for key in keys:
                self._by_claim[key].discard(changed)
                if not self._by_claim[key]:
                    del self._by_claim[key]

    def _note_claim(self, key: ClaimKey) -> None:
        for event in self._by_claim.get(key, ()):
            event.set()

    async def _write(self, reserved: VolumeReservation) -> None:
        for step in reserved.volumes:
            if step.is_open:
                step.version = await self._patch(
                    _volume_path(step.volume.metadata), _volume_patch(step.volume)
                )
                step.is_open = False
        for one in reserved.claims:
            if one.is_open:
                meta = one.assumed.metadata
                annotations = {SELECTED_NODE: reserved.node}
                one.version = await self._patch(_claim_path(meta), _patch_of(meta, annotations))
                one.is_open = False

    async def _patch(self, path: str, body: Mapping[str, object]) -> str:
        """Write until the API server answers; returns the new version.

        Raises:
            ClaimsNotBoundError: the object changed since the decision, or is gone, or the write is refused.
        """
        pauses = Pauses()
        while True:
            heed_cancellation()
            try:
                async with self.permits:
                    answer = await self.transport.patch(path, body, PatchKind.MERGE)
                return msgspec.json.decode(answer, type=Named).metadata.resourceVersion
            except (TransientError, msgspec.MsgspecError) as error:
                # The write may have happened. The same again conflicts then, and the next decision reads the result.
                get_logger().warning("volume write unanswered", path=path, error=str(error))
                await asyncio.sleep(pauses.next_s())  # the API server is away
            except ApiError as error:
                raise ClaimsNotBoundError(str(error)) from error

    def _is_done(self, reserved: VolumeReservation, is_wanted: Callable[[], bool]) -> bool:
        """Whether all claims are bound.

        Raises:
            ClaimsNotBoundError: something makes the node or its volumes useless for the pod.
        """
        labels = self.labels_of(reserved.node)
        if labels is None:
            raise ClaimsNotBoundError(f'failed to get node "{reserved.node}": not found')
        if not is_wanted():
            raise ClaimsNotBoundError("pod does not exist any more")
        return all(self._is_matched(step, reserved.node, labels) for step in reserved.volumes) and all(
            self._is_provisioned(one, reserved.node, labels) for one in reserved.claims
        )

    def _is_matched(self, step: VolumeStep, node: NodeName, labels: Mapping[str, str]) -> bool:
        name = step.volume.metadata.name
        volume, claim = self.volumes.storage.shown_volume(name), self.volumes.storage.shown_claim(step.claim)
        if volume is None:
            raise ClaimsNotBoundError(f'persistentvolume "{name}" not found')
        if claim is None:
            raise ClaimsNotBoundError(f'persistentvolumeclaim "{step.claim.name}" not found')
        if _is_older(volume.metadata, step.version):
            return False
        _check_reach(volume, node, labels)
        ref = volume.spec.claimRef
        if ref is None or ref.uid != claim.metadata.uid:
            raise ClaimsNotBoundError(f'ClaimRef got reset for pv "{name}"')
        return is_bound(claim)

    def _is_provisioned(self, step: ClaimStep, node: NodeName, labels: Mapping[str, str]) -> bool:
        claim = self.volumes.storage.shown_claim(step.claim)
        if claim is None:
            raise ClaimsNotBoundError(f'persistentvolumeclaim "{step.claim.name}" not found')
        if claim.metadata.uid != step.assumed.metadata.uid:
            raise ClaimsNotBoundError(f'persistentvolumeclaim "{step.claim.name}" was made anew')
        if _is_older(claim.metadata, step.version):
            return False
        if (claim.metadata.annotations or {}).get(SELECTED_NODE) != node:
            raise ClaimsNotBoundError(f'provisioning failed for PVC "{step.claim.name}"')
        if not claim.spec.volumeName:
            return False
        volume = self.volumes.storage.shown_volume(claim.spec.volumeName)
        if volume is None:
            return False  # the watch of volumes may be later than that of claims
        _check_reach(volume, node, labels)
        return is_bound(claim)


def _check_reach(volume: Volume, node: NodeName, labels: Mapping[str, str]) -> None:
    if not known_volume(volume).reaches(labels):
        name = volume.metadata.name
        raise ClaimsNotBoundError(f'pv "{name}" node affinity doesn\'t match node "{node}"')


def _is_older(meta: ObjectMeta, version: str) -> bool:
    """Whether the watch has not shown a write yet."""
    return bool(version) and int(meta.resourceVersion) < int(version)


def _volume_patch(volume: Volume) -> dict[str, object]:
    ref, marked = volume.spec.claimRef, BOUND_BY_CONTROLLER in (volume.metadata.annotations or {})
    assert ref is not None, "an assumed volume names its claim"
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "namespace": ref.namespace,
        "name": ref.name,
        "uid": ref.uid,
    }
    annotations = {BOUND_BY_CONTROLLER: "yes"} if marked else {}
    return {**_patch_of(volume.metadata, annotations), "spec": {"claimRef": claim}}


def _patch_of(meta: ObjectMeta, annotations: Mapping[str, str]) -> dict[str, object]:
    """A change of annotations; uid and version are preconditions."""
    version = {"uid": meta.uid, "resourceVersion": meta.resourceVersion}
    return {"metadata": {**version, "annotations": dict(annotations)}}


def _volume_path(meta: ObjectMeta) -> str:
    return f"/api/v1/persistentvolumes/{meta.name}"


def _claim_path(meta: ObjectMeta) -> str:
    return f"/api/v1/namespaces/{meta.namespace}/persistentvolumeclaims/{meta.name}"
