"""Plimsoll's own policy: take the place by which the cluster loses least of the places that typical pods will need.

It goes beyond FGD (`placer.core.policies.fragmentation`) in three points.

- **Places that CPU limits.** FGD asks whether one typical pod finds CPU beside the idle GPUs. Then a node with CPU
  for one pod and eight idle GPUs counts as whole, and its GPUs are stranded. Here a node also counts by the number of
  pods that it still takes, the lesser of what its GPUs and its CPU take. The two are mixed: `COUNTED` of the worth is
  by number, the rest by the idle part as in FGD. The number alone forgets remainders that small pods could still use.
- **Scarcity.** A place that is one of a thousand for its pod type costs little, and the last one costs much. So the
  places of each pod type count in inverse proportion to how many the whole cluster still has. That keeps models for
  the pods that name them: a type that only few GPUs suit has few places from the start.
- **Pods that declare no memory.** Nobody knows what such a pod takes from its GPU, so no loss can be weighed, and
  packing makes tasks fail for want of memory. They go where most is free, as under `headroom`.

Equal losses, to `BUCKET_MILLI`, are broken by the order of names: pods then gather on few nodes, and others stay
empty.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from placer.core.gpu_index import GpuIndex
from placer.core.index import EitherIndex, Index, Surroundings
from placer.core.policies.headroom import HEADROOM
from placer.core.policies.policy import Judgement
from placer.core.policies.workload_table import Floats, States, TypicalPods, WorkloadPolicy
from placer.core.policy_context import AssignedGpu, Context, Request
from placer.core.room import Room
from plimsoll.demand import ContainerDemand

COUNTED: Final = 0.3
"""The part of a node's worth that is by number of pods; found on the openb traces, where 0.3 to 0.7 differ little."""

BUCKET_MILLI: Final = 80.0
"""Losses within such a step are equal, in thousandths of a GPU; FGD's rounding has steps of some 40."""

SCARCEST: Final = 100.0
"""The most by which scarcity raises the worth of a place, so that a pod type without places does not rule all."""


@dataclass(frozen=True, slots=True)
class Plimsoll(WorkloadPolicy):
    """Prefers the place that costs future pods least."""

    name: str = "plimsoll"

    def index(self, around: Surroundings) -> Index:
        """An index by pod type, and one for pods that declare no memory."""
        return EitherIndex(
            _is_undeclared, GpuIndex(HEADROOM.rank, around), WorkloadPolicy.index(self, around)
        )

    def arrange(self, context: Context, demand: ContainerDemand, fitting: Sequence[Room]) -> Sequence[Room]:
        """The GPUs by which the node loses least; for a pod that declares no memory, those with most room."""
        if _is_undeclared(context.request):
            return HEADROOM.arrange(context, demand, fitting)
        return WorkloadPolicy.arrange(self, context, demand, fitting)

    def judge(self, context: Context, assigned: Sequence[AssignedGpu]) -> Judgement:
        """Judge by the loss of the node; a pod that declares no memory by the room on its GPUs."""
        if _is_undeclared(context.request):
            return HEADROOM.judge(context, assigned)
        return WorkloadPolicy.judge(self, context, assigned)

    def offers(self, idle_milli: Floats, need_milli: Floats) -> Floats:
        """The idle part that a pod can use, and the number of pods that fit."""
        count = np.floor(idle_milli / need_milli)
        return np.stack([np.where(count > 0, idle_milli, 0.0), count], axis=1)

    def places(self, states: States, typicals: TypicalPods) -> Floats:
        """The mean of the number of pods that fit, and of the usable idle part in units of a pod."""
        usable, count = states.offers[:, 0], states.offers[:, 1]
        sizes = np.maximum(typicals.gpus * typicals.need_milli, 1.0)[states.gpu_type]
        by_cpu = np.floor(states.cpu_milli[:, None] / np.maximum(typicals.cpu_milli, 1.0))
        counted = np.minimum(np.floor(count / np.maximum(typicals.gpus, 1.0)), by_cpu)
        by_idle = np.where((usable >= sizes) & (by_cpu >= 1), usable / sizes, 0.0)
        return COUNTED * counted + (1 - COUNTED) * by_idle

    def worth(self, lost_milli: Floats, request_milli: Floats) -> Floats:  # noqa: ARG002 - it is the same for all places
        """1 ÷ (1 + the loss in GPUs), in steps."""
        return 1 / (1 + np.ceil(lost_milli / BUCKET_MILLI - ROUNDING) * BUCKET_MILLI / 1000)

    def scarcity(self, supply: Floats, capacity: Floats) -> Floats | None:
        """The places that the pod type had in an empty cluster of GPUs that suit it, for each that is left."""
        return np.minimum(capacity / (supply + 1), SCARCEST)


def _is_undeclared(request: Request) -> bool:
    return any(one.best_effort for one in request.demand.containers)


ROUNDING: Final = 1e-9
"""The error of sums, which must not push a loss into the next step: equal places then differ."""

PLIMSOLL: Final = Plimsoll()
