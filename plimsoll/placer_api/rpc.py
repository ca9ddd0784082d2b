"""Requests to a live placer over NATS, and their answers: JSON, outside the stream (see `plimsoll.subjects`).

What always holds: every request that can be read gets exactly one answer, and one that is sent again does no harm.
"""

from typing import Final, Protocol

from msgspec import Struct

from plimsoll.broker.wire import Line
from plimsoll.ids import ContainerName, NodeName, PodUid
from plimsoll.quantity import format_bytes

DEFAULT_NAMESPACE: Final = "default"


class Resize(Struct, frozen=True, kw_only=True):
    """Change what a running container may have of its GPUs: all that is asked together, or nothing.

    Attributes:
        pod: the pod's name.
        gpu_memory: its line as a quantity, in total over its GPUs as in the pod itself, split evenly.
        gpu_share: compute time guaranteed, in percent of one GPU, in total and split likewise.
        gpu_share_limit: compute time at most, in percent of each GPU.
        container: whose; None where the pod has only one container with a GPU.
    """

    pod: str
    gpu_memory: str | None = None
    gpu_share: str | None = None
    gpu_share_limit: str | None = None
    namespace: str = DEFAULT_NAMESPACE
    container: ContainerName | None = None

    @property
    def asks_nothing(self) -> bool:
        """None of the three is given."""
        return self.gpu_memory is None and self.gpu_share is None and self.gpu_share_limit is None

    def asked_of(self, terms: "Terms") -> dict[str, int]:
        """Of what holds on one GPU, that which this asks to change, by its name for people."""
        asked = {
            "line": (self.gpu_memory, terms.line_bytes),
            "share": (self.gpu_share, terms.share_pct),
            "limit": (self.gpu_share_limit, terms.limit_pct),
        }
        return {name: value for name, (wanted, value) in asked.items() if wanted is not None}


class Terms(Protocol):
    """What a container has on one GPU, as a line or an event says it."""

    @property
    def line_bytes(self) -> int:
        """Memory."""

    @property
    def share_pct(self) -> int:
        """Compute time guaranteed."""

    @property
    def limit_pct(self) -> int:
        """Compute time at most."""


class Resizing(Struct, frozen=True, kw_only=True, tag="resizing"):
    """The ledger allows it and it is written; the node's broker applies it, and tells by `limit.resized` per GPU.

    Attributes:
        before, after: one for each GPU. Equal where the same was asked before: nothing new is announced then.
    """

    node: NodeName
    pod: PodUid
    container: ContainerName
    before: tuple[Line, ...]
    after: tuple[Line, ...]


class Refused(Struct, frozen=True, kw_only=True, tag="refused"):
    """Nothing was changed; the message names field, value and remedy."""

    message: str


class Failed(Struct, frozen=True, kw_only=True, tag="failed"):
    """It is not known to have been changed: something that the placer needs is away. Ask again later."""

    message: str


Answer = Resizing | Refused | Failed


def change_shown(request: Resize, before: Terms, after: Terms) -> str:
    """What changed on one GPU, for people: `line 4Gi -> 6Gi, share 30 % -> 40 %`."""
    old = request.asked_of(before)
    return ", ".join(
        f"{name} {_shown(name, old[name])} -> {_shown(name, value)}"
        for name, value in request.asked_of(after).items()
    )


def terms_shown(request: Resize, terms: Terms) -> str:
    """What holds on one GPU of that which was asked, for people: `line 6Gi, share 40 %`."""
    return ", ".join(f"{name} {_shown(name, value)}" for name, value in request.asked_of(terms).items())


def _shown(name: str, value: int) -> str:
    return format_bytes(value) if name == "line" else f"{value} %"
