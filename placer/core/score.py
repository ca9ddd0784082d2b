"""The scores of the sorted list: how good a GPU is to place on, by measured idle time and by the room left.

Source: J. Kang, H. Lee, D. Lee, "Pod Placement Techniques to Avoid Job Failures Due to Low GPU Memory in a
Kubernetes Environment with Shared GPUs", IJASEIT 2024, §II.B and Algorithm 1. Its prose and its formula
disagree. The prose prefers GPUs that are idle; the formula of Algorithm 1, line 5,
`(1 − used/total) × (1 − idle/100)`, prefers busy ones. We follow the prose. The policy
`kang-literal` has the literal formula, to reproduce the paper as printed.

Deviations: `total` is the usable memory, without the driver's own reserve. `used` is the greater of measured and
promised memory (see `placer.core.room`), so that the list that people read is in the order that decisions take. The
product is zero for every GPU that was busy all minute, however much memory it has free, so equal products are ordered
by free memory (`TIE_BREAK`). A node's score is that of its best GPU, because a container that shares a GPU needs one
GPU with room, not a mean.
"""

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from placer.core.room import Room
from plimsoll.ids import GpuUuid

TIE_BREAK: Final = 1e-6
"""The weight of free memory beside the product: far below any difference in products that means something (idle
time is measured to about 0.1 %), and far above a double's rounding."""


class Formula(enum.Enum):
    """The two readings of the paper."""

    PROSE = "prose"
    LITERAL = "literal"


@dataclass(frozen=True, slots=True)
class NodeScores:
    """The scores of a node and of each of its GPUs, 0 to 1 + `TIE_BREAK`; higher is better.

    Attributes:
        node: the score of the node's best GPU; 0 without a GPU.
        gpus: the score of each GPU.
    """

    node: float
    gpus: Mapping[GpuUuid, float]


def gpu_score(free_ratio: float, idle_pct: float, formula: Formula = Formula.PROSE) -> float:
    """The score of one GPU.

    Args:
        free_ratio: free memory ÷ usable memory, 0–1; clamped, because a report may be taken mid-allocation.
        idle_pct: the decayed idle average, 0–100.
        formula: `PROSE`, free × idle; `LITERAL`, free × busy.

    Returns:
        0 to 1 + `TIE_BREAK`.
    """
    # `min` and `max` take twice as long, and each decision scores a dozen GPUs.
    free = free_ratio if 0.0 <= free_ratio <= 1.0 else float(free_ratio > 1.0)
    idle = idle_pct / 100 if 0.0 <= idle_pct <= 100.0 else float(idle_pct > 100.0)
    return free * (idle if formula is Formula.PROSE else 1 - idle) + TIE_BREAK * free


def node_scores(rooms: Iterable[Room]) -> NodeScores:
    """The scores of a node by the rooms of all its GPUs, as the sorted list keeps them."""
    gpus = {room.gpu.uuid: gpu_score(room.free_ratio, room.gpu.idle_pct) for room in rooms}
    return NodeScores(max(gpus.values(), default=0.0), gpus)
