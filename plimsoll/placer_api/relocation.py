"""The answer of `GET /v1/relocation`: the pods that would move for a waiting pod, or to free a whole GPU.

What always holds: the answer is a plan of its own moment, and asking changes nothing.
"""

from msgspec import Struct

from plimsoll.ids import GpuUuid, NodeName


class MoveRow(Struct, frozen=True, kw_only=True):
    """A pod that would move.

    Attributes:
        pod: `<namespace>/<name>`.
        cost: stated by its owner.
        node, gpus: the place that it would leave.
        to, to_gpus: the place that would be kept for its replacement.
    """

    pod: str
    cost: float
    node: NodeName
    gpus: tuple[GpuUuid, ...]
    to: NodeName
    to_gpus: tuple[GpuUuid, ...]


class ObstacleCount(Struct, frozen=True, kw_only=True):
    """The number of pods with GPUs that may not be moved, for this reason first."""

    reason: str
    pods: int


class RelocationPreview(Struct, frozen=True, kw_only=True):
    """The plan for one waiting pod, or for a whole GPU.

    Attributes:
        text: a sentence or two for people.
        mode: the placer's setting `PLIMSOLL_RELOCATION`: `off`, `dry-run` or `on`.
        leads: the placer that answers is the one that places. Any other does not know which pods were moved lately.
        node, gpus: the place that would be free; None and empty without a plan.
        cost: the costs of all moves together.
        traffic_pct: the memory bandwidth used on the GPUs that pods would go to, less that on those that they would
            leave, in points of one GPU's time.
        moves: the pods that would move; empty without a plan.
        movable: the pods that may be moved now.
        obstacles: the other pods with GPUs, the most frequent reason first.
    """

    text: str
    mode: str
    leads: bool = True
    node: NodeName | None = None
    gpus: tuple[GpuUuid, ...] = ()
    cost: float = 0.0
    traffic_pct: float = 0.0
    moves: tuple[MoveRow, ...] = ()
    movable: int = 0
    obstacles: tuple[ObstacleCount, ...] = ()
