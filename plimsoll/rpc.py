"""Requests to a live placer over NATS, and their answers: JSON, outside the stream (see `plimsoll.subjects`).

What always holds: every request that can be read gets exactly one answer, and one that is sent again does no harm.
"""

from typing import Final

from msgspec import Struct

from plimsoll.names import ContainerName, GpuUuid, NodeName, PodUid

DEFAULT_NAMESPACE: Final = "default"


class Resize(Struct, frozen=True, kw_only=True):
    """Change the line of a running container.

    Attributes:
        pod: the pod's name.
        gpu_memory: a quantity, in total over the container's GPUs as in the pod itself, split evenly.
        container: whose line; None where the pod has only one container with a GPU.
    """

    pod: str
    gpu_memory: str
    namespace: str = DEFAULT_NAMESPACE
    container: ContainerName | None = None


class Resizing(Struct, frozen=True, kw_only=True, tag="resizing"):
    """The ledger allows it and it is written; the node's broker applies it, and tells by `limit.resized` per GPU.

    Attributes:
        before, lines: bytes by GPU. Equal where the same was asked before: nothing new is announced then.
    """

    node: NodeName
    pod: PodUid
    container: ContainerName
    before: dict[GpuUuid, int]
    lines: dict[GpuUuid, int]


class Refused(Struct, frozen=True, kw_only=True, tag="refused"):
    """Nothing was changed; the message names field, value and remedy."""

    message: str


class Failed(Struct, frozen=True, kw_only=True, tag="failed"):
    """It is not known to have been changed: something that the placer needs is away. Ask again later."""

    message: str


Answer = Resizing | Refused | Failed
