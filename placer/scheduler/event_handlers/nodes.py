"""Takes in what the watch shows of nodes.

What always holds: a heartbeat of a node changes nothing. A node that cannot be read is not used, and is logged.
"""

import asyncio
from dataclasses import dataclass, field

from placer.scheduler.binding.volumes import VolumeBinder
from placer.scheduler.failures.renewal import Renewal
from placer.scheduler.profile import Profile
from plimsoll.cordons import CORDONED_GPUS, cordoned_gpus, nameless
from plimsoll.ids import NodeName
from plimsoll.kube.models import Node
from plimsoll.kube.reflector import Added, Change, Deleted, Modified, Synced
from plimsoll.part.errors import InputError
from plimsoll.part.log import get_logger


@dataclass(frozen=True, slots=True)
class NodeEventHandler:
    """Passes the changes of nodes on.

    Attributes:
        profile: the nodes with their pods, and what plugins read of a node.
        binder: learns that nodes changed, because claims may wait for one.
        renewal: learns that nodes changed.
        synced: set once all nodes were read.
    """

    profile: Profile
    binder: VolumeBinder
    renewal: Renewal
    synced: asyncio.Event = field(default_factory=asyncio.Event)

    def take(self, change: Change[Node]) -> None:
        """Take in a change of the watch."""
        match change:
            case Synced():
                self.synced.set()
            case Modified(node) if self._is_heartbeat(node, change.old):
                pass
            case Added(node) | Modified(node):
                self.renewal.note()
                self.binder.note_nodes()
                self._warn_of_cordons(node, change.old if isinstance(change, Modified) else None)
                try:
                    self.profile.cache.put_node(node)
                except InputError as error:
                    get_logger().error("node not used", node=node.metadata.name, error=str(error))
            case Deleted(node):
                self.profile.cache.remove_node(NodeName(node.metadata.name))
                self.binder.note_nodes()
                self.renewal.note()

    def _warn_of_cordons(self, node: Node, old: Node | None) -> None:
        """Log the entries of its annotation that cordon nothing, once for each change of it."""
        cordoned = cordoned_gpus(node.metadata.annotations)
        if old is not None and cordoned == cordoned_gpus(old.metadata.annotations):
            return
        if wrong := nameless(cordoned):
            get_logger().warning(
                "entries of a node's annotation cordon nothing",
                node=node.metadata.name,
                annotation=CORDONED_GPUS,
                entries=wrong,
                remedy="give UUIDs of its GPUs with commas between them, or run `plimsoll cordon`",
            )

    def _is_heartbeat(self, node: Node, old: Node) -> bool:
        """Whether nothing changed that is read here."""
        new, before, reads = node.metadata, old.metadata, self.profile.framework.reads
        return (
            (node.spec, node.status, new.labels) == (old.spec, old.status, before.labels)
            # Other annotations change often, and matter to nothing here but to a plugin that says so.
            and cordoned_gpus(new.annotations) == cordoned_gpus(before.annotations)
            and reads(node) == reads(old)
        )
