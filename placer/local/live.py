"""The local front end's pods for the live page."""

from collections.abc import Iterator
from dataclasses import dataclass

from placer.live.pods import PodName, asks
from placer.local.frontend import LocalFrontEnd
from plimsoll.ids import PodUid
from plimsoll.placer_api.live import WaitingPod


@dataclass(frozen=True, slots=True)
class LocalPods:
    """The pods of a front end; they have no priority."""

    front_end: LocalFrontEnd

    def name_of(self, uid: PodUid) -> PodName | None:
        """The name of a pod, or None for an unknown one."""
        row = self.front_end.pods.get(uid)
        return PodName(row.namespace, row.name) if row is not None else None

    def waiting(self) -> Iterator[WaitingPod]:
        """The pods without a node."""
        for row in self.front_end.pods.rows():
            if row.phase == "Pending":
                queued = self.front_end.queued(row.uid)
                yield WaitingPod(
                    pod=row.uid,
                    namespace=row.namespace,
                    name=row.name,
                    asks=asks(queued.request) if queued is not None else "",
                    reason=row.message,
                )
