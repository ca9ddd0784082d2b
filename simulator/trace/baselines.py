"""The policies that FGD's authors compare with, for replays alone: a random place, and the place that fits best."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

import numpy as np

from placer.core.gpu_index import GpuIndex
from placer.core.index import Index, Surroundings
from placer.core.policies.policy import Judgement, Policy
from placer.core.policies.workload_table import Floats, States, TypicalPods, WorkloadPolicy, idle_milli
from placer.core.policy_context import AssignedGpu, Context, Request
from placer.core.room import Room
from plimsoll.demand import ContainerDemand
from plimsoll.ids import NodeName

BLIND_DRAWS: Final = 24
"""The nodes that are drawn among all, before the nodes with a fitting GPU are listed: both draws are uniform."""

MOST_CPU_MILLI: Final = 128_000
MOST_GPU_MILLI: Final = 8_000
"""The largest node of the trace, by which BestFit weighs CPU against GPU."""


@dataclass(frozen=True, slots=True)
class RandomPlace(Policy):
    """Takes a random place among those that fit, drawn by seed and pod."""

    seed: int
    name: str = "random"

    def rank(self, room: Room) -> float:  # noqa: ARG002 - all places are alike
        """0."""
        return 0.0

    def score(self, room: Room, demand: ContainerDemand) -> float:  # noqa: ARG002 - all places are alike
        """0."""
        return 0.0

    def sub_scores(self, room: Room, demand: ContainerDemand) -> dict[str, float]:  # noqa: ARG002 - there are none
        """None."""
        return {}

    def arrange(self, context: Context, demand: ContainerDemand, fitting: Sequence[Room]) -> Sequence[Room]:
        """Any GPU."""
        drawn = Random(f"{self.seed}/{context.request.pod}/{context.node.node}")
        return drawn.sample(fitting, demand.gpus)

    def index(self, around: Surroundings) -> Index:
        """The nodes in a random order."""
        return _AnyOrder(self.seed, around, GpuIndex(self.rank, around))


class _AnyOrder:
    """All nodes in a random order. A fitting GPU is sought by its index only after some nodes had none."""

    def __init__(self, seed: int, around: Surroundings, fitting: GpuIndex) -> None:
        self._seed = seed
        self._nodes = around.nodes
        self._fitting = fitting
        self.move = fitting.move

    def best_first(self, request: Request) -> Iterator[tuple[float, NodeName]]:
        """The nodes, all as good as any other."""
        drawn = Random(f"{self._seed}/{request.pod}")
        tried = set()
        for node in drawn.sample(list(self._nodes), min(BLIND_DRAWS, len(self._nodes))):
            tried.add(node)
            yield 0.0, node
        left = dict.fromkeys(node for _, node in self._fitting.best_first(request) if node not in tried)
        yield from ((0.0, node) for node in drawn.sample(list(left), len(left)))


@dataclass(frozen=True, slots=True)
class BestFit(WorkloadPolicy):
    """Takes the place with the least idle GPU and CPU left: ⌊100 · (1 − mean of both, by the largest node)⌋.

    Source: `best_fit_score.go` of the simulator of Weng et al. (hkust-adsl/kubernetes-scheduler-simulator, 8f3d641).
    """

    name: str = "bestfit"

    def offers(self, idle_milli: Floats, need_milli: Floats) -> Floats:  # noqa: ARG002 - one interface
        """The idle part, which stands for every pod type, also where no typical pod asks for a GPU."""
        return idle_milli[:, None]

    def places(self, states: States, typicals: TypicalPods) -> Floats:  # noqa: ARG002 - one interface
        """The idle part."""
        return states.offers[:, 0]

    def scores(self, lost_milli: Floats, request_milli: Floats, after: States) -> Floats:  # noqa: ARG002 - one interface
        """The score by the state after."""
        left = after.cpu_milli / MOST_CPU_MILLI + after.offers[:, 0, 0] / MOST_GPU_MILLI
        return np.floor((1 - left / 2) * 100 + 1e-9) / 100

    def worth(self, lost_milli: Floats, request_milli: Floats) -> Floats:  # noqa: ARG002 - one interface
        """Not asked for: `scores` judges."""
        return np.zeros_like(lost_milli)

    def arrange(self, context: Context, demand: ContainerDemand, fitting: Sequence[Room]) -> Sequence[Room]:  # noqa: ARG002 - one interface
        """The fullest GPU first."""
        return sorted(fitting, key=idle_milli)

    def judge(self, context: Context, assigned: Sequence[AssignedGpu]) -> Judgement:
        """The score, without parts."""
        return Judgement(WorkloadPolicy.judge(self, context, assigned).score, {})
