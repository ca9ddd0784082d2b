"""The target workload: the pod types, and how often each occurs. Policies weigh by it the cost of a place.

Source: Weng et al., "Beware of Fragmentation" (USENIX ATC 2023), §4: the target workload is a set of pod types with
popularity. As in the authors' simulator, the most frequent pod types count until they are 95 % of all pods.
"""

from collections import Counter, OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from plimsoll.demand import PodDemand, hardest_first
from plimsoll.ids import PodUid

COVERAGE: Final = 0.95
"""The part of all pods whose types are typical."""

LEARNED_AGAIN: Final = 1.25
"""The workload is drawn up again once the number of pods that were seen has grown by this factor. At each such time
all scores change."""

REMEMBERED_PODS: Final = 20_000
"""The pods whose types count, the last seen. A pod that is decided on again counts once."""


class PodType(NamedTuple):
    """A type of pods, by the container that is hardest to place.

    Attributes:
        cpu_milli: the pod's CPU, in thousandths.
        gpus: the number of GPUs; 0 for a pod without one.
        share_milli: the share of each, in thousandths; 1000 for whole GPUs.
        memory_bytes: declared on each; 0 for none.
        memory_pct: declared on each, in percent; 0 for none.
        models: the acceptable models; none means any.
    """

    cpu_milli: int
    gpus: int = 0
    share_milli: int = 0
    memory_bytes: int = 0
    memory_pct: int = 0
    models: tuple[str, ...] = ()

    def need_milli(self, usable_bytes: int) -> int:
        """The part of a GPU with this many usable bytes that it takes, in thousandths, 1 to 1000; 0 without GPU.

        A GPU has one measure here: the larger part of share and memory.
        """
        if not self.gpus:
            return 0
        of_memory = max(-(-1000 * self.memory_bytes // usable_bytes), 10 * self.memory_pct)
        return min(max(self.share_milli, of_memory, 1), 1000)


def pod_type_of(demand: PodDemand, cpu_milli: int) -> PodType:
    """The type of a pod."""
    if not demand.containers:
        return PodType(cpu_milli)
    hardest = min(demand.containers, key=hardest_first)
    return PodType(
        cpu_milli=cpu_milli,
        gpus=hardest.gpus,
        share_milli=1000 if hardest.whole else 10 * hardest.share_pct,
        memory_bytes=hardest.memory_bytes or 0,
        memory_pct=hardest.memory_pct or 0,
        models=tuple(sorted(demand.gpu_models)),
    )


class GpuType(NamedTuple):
    """A type of GPUs: all of one type offer the same when idle."""

    model: str
    usable_bytes: int


@dataclass(frozen=True, slots=True)
class TypicalPod:
    """A typical pod.

    Attributes:
        popularity: its part of all typical pods, above 0; all of them add up to 1.
    """

    pod_type: PodType
    popularity: float


def typical_of(counts: Mapping[PodType, int]) -> tuple[TypicalPod, ...]:
    """The most frequent pod types, until they are `COVERAGE` of all pods; among equal counts the first."""
    chosen: list[tuple[PodType, int]] = []
    needed, covered = COVERAGE * sum(counts.values()), 0
    for pod_type, count in sorted(counts.items(), key=lambda one: -one[1]):
        if covered >= needed:
            break
        chosen.append((pod_type, count))
        covered += count
    return tuple(TypicalPod(pod_type, count / covered) for pod_type, count in chosen)


class TargetWorkload:
    """The typical pods now, learned from the pods that were seen, or given. Not thread-safe.

    Attributes:
        typical: the typical pods; none before the first pod.
        version: rises when `typical` changes.
        gpu_types: the types of GPUs that were seen; each keeps its number for ever.
        derived: what policies compute from the workload, by their own keys; emptied when it changes.
    """

    def __init__(self, given: Iterable[TypicalPod] = ()) -> None:
        """Make it of given pods, which then stay, or else without any."""
        self.typical = tuple(given)
        self.version = 0
        self.gpu_types: dict[GpuType, int] = {}
        self.derived: dict[str, object] = {}
        self._is_given = bool(self.typical)
        self._seen: OrderedDict[PodUid, PodType] = OrderedDict()
        self._counts: Counter[PodType] = Counter()
        self._drawn_up = 0
        self._sightings = 0

    def knows(self, pod: PodUid) -> bool:
        """Whether the pod needs no count: it was seen, or the workload was given."""
        return self._is_given or pod in self._seen

    def see(self, pod: PodUid, demand: PodDemand, cpu_milli: int) -> None:
        """Count a pod that is placed, or waits; a pod that was seen counts once."""
        if self.knows(pod):
            return
        pod_type = self._seen[pod] = pod_type_of(demand, cpu_milli)
        self._counts[pod_type] += 1
        self._sightings += 1
        if len(self._seen) > REMEMBERED_PODS:
            _, gone = self._seen.popitem(last=False)
            self._counts[gone] -= 1
            if not self._counts[gone]:
                del self._counts[gone]
        if self._sightings >= LEARNED_AGAIN * self._drawn_up:
            self._drawn_up = self._sightings
            self._replace(typical_of(self._counts))

    def number(self, gpu_type: GpuType) -> int:
        """The number of a type of GPUs; a new one gets the next."""
        return self.gpu_types.setdefault(gpu_type, len(self.gpu_types))

    def _replace(self, typical: tuple[TypicalPod, ...]) -> None:
        self.typical = typical
        self.derived.clear()
        self.version += 1
