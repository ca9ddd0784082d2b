"""Watches the storage objects, and passes each change on to the store.

What always holds: an object that cannot be read is logged by name and stops nothing.
"""

import asyncio
import math
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from placer.scheduler.plugins.volumes.store import StorageObject, VolumeStore
from plimsoll.kube.reflector import Added, Change, Deleted, Modified, Reflector, Synced, Timing
from plimsoll.kube.storage_models import (
    Claim,
    CsiDriver,
    CsiNode,
    StorageCapacity,
    StorageClass,
    Volume,
    VolumeAttachment,
)
from plimsoll.kube.transport import Transport

_STORAGE: Final = "/apis/storage.k8s.io/v1/"
_PATHS: Final[dict[str, type[StorageObject]]] = {
    "/api/v1/persistentvolumeclaims": Claim,
    "/api/v1/persistentvolumes": Volume,
    _STORAGE + "storageclasses": StorageClass,
    _STORAGE + "csinodes": CsiNode,
    _STORAGE + "csidrivers": CsiDriver,
    _STORAGE + "csistoragecapacities": StorageCapacity,
    _STORAGE + "volumeattachments": VolumeAttachment,
}


@dataclass(slots=True)
class VolumeWatches:
    """The watches of all storage objects.

    Attributes:
        transport: the connection to the API server.
        store: takes the objects.
        timing: the timing of each watch.
        synced: set once all lists were taken in.
    """

    transport: Transport
    store: VolumeStore
    timing: Timing
    synced: asyncio.Event = field(default_factory=asyncio.Event)
    _watches: list[Reflector[StorageObject]] = field(default_factory=list)
    _unlisted: set[str] = field(default_factory=lambda: set(_PATHS))

    def start(self, group: asyncio.TaskGroup) -> None:
        """Watch until the group ends."""
        for path, kind in _PATHS.items():
            take = partial(self._take, path)
            watch: Reflector[StorageObject] = Reflector(self.transport, path, kind, take, timing=self.timing)
            self._watches.append(watch)
            group.create_task(watch.run(), name=f"kube: watch {path.rpartition('/')[2]}")

    def broken_s(self) -> float:
        """The longest `Reflector.broken_s` of all watches; infinite before `start`."""
        return max((watch.broken_s() for watch in self._watches), default=math.inf)

    def _take(self, path: str, change: Change[StorageObject]) -> None:
        match change:
            case Added(item) | Modified(item):
                self.store.put(item)
            case Deleted(item):
                self.store.remove(item)
            case Synced():
                self._unlisted.discard(path)
                if not self._unlisted:
                    self.synced.set()
