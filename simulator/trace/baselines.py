"""The policies that FGD's authors compare with, for replays alone: a random place, and the place that fits best."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

import numpy as np

from placer.core.gpu_index import GpuIndex
from placer.core.index import Index, Surroundings
from placer.core.policies.mix_table import Floats, MixPolicy, States, Typicals, idle_milli
from placer.core.policies.policy import Judgement, Policy
from placer.core.room import Room
from placer.core.site import Choice, Request, Site
from plimsoll.contract import ContainerDemand
from plimsoll.ids import NodeName

MOST_CPU_MILLI = 128_000
MOST_GPU_MILLI = 8_000
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

    def arrange(self, site: Site, demand: ContainerDemand, fitting: Sequence[Room]) -> Sequence[Room]:
        """Any GPU."""
        drawn = Random(f"{self.seed}/{site.request.pod}/{site.node.node}")
        return drawn.sample(fitting, demand.gpus)

    def index(self, around: Surroundings) -> Index:
        """The nodes with a GPU that fits, in a random order."""
        return _AnyOrder(self.seed, GpuIndex(self.rank, around))


class _AnyOrder:
    def __init__(self, seed: int, fitting: GpuIndex) -> None:
        self._seed = seed
        self._fitting = fitting
        self.move = fitting.move

    def best_first(self, request: Request) -> Iterator[tuple[float, NodeName]]:
        """The nodes, all as good as any other."""
        left = list(dict.fromkeys(node for _, node in self._fitting.best_first(request)))
        drawn = Random(f"{self._seed}/{request.pod}")
        while left:
            place = drawn.randrange(len(left))
            left[place], left[-1] = left[-1], left[place]
            yield 0.0, left.pop()


@dataclass(frozen=True, slots=True)
class BestFit(MixPolicy):
    """Takes the place with the least idle GPU and CPU left: ⌊100 · (1 − mean of both, by the largest node)⌋.

    Source: `best_fit_score.go` of the simulator of Weng et al. (hkust-adsl/kubernetes-scheduler-simulator, 8f3d641).
    """

    name: str = "bestfit"

    def offers(self, idle_milli: Floats, need_milli: Floats) -> Floats:
        """The idle part, for every kind alike."""
        return np.broadcast_to(idle_milli, (len(idle_milli), len(need_milli)))[..., None]

    def places(self, states: States, typicals: Typicals) -> Floats:  # noqa: ARG002 - one interface
        """The idle part."""
        return states.offers[..., 0]

    def compare(self, before: States, after: States, typicals: Typicals, request_milli: Floats) -> Floats:  # noqa: ARG002
        """The score by the state after."""
        left = after.cpu_milli / MOST_CPU_MILLI + after.offers[:, 0, 0] / MOST_GPU_MILLI
        return np.floor((1 - left / 2) * 100 + 1e-9) / 100

    def worth(self, lost_milli: Floats, request_milli: Floats) -> Floats:  # noqa: ARG002 - one interface
        """Not asked for: `compare` judges."""
        return np.zeros_like(lost_milli)

    def arrange(self, site: Site, demand: ContainerDemand, fitting: Sequence[Room]) -> Sequence[Room]:  # noqa: ARG002
        """The fullest GPU first."""
        return sorted(fitting, key=idle_milli)

    def judge(self, site: Site, choices: Sequence[Choice]) -> Judgement:
        """The score, without parts."""
        return Judgement(MixPolicy.judge(self, site, choices).score, {})
