"""The models of the GPUs that each owner's pods have, so that replicas can stay on one model.

Source: S. Song et al., "Gaia Scheduler: A Kubernetes-based Scheduler Framework", ISPA 2018, §III.A: GPUs of several
models in one service are "resource pool pollution", with which "the cluster does not work properly".
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable

from plimsoll.events import NodeState
from plimsoll.ids import GpuUuid, PodUid


class OwnerModels:
    """Owner → models. A GPU that is in no report yet has no model, and ties no pod to one.

    What always holds: an answer takes as long for an owner of a thousand pods as for one of two.
    """

    def __init__(self) -> None:
        self._models: dict[GpuUuid, str] = {}  # a GPU never changes its model
        self._pods: defaultdict[str, dict[PodUid, tuple[GpuUuid, ...]]] = defaultdict(dict)
        # The number of the pods' GPUs, by owner and model.
        self._counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
        # The owner of each pod that is on such a GPU.
        self._unreported: defaultdict[GpuUuid, dict[PodUid, str]] = defaultdict(dict)
        self._asked: set[str] = set()  # owners whose models were asked for while they had pods
        self._listeners: list[Callable[[], None]] = []

    def on_freed(self, listener: Callable[[], None]) -> None:
        """Call `listener` when the last pod of an owner leaves, if models of that owner were asked for before."""
        self._listeners.append(listener)

    def learn(self, state: NodeState) -> None:
        """Take the models of the GPUs in a report."""
        for gpu in state.gpus:
            if gpu.uuid not in self._models:
                self._models[gpu.uuid] = gpu.model
                for owner in self._unreported.pop(gpu.uuid, {}).values():
                    self._counts[owner][gpu.model] += 1

    def add(self, owner: str, pod: PodUid, gpus: Iterable[GpuUuid]) -> None:
        """Count a pod that was booked, and is not counted yet."""
        given = tuple(dict.fromkeys(gpus))
        if not given:
            return
        self._pods[owner][pod] = given
        for gpu in given:
            if gpu in self._models:
                self._counts[owner][self._models[gpu]] += 1
            else:
                self._unreported[gpu][pod] = owner

    def remove(self, owner: str, pod: PodUid) -> None:
        """Stop counting a pod; a pod that is not counted is no error."""
        pods = self._pods.get(owner)
        given = pods.pop(pod, None) if pods is not None else None
        if given is None:
            return
        for gpu in given:
            if gpu in self._models:
                self._counts[owner][self._models[gpu]] -= 1
            else:
                self._unreported[gpu].pop(pod, None)
        if not pods:
            self._forget(owner)

    def of(self, owner: str | None, beside: PodUid) -> frozenset[str]:
        """The models of an owner's pods, but for one; none without such a pod, or for a pod without an owner."""
        pods = self._pods.get(owner) if owner is not None else None
        if not pods or owner is None:
            return frozenset()
        self._asked.add(owner)
        own = Counter(self._models[gpu] for gpu in pods.get(beside, ()) if gpu in self._models)
        return frozenset(model for model, gpus in self._counts[owner].items() if gpus > own[model])

    def _forget(self, owner: str) -> None:
        del self._pods[owner]
        self._counts.pop(owner, None)
        if owner in self._asked:
            self._asked.discard(owner)
            for listener in self._listeners:
                listener()
