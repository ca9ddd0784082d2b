"""KubeShare's policy: fill GPUs without an affinity label, and spare those with one for the pods of their labels.

Source: Yeh et al., "KubeShare", HPDC 2020, §4.3, Algorithm 1. Its steps, and their places here:

1. *A pod with an affinity label goes to the GPU that has it.* The plan sees to that under every policy
   (`placer.core.planning`). Where no GPU has the label, an idle GPU is preferred here, then the one with the largest
   free part, so that the label's later pods have space.
2. *GPUs of other exclusion labels, with the pod's anti-affinity label, or without the room are left out*, as under
   every policy (`placer.core.room.misfit`).
3. *Best fit among GPUs without an affinity label, then worst fit among those with one, then a new GPU.* An idle GPU
   has no label, and best fit takes it last. A new GPU is one that the pool (`placer.pool`) acquires for a pod that
   fits on none of its own.

Where the listing differs from the paper's prose, this is the prose:

- Line 17 passes over every GPU in use, and so filters none of them. Here labels and room are checked on each GPU.
- `return -1` (lines 4 to 6) drops the pod. Here it waits for a change that may help, with the reason.
- Step 3 records the exclusion label (line 25) and no anti-affinity label, so a second pod with that label could join.
  Here a GPU has all labels of its pods, until they leave.
- Line 10 asks for a new GPU where none is idle. A cluster may have no other, so any GPU will do then ("the container
  can be scheduled to any device").

The paper does not say how free memory and free compute time make one fit. Here the free part of a GPU is the mean of
both parts. A container with several GPUs, which the paper lacks, takes the best of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from placer.core.gpu_index import GpuIndex
from placer.core.index import EitherIndex, Index, Surroundings
from placer.core.policies.policy import Judgement, Policy
from placer.core.policy_context import AssignedGpu, Context
from placer.core.room import Room
from plimsoll.demand import ContainerDemand, PodDemand

_LATER: Final = 0.45
"""The highest score of a GPU that is taken only where no other fits; those taken before have 0.5 and more."""


@dataclass(frozen=True, slots=True)
class LocalityFirst(Policy):
    """Prefers the fullest GPU without an affinity label; for a new label, an idle GPU."""

    name: str = "locality"

    def rank(self, room: Room) -> float:
        """The score for a pod without an affinity label, see `score`."""
        free = free_part(room)
        return _LATER * free if room.labels.affinity else 0.5 + 0.5 * (1 - free)

    def sub_scores(self, room: Room, demand: ContainerDemand) -> dict[str, float]:  # noqa: ARG002 - one interface
        """The free part of the GPU, 0 to 1, and the number of its affinity labels."""
        return {"free": round(free_part(room), 6), "affinity-labels": len(room.labels.affinity)}

    def score(self, room: Room, demand: ContainerDemand) -> float:  # noqa: ARG002 - one interface for all policies
        """For a pod without an affinity label: 0.5 to 1 on a GPU without one, the fuller the higher; else below."""
        return self.rank(room)

    def arrange(self, context: Context, demand: ContainerDemand, fitting: Sequence[Room]) -> Sequence[Room]:  # noqa: ARG002 - one interface
        """The GPUs by the pod's score, the best first."""
        return sorted(fitting, key=lambda room: -_worth(context.request.demand, room))

    def judge(self, context: Context, assigned: Sequence[AssignedGpu]) -> Judgement:
        """The lowest score among the pod's GPUs."""
        score = min((_worth(context.request.demand, one.room) for one in assigned), default=0.0)
        parts = {
            f"{one.demand.container}/{one.grant.gpu}": self.sub_scores(one.room, one.demand)
            for one in assigned
        }
        return Judgement(score, parts)

    def index(self, around: Surroundings) -> Index:
        """An index for pods without an affinity label, and one for those with a new one."""
        return EitherIndex(
            lambda request: request.demand.locality.affinity is None,
            GpuIndex(self.rank, around),
            GpuIndex(_for_new_label, around),
        )


LOCALITY: Final = LocalityFirst()


def free_part(room: Room) -> float:
    """The mean of the free parts of a GPU's memory and compute time, 0 to 1."""
    return (room.free_ratio + max(room.free_share_pct, 0) / 100) / 2


def _worth(demand: PodDemand, room: Room) -> float:
    return LOCALITY.rank(room) if demand.locality.affinity is None else _for_new_label(room)


def _for_new_label(room: Room) -> float:
    """The score for a pod with an affinity label that no GPU has: 0.5 to 1 on an idle GPU, else below."""
    free = free_part(room)
    return 0.5 + 0.5 * free if room.labels.is_idle else _LATER * free
