"""The pods without a node by their claims, so that a change of a claim finds the pods that wait for it."""

from collections import defaultdict
from collections.abc import Iterable

from placer.core.mounts import ClaimKey, Mounts
from plimsoll.ids import PodUid


class Waiters:
    """Pods by claim. A pod without claims costs nothing."""

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
