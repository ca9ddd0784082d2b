"""Reserve and PreBind of VolumeBinding: writes what the controller of claims needs, and waits until they are bound.

Follows Kubernetes 1.36, plugin `volumebinding` (`BindPodVolumes`). What always holds: each write names the version of
the object that the decision read. The pod is bound only after all its claims are, to volumes that its node reaches.
The wait ends by changes that the watches show, after `BIND_TIMEOUT_S`, or when the pod is gone. Nothing that was
written is taken back: provisioner and controller own it then.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec

from placer.core.mounts import ClaimKey, Mounts, mounts_of
from placer.scheduler.clock import loop_now_s
from placer.scheduler.plugins.volume_binding import (
    AssumedVolumes,
    DynamicProvision,
    StaticBinding,
    revert,
)
from placer.scheduler.plugins.volumes.objects import PersistentVolume, is_bound, key_of
from placer.scheduler.plugins.volumes.store import VolumeStore
from placer.scheduler.plugins.volumes.watches import VolumeWatches
from placer.scheduler.profile import Profile
from placer.scheduler.queue.queue import Queue
from plimsoll.ids import NodeName, PodUid
from plimsoll.kube.models import Named, ObjectMeta, Pod
from plimsoll.kube.storage_models import BOUND_BY_CONTROLLER, SELECTED_NODE, Claim, Volume
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
        store: the volumes and claims, as the watches show them.
        labels_of: the labels of a node; None for a node that does not exist.
        permits: one for each write that may be under way together with others.
        timeout_s: see `BIND_TIMEOUT_S`.
    """

    transport: Transport
    store: VolumeStore
    labels_of: Callable[[NodeName], Mapping[str, str] | None]
    permits: asyncio.Semaphore
    timeout_s: float = BIND_TIMEOUT_S
    _by_claim: defaultdict[ClaimKey, set[asyncio.Event]] = field(default_factory=lambda: defaultdict(set))
    _by_pod: dict[PodUid, asyncio.Event] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.store.on_claim(self._note_claim)

    def note_pod(self, uid: PodUid) -> None:
        """Note that a pod is gone, or has a node."""
        if uid in self._by_pod:
            self._by_pod[uid].set()

    def note_nodes(self) -> None:
        """Note that nodes left, or changed their labels."""
        for event in self._by_pod.values():
            event.set()

    async def bind(self, assumed: AssumedVolumes, is_wanted: Callable[[], bool]) -> None:
        """Bind the claims of a pod; returns once all are bound. Cancelling leaves open what was written.

        Args:
            assumed: the claims and their volumes.
            is_wanted: whether the pod still waits for its node.

        Raises:
            ClaimsNotBoundError: the claims cannot be bound for this node, or not in time.
        """
        volumes = assumed.volumes
        if volumes.reasons:
            raise ClaimsNotBoundError(", ".join(volumes.reasons))
        uid, changed = PodUid(assumed.pod.uid), asyncio.Event()
        claims = [one.claim for one in volumes.static] + [one.claim for one in volumes.dynamic]
        keys = [key_of(claim.metadata) for claim in claims]
        self._by_pod[uid] = changed
        for key in keys:
            self._by_claim[key].add(changed)
        try:
            async with asyncio.timeout(self.timeout_s):
                await self._write(assumed)
                while not self._is_done(assumed, is_wanted):
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

    def _note_claim(self, key: ClaimKey | None) -> None:
        if key is not None:  # a class means nothing to claims whose volumes are chosen
            for event in self._by_claim.get(key, ()):
                event.set()

    async def _write(self, assumed: AssumedVolumes) -> None:
        for one in assumed.volumes.static:
            if one.needs_write:
                path = f"/api/v1/persistentvolumes/{one.volume.name}"
                one.version = await self._patch(path, _volume_patch(one.volume.api))
        for claim in assumed.volumes.dynamic:
            if claim.needs_write:
                meta = claim.claim.metadata
                path = f"/api/v1/namespaces/{meta.namespace}/persistentvolumeclaims/{meta.name}"
                claim.version = await self._patch(path, _patch_of(meta, {SELECTED_NODE: assumed.node}))

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

    def _is_done(self, assumed: AssumedVolumes, is_wanted: Callable[[], bool]) -> bool:
        """Whether all claims are bound.

        Raises:
            ClaimsNotBoundError: something makes the node or its volumes useless for the pod.
        """
        node, volumes = assumed.node, assumed.volumes
        labels = self.labels_of(node)
        if labels is None:
            raise ClaimsNotBoundError(f'failed to get node "{node}": not found')
        if not is_wanted():
            raise ClaimsNotBoundError("pod does not exist any more")
        return all(self._is_matched(one, node, labels) for one in volumes.static) and all(
            self._is_provisioned(one, node, labels) for one in volumes.dynamic
        )

    def _is_matched(self, one: StaticBinding, node: NodeName, labels: Mapping[str, str]) -> bool:
        volume = self.store.volumes.shown(one.volume.name)
        if volume is None:
            raise ClaimsNotBoundError(f'persistentvolume "{one.volume.name}" not found')
        claim = self._shown(one.claim)
        if _is_older(volume.api.metadata, one.version):
            return False
        _check_reach(volume, node, labels)
        ref = volume.api.spec.claimRef
        if ref is None or ref.uid != claim.metadata.uid:
            raise ClaimsNotBoundError(f'ClaimRef got reset for pv "{volume.name}"')
        return is_bound(claim)

    def _is_provisioned(self, one: DynamicProvision, node: NodeName, labels: Mapping[str, str]) -> bool:
        claim, name = self._shown(one.claim), one.claim.metadata.name
        if claim.metadata.uid != one.claim.metadata.uid:
            raise ClaimsNotBoundError(f'persistentvolumeclaim "{name}" was made anew')
        if _is_older(claim.metadata, one.version):
            return False
        if (claim.metadata.annotations or {}).get(SELECTED_NODE) != node:
            raise ClaimsNotBoundError(f'provisioning failed for PVC "{name}"')
        volume = self.store.volumes.shown(claim.spec.volumeName or "")
        if volume is None:
            return False  # the watch of volumes may be later than that of claims
        _check_reach(volume, node, labels)
        return is_bound(claim)

    def _shown(self, assumed: Claim) -> Claim:
        """A claim as the watch showed it last."""
        claim = self.store.claims.shown(key_of(assumed.metadata))
        if claim is None:
            raise ClaimsNotBoundError(f'persistentvolumeclaim "{assumed.metadata.name}" not found')
        return claim


