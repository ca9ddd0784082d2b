"""The memory of relocations, which outlives the placer that carries them out."""

from typing import Protocol

import msgspec

from plimsoll.ids import NodeName
from plimsoll.kube.models import Container, Pod


class StoredRoom(msgspec.Struct, frozen=True):
    """A kept room, for the next leader.

    Attributes:
        moved: the pod that moves, without its programs and their environments, which nobody else should read.
        node: the node that has the room.
        since_s: when the room was first kept, in seconds since 1970.
    """

    moved: Pod
    node: NodeName
    since_s: float


class StoredRelocations(msgspec.Struct, frozen=True):
    """The record of relocations that the next leader goes on with.

    Attributes:
        rooms: the kept rooms.
        moves: by owner, when its pods were moved within the last hour, in seconds since 1970, oldest first.
    """

    rooms: tuple[StoredRoom, ...] = ()
    moves: dict[str, tuple[float, ...]] = {}


class RelocationMemory(Protocol):
    """Outlives this placer. Its methods take some seconds at most, and do not raise."""

    async def read(self) -> StoredRelocations:
        """The record that was written last; an empty one if it cannot be read."""

    async def write(self, relocations: StoredRelocations) -> bool:
        """Store this record in place of the last one; returns whether that was confirmed."""


class NoMemory:
    """Forgets everything."""

    async def read(self) -> StoredRelocations:
        """See `RelocationMemory`."""
        return StoredRelocations()

    async def write(self, relocations: StoredRelocations) -> bool:  # noqa: ARG002 - as in `RelocationMemory`
        """See `RelocationMemory`."""
        return True


def without_programs(pod: Pod) -> Pod:
    """A pod as decisions read it, without what its containers run: environments may hold secrets."""
    inits = pod.spec.initContainers
    spec = msgspec.structs.replace(
        pod.spec,
        containers=[_bare(one) for one in pod.spec.containers],
        initContainers=[_bare(one) for one in inits] if inits is not None else None,
    )
    return msgspec.structs.replace(pod, spec=spec)


def _bare(container: Container) -> Container:
    return msgspec.structs.replace(container, command=None, args=None, env=None)
