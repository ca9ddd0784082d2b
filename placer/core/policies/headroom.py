"""The policy of Kang et al. 2024: prefer the GPU with most free memory and idle time, by the ledger's headroom.

The paper scores `(1 − used/total) × idle` by measured memory. Here promised memory counts as used too, because two
pods that are placed in one second would otherwise both see the same free memory. See `placer.core.score` for formula
and source.
"""

from dataclasses import dataclass
from typing import Final

from placer.core.policies.policy import Policy
from placer.core.room import Room
from placer.core.score import Formula, gpu_score
from plimsoll.demand import ContainerDemand


@dataclass(frozen=True, slots=True)
class Headroom(Policy):
    """Prefers the GPU with the greatest product of free memory and idle time."""

    name: str
    formula: Formula

    def rank(self, room: Room) -> float:
        """The score, which is the same for all containers."""
        return gpu_score(room.free_ratio, room.gpu.idle_pct, self.formula)

    def sub_scores(self, room: Room, demand: ContainerDemand) -> dict[str, float]:  # noqa: ARG002 - one interface
        """Free memory and idle time, each 0–1."""
        return {"free": round(room.free_ratio, 6), "idle": round(room.gpu.idle_pct / 100, 6)}

    def score(self, room: Room, demand: ContainerDemand) -> float:  # noqa: ARG002 - one interface for all policies
        """The `placer.core.score.gpu_score` of the headroom, 0 to 1 + `TIE_BREAK`."""
        return self.rank(room)


HEADROOM: Final = Headroom("headroom", Formula.PROSE)
LITERAL: Final = Headroom("kang-literal", Formula.LITERAL)
