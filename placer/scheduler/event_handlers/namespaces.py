"""Takes in what the watch shows of namespaces: their labels, and whether placing is paused."""

import asyncio
from dataclasses import dataclass, field

from placer.scheduler.failures.renewal import Renewal
from placer.scheduler.profile import Profile
from plimsoll.cordons import pause_of
from plimsoll.kube.models import Namespace
from plimsoll.kube.reflector import Added, Change, Deleted, Modified, Synced


@dataclass(frozen=True, slots=True)
class NamespaceEventHandler:
    """Passes the changes of namespaces on.

    Attributes:
        profile: takes namespaces, and the pause.
        renewal: learns of the pause, which is a reason of each node.
        own: the namespace whose annotation pauses placing, see `KubeOptions`.
        synced: set once all namespaces were read.
    """

    profile: Profile
    renewal: Renewal
    own: str
    synced: asyncio.Event = field(default_factory=asyncio.Event)

    def take(self, change: Change[Namespace]) -> None:
        """Take in a change of the watch."""
        match change:
            case Added(namespace) | Modified(namespace):
                meta = namespace.metadata
                self.profile.topology.namespace_changed(meta.name, meta.labels or {})
                self._pause(namespace.metadata.name, pause_of(namespace.metadata.annotations))
            case Deleted(namespace):
                self.profile.topology.namespace_changed(namespace.metadata.name, {})
                self._pause(namespace.metadata.name, None)
            case Synced():
                self.synced.set()

    def _pause(self, namespace: str, reason: str | None) -> None:
        if namespace == self.own:
            self.profile.cache.pause(reason)
            self.renewal.note()
