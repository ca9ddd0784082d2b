"""Watches the storage objects, and passes each change on to the index of volumes.

What always holds: an object that cannot be read is logged by name and stops nothing.
"""

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from placer.scheduler.plugins.volumes.index import Volumes
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

Put = Callable[[Any], None]


@dataclass(slots=True)
class VolumeWatches:
    """The watches of all storage objects.

    Attributes:
        transport: the connection to the API server.
        volumes: takes the objects.
        timing: the timing of each watch.
        synced: set once all lists were taken in.
    """

    transport: Transport
    volumes: Volumes
    timing: Timing
    synced: asyncio.Event = field(default_factory=asyncio.Event)
    _watches: list[Reflector[Any]] = field(default_factory=list)
    _unlisted: set[str] = field(default_factory=set)

    def start(self, group: asyncio.TaskGroup) -> None:
        """Watch until the group ends."""
        to, core, storage = self.volumes, "/api/v1/", "/apis/storage.k8s.io/v1/"
        self._start(group, core + "persistentvolumeclaims", Claim, to.put_claim, to.remove_claim)
        self._start(group, core + "persistentvolumes", Volume, to.put_volume, to.remove_volume)
        self._start(group, storage + "storageclasses", StorageClass, to.put_class, to.remove_class)
        self._start(group, storage + "csinodes", CsiNode, to.put_node, to.remove_node)
        self._start(group, storage + "csidrivers", CsiDriver, to.put_driver, to.remove_driver)
        self._start(
            group, storage + "csistoragecapacities", StorageCapacity, to.put_capacity, to.remove_capacity
        )
        self._start(
            group, storage + "volumeattachments", VolumeAttachment, to.put_attachment, to.remove_attachment
        )

    def broken_s(self) -> float:
        """The longest `Reflector.broken_s` of all watches; infinite before `start`."""
        return max((watch.broken_s() for watch in self._watches), default=math.inf)

    def _start(self, group: asyncio.TaskGroup, path: str, kind: type, put: Put, remove: Put) -> None:
        def emit(change: Change[Any]) -> None:
            match change:
                case Added(item) | Modified(item):
                    put(item)
                case Deleted(item):
                    remove(item)
                case Synced():
                    self._unlisted.discard(path)
                    if not self._unlisted:
                        self.synced.set()

        self._unlisted.add(path)
        watch: Reflector[Any] = Reflector(self.transport, path, kind, emit, timing=self.timing)
        self._watches.append(watch)
        group.create_task(watch.run(), name=f"kube: watch {path.rpartition('/')[2]}")
