"""A resize as it is requested and answered: in a ticket on a pod of Kubernetes, or of a command of `plimsoll run`.

Repeating a request is harmless.
"""

from typing import Final, Protocol

from msgspec import Struct

from plimsoll.broker.wire import Line
from plimsoll.ids import ContainerName, NodeName, PodUid
from plimsoll.quantity import format_bytes

DEFAULT_NAMESPACE: Final = "default"


class Resize(Struct, frozen=True, kw_only=True):
    """Change a running container's line, share or share limit: all requested changes together, or none.

    Attributes:
        pod: the pod's name.
        gpu_memory: the new line as a quantity, in total over the container's GPUs as in the pod itself, split evenly.
        gpu_share: guaranteed compute time, in percent of one GPU, in total and split likewise.
        gpu_share_limit: the most compute time, in percent of each GPU.
        container: the container's name; None where the pod has only one container with a GPU, apart from init
            containers.
    """

    pod: str
    gpu_memory: str | None = None
    gpu_share: str | None = None
    gpu_share_limit: str | None = None
    namespace: str = DEFAULT_NAMESPACE
    container: ContainerName | None = None

    @property
    def asks_nothing(self) -> bool:
        """Whether none of the three changes is given."""
        return self.gpu_memory is None and self.gpu_share is None and self.gpu_share_limit is None

    def asked_of(self, terms: "LineTerms") -> dict[str, int]:
        """The terms that this request changes, as they are in `terms`, by their names for people."""
        asked = {
            "line": (self.gpu_memory, terms.line_bytes),
            "share": (self.gpu_share, terms.share_pct),
            "limit": (self.gpu_share_limit, terms.limit_pct),
        }
        return {name: value for name, (wanted, value) in asked.items() if wanted is not None}


class LineTerms(Protocol):
    """A container's limits on one GPU; lines and events both have these fields."""

    @property
    def line_bytes(self) -> int:
        """The most GPU memory."""

    @property
    def share_pct(self) -> int:
        """Guaranteed compute time, in percent of the GPU."""

    @property
    def limit_pct(self) -> int:
        """The most compute time, in percent of the GPU."""


class Resizing(Struct, frozen=True, kw_only=True, tag="resizing"):
    """The ledger allowed the change, and the pod has it. The broker applies it and announces `resized` for each GPU.

    Attributes:
        before, after: a line for each GPU. They are equal if the same change was requested before; the broker then
            announces nothing new.
    """

    node: NodeName
    pod: PodUid
    container: ContainerName
    before: tuple[Line, ...]
    after: tuple[Line, ...]


class Refused(Struct, frozen=True, kw_only=True, tag="refused"):
    """The request was refused and nothing changed; the message names field, value and remedy."""

    message: str


class Failed(Struct, frozen=True, kw_only=True, tag="failed"):
    """The change is not known to have happened, because a server that the placer needs is away. Ask again later."""

    message: str


ResizeAnswer = Resizing | Refused | Failed


def change_shown(request: Resize, before: LineTerms, after: LineTerms) -> str:
    """The changes on one GPU, for people: `line 4Gi -> 6Gi, share 30 % -> 40 %`."""
    old = request.asked_of(before)
    return ", ".join(
        f"{name} {_shown(name, old[name])} -> {_shown(name, value)}"
        for name, value in request.asked_of(after).items()
    )


def _shown(name: str, value: int) -> str:
    return format_bytes(value) if name == "line" else f"{value} %"