@dataclass(slots=True)
class VolumeBinding:
    """Binds the claims of pods that have a place, and wakes pods that wait for their claims.

    What always holds: a pod without claims costs nothing here.

    Attributes:
        profile: the nodes, and the volumes.
        queue: the pods that wait.
        watches: see `VolumeWatches`.
        binder: see `VolumeBinder`.
    """

    profile: Profile
    queue: Queue
    watches: VolumeWatches
    binder: VolumeBinder
    _waiting: dict[PodUid, Mounts] = field(default_factory=dict)
    _by_claim: defaultdict[ClaimKey, dict[PodUid, None]] = field(default_factory=lambda: defaultdict(dict))

    def __post_init__(self) -> None:
        self.profile.volumes.store.on_claim(self._claim_changed)

    def note_waiting(self, pod: Pod) -> None:
        """Note a pod that waits for a node; to note it again does no harm."""
        mounts, uid = mounts_of(pod), PodUid(pod.metadata.uid)
        if mounts.claims:
            self._waiting[uid] = mounts
            for use in mounts.claims:
                self._by_claim[use.claim][uid] = None

    def forget_waiting(self, uid: PodUid) -> None:
        """Note that a pod does not wait for a node any more."""
        mounts = self._waiting.pop(uid, None)
        for use in mounts.claims if mounts is not None else ():
            del self._by_claim[use.claim][uid]
            if not self._by_claim[use.claim]:
                del self._by_claim[use.claim]

    def reserve(self, pod: Pod, mounts: Mounts, node: NodeName) -> AssumedVolumes | None:
        """See `VolumePlugins.reserve`."""
        return self.profile.volumes.reserve(pod, mounts, node, self.profile.cache.labels_of(node) or {})

    async def pre_bind(self, assumed: AssumedVolumes) -> str | None:
        """Bind the claims of an assumed pod; returns the problem in kube-scheduler's words, or None.

        Cancelling leaves open what was written.
        """
        uid = PodUid(assumed.pod.uid)
        try:
            await self.binder.bind(assumed, lambda: self.profile.cache.is_assumed(uid))
        except ClaimsNotBoundError as error:
            return f'running PreBind plugin "VolumeBinding": binding volumes: {error}'
        finally:
            revert(self.profile.volumes.store, assumed)
        return None

    def _claim_changed(self, claim: ClaimKey | None) -> None:
        """Try pods again whose claim changed; None: any claim may have changed."""
        uids: Iterable[PodUid] = self._waiting if claim is None else self._by_claim.get(claim, ())
        for uid in tuple(uids):
            self.queue.claim_changed(uid, loop_now_s())


def _check_reach(volume: PersistentVolume, node: NodeName, labels: Mapping[str, str]) -> None:
    if not volume.reaches(labels):
        raise ClaimsNotBoundError(f'pv "{volume.name}" node affinity doesn\'t match node "{node}"')


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
