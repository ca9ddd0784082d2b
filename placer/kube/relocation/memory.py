"""The memory of kept rooms, which outlives the placer that keeps them."""

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


class RoomMemory(Protocol):
    """Outlives this placer. Its methods take some seconds at most, and do not raise."""

    async def read(self) -> tuple[StoredRoom, ...]:
        """The rooms that were written last; none if they cannot be read."""

    async def write(self, rooms: tuple[StoredRoom, ...]) -> bool:
        """Store these rooms in place of all others; returns whether that was confirmed."""


class NoMemory:
    """Forgets everything."""

    async def read(self) -> tuple[StoredRoom, ...]:
        """See `RoomMemory`."""
        return ()

    async def write(self, rooms: tuple[StoredRoom, ...]) -> bool:  # noqa: ARG002 - as in `RoomMemory`
        """See `RoomMemory`."""
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
