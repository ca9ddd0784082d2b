"""The GPUs that have names, by the pods that give these: each name has one GPU, until its last pod leaves.

Names are KubeShare's GPUIDs (`plimsoll.dev/gpu-id`) and affinity labels. Where somebody else bound pods of one name
to several GPUs, the GPU of the pod that was booked first has the name.
"""

from collections.abc import Callable

from plimsoll.ids import GpuUuid, NodeName, PodUid

GpuKey = tuple[NodeName, GpuUuid]


class Holders:
    """The pods of each name, with their GPUs."""

    def __init__(self) -> None:
        self._named: dict[str, dict[PodUid, GpuKey]] = {}
        self._listeners: list[Callable[[], None]] = []

    def on_freed(self, listener: Callable[[], None]) -> None:
        """Call `listener` when a name has no GPU any more."""
        self._listeners.append(listener)

    def add(self, name: str, pod: PodUid, gpu: GpuKey) -> None:
        """Count a pod that has a name, and thus gives it to this GPU."""
        self._named.setdefault(name, {})[pod] = gpu

    def remove(self, name: str, pod: PodUid) -> bool:
        """Stop counting a pod; returns whether it was the last of its name. The caller then calls `freed`."""
        named = self._named.get(name, {})
        if named.pop(pod, None) is None or named:
            return False
        del self._named[name]
        return True

    def freed(self) -> None:
        """Call the listeners."""
        for listener in self._listeners:
            listener()

    def gpu(self, name: str) -> GpuKey | None:
        """The node and the GPU that have a name; None for a name without a GPU."""
        return next(iter(self._named.get(name, {}).values()), None)
