"""The models of the GPUs that each owner's pods have, so that replicas can stay on one model.

Source: S. Song et al., "Gaia Scheduler: A Kubernetes-based Scheduler Framework", ISPA 2018, §III.A: GPUs of several
models in one service are "resource pool pollution", with which "the cluster does not work properly".
"""

from collections import defaultdict
from collections.abc import Callable, Iterable

from plimsoll.events import NodeState
from plimsoll.ids import GpuUuid, PodUid


class OwnerModels:
    """Owner → models. A GPU of which no report came has no model yet, and ties nobody to one."""

    def __init__(self) -> None:
        self._models: dict[GpuUuid, str] = {}  # a GPU never changes its model
        self._pods: defaultdict[str, dict[PodUid, tuple[GpuUuid, ...]]] = defaultdict(dict)
        self._asked: set[str] = set()  # owners whose models were asked for while they had pods
        self._listeners: list[Callable[[], None]] = []

    def on_freed(self, listener: Callable[[], None]) -> None:
        """Call `listener` when the last pod of an owner leaves, if models of that owner were asked for before."""
        self._listeners.append(listener)

    def learn(self, state: NodeState) -> None:
        """Take the models of the GPUs in a report."""
        for gpu in state.gpus:
            self._models[gpu.uuid] = gpu.model

    def add(self, owner: str, pod: PodUid, gpus: Iterable[GpuUuid]) -> None:
        """Count a pod that was booked."""
        given = tuple(gpus)
        if given:
            self._pods[owner][pod] = given

    def remove(self, owner: str, pod: PodUid) -> None:
        """Stop counting a pod; a pod that is not counted is no error."""
        pods = self._pods.get(owner)
        if pods is None or pods.pop(pod, None) is None or pods:
            return
        del self._pods[owner]
        if owner in self._asked:
            self._asked.discard(owner)
            for listener in self._listeners:
                listener()

    def of(self, owner: str | None, beside: PodUid) -> frozenset[str]:
        """The models of an owner's pods, but for one; none without such a pod, or for a pod without an owner."""
        pods = self._pods.get(owner) if owner is not None else None
        if not pods or owner is None:
            return frozenset()
        self._asked.add(owner)
        gpus = (gpu for pod, given in pods.items() if pod != beside for gpu in given)
        return frozenset(self._models[gpu] for gpu in gpus if gpu in self._models)
