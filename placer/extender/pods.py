"""The pods of other schedulers that ask for GPUs and wait for a node.

The extender binds such pods without reading them first. A new leader must know them too: a bind of the earlier
leader may still arrive for them (`placer.scheduler.binding.scope`). So they are kept also by a placer that serves no
extender.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from plimsoll.contract import SCHEDULER_NAME, asks_gpu
from plimsoll.ids import PodUid
from plimsoll.kube.models import TERMINAL_PHASES, Pod


@dataclass(slots=True)
class OutsidePods:
    """By uid, each pod as the watch showed it last."""

    _pods: dict[PodUid, Pod] = field(default_factory=dict)

    def put(self, pod: Pod) -> None:
        """Learn of a pod that is new or changed."""
        uid = PodUid(pod.metadata.uid)
        ended = pod.spec.nodeName or pod.status.phase in TERMINAL_PHASES
        if not ended and pod.spec.schedulerName != SCHEDULER_NAME and asks_gpu(pod):
            self._pods[uid] = pod
        else:
            self._pods.pop(uid, None)

    def remove(self, pod: Pod) -> None:
        """Forget a pod that is gone. An unknown pod is no error."""
        self._pods.pop(PodUid(pod.metadata.uid), None)

    def get(self, uid: PodUid) -> Pod | None:
        """The pod, or None if it does not wait, asks for no GPU, or was not shown yet."""
        return self._pods.get(uid)

    def __iter__(self) -> Iterator[Pod]:
        return iter(self._pods.values())
