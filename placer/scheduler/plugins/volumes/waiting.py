"""The claims of pods in the scheduler's loop: the pods that wait for one, and the binding of those of a placed pod.

What always holds: a pod without claims costs nothing here.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from placer.core.mounts import ClaimKey, Mounts, mounts_of
from placer.scheduler.clock import loop_now_s
from placer.scheduler.plugins.volumes.binder import ClaimsNotBoundError, VolumeBinder
from placer.scheduler.plugins.volumes.reservation import VolumeReservation, give_up, reserve
from placer.scheduler.plugins.volumes.watches import VolumeWatches
from placer.scheduler.profile import Profile
from placer.scheduler.queue.queue import Queue
from plimsoll.ids import NodeName, PodUid
from plimsoll.kube.models import Pod


class Waiters:
    """The pods without a node by their claims, so that a change of a claim finds the pods that wait for it.

    A pod without claims costs nothing.
    """

    def __init__(self) -> None:
        self._claims: dict[PodUid, Mounts] = {}
        self._pods: defaultdict[ClaimKey, dict[PodUid, None]] = defaultdict(dict)

    def add(self, uid: PodUid, mounts: Mounts) -> None:
        """Add a pod; to add it again does no harm."""
        if mounts.claims:
            self._claims[uid] = mounts
            for use in mounts.claims:
                self._pods[use.claim][uid] = None

    def remove(self, uid: PodUid) -> None:
        """Remove a pod; an unknown one is no error."""
        mounts = self._claims.pop(uid, None)
        if mounts is None:
            return
        for use in mounts.claims:
            del self._pods[use.claim][uid]
            if not self._pods[use.claim]:
                del self._pods[use.claim]

    def of(self, claim: ClaimKey) -> Iterable[PodUid]:
        """The pods that use a claim."""
        return tuple(self._pods.get(claim, ()))

    def everybody(self) -> Iterable[PodUid]:
        """All pods with claims."""
        return tuple(self._claims)


@dataclass(slots=True)
class PodClaims:
    """The claims of a cluster's pods.

    Attributes:
        profile: the nodes, and the index of volumes.
        queue: the pods that wait.
        watches: see `VolumeWatches`.
        binder: see `VolumeBinder`.
    """

    profile: Profile
    queue: Queue
    watches: VolumeWatches
    binder: VolumeBinder
    _waiters: Waiters = field(default_factory=Waiters)

    def __post_init__(self) -> None:
        self.profile.volumes.on_claim(lambda claim: self._claims_changed(self._waiters.of(claim)))
        self.profile.volumes.on_any_claim(lambda: self._claims_changed(self._waiters.everybody()))

    def note_waiting(self, pod: Pod) -> None:
        """Note a pod that waits for a node."""
        self._waiters.add(PodUid(pod.metadata.uid), mounts_of(pod))

    def forget_waiting(self, uid: PodUid) -> None:
        """Note that a pod does not wait for a node any more."""
        self._waiters.remove(uid)

    def note_end(self, uid: PodUid) -> None:
        """Note that a pod is gone, or that somebody bound it."""
        self.binder.note_pod(uid)

    def reserve(self, pod: Pod, mounts: Mounts, node: NodeName) -> VolumeReservation | None:
        """See `placer.scheduler.plugins.volumes.reservation.reserve`."""
        return reserve(self.profile.volumes, pod, mounts, node, self.profile.cache.labels_of(node) or {})

    async def bind(self, reserved: VolumeReservation) -> str | None:
        """Bind the claims of an assumed pod; returns the problem in kube-scheduler's words, or None.

        Cancelling leaves open what was written.
        """
        uid = PodUid(reserved.pod.uid)
        try:
            await self.binder.bind(reserved, lambda: self.profile.cache.is_assumed(uid))
        except ClaimsNotBoundError as error:
            return f'running PreBind plugin "VolumeBinding": binding volumes: {error}'
        finally:
            give_up(self.profile.volumes, reserved)
        return None

    def _claims_changed(self, uids: Iterable[PodUid]) -> None:
        for uid in uids:
            self.queue.claim_changed(uid, loop_now_s())
