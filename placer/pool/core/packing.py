"""The GPUs that pods need at least, together: no packing needs fewer.

So no GPU is taken in vain. Where pods need more, those that still wait show it once these have joined.
"""

import math
from collections import Counter
from dataclasses import dataclass, field

from plimsoll.demand import PodDemand


@dataclass(slots=True)
class Packing:
    """The sums over some pods that GPUs of the pool do not fit.

    Attributes:
        gpu_bytes: the memory of one GPU; None where it is not known.
    """

    gpu_bytes: int | None = None
    _whole: int = 0
    _share_pct: int = 0
    _bytes: int = 0
    _most: int = 0
    _names: set[str] = field(default_factory=set)
    _apart: Counter[str] = field(default_factory=Counter)  # pods by anti-affinity label
    _exclusions: set[str | None] = field(default_factory=set)  # None: pods without such a label

    def add(self, demand: PodDemand) -> None:
        """Count a pod."""
        self._whole, self._share_pct, self._bytes, self._most = self._sums(demand)
        if demand.gpu_name is not None:
            self._names.add(demand.gpu_name)
        self._apart.update(_anti_affinity(demand))
        self._exclusions |= _exclusion(demand)

    def gpus(self, more: PodDemand | None = None) -> int:
        """The GPUs that the pods need at least; with one more pod, if one is given."""
        sums = (self._whole, self._share_pct, self._bytes, self._most) if more is None else self._sums(more)
        whole, share_pct, memory_bytes, most = sums
        names, apart, exclusions = len(self._names), self._apart, self._exclusions
        if more is not None:
            names += more.gpu_name is not None and more.gpu_name not in self._names
            apart, exclusions = apart + Counter(_anti_affinity(more)), exclusions | _exclusion(more)
        by_labels = max(names, len(exclusions), *apart.values(), 0)
        by_bytes = math.ceil(memory_bytes / self.gpu_bytes) if self.gpu_bytes else 0
        # Any pod needs one, also one that declares nothing.
        return max(most, whole + max(by_labels, math.ceil(share_pct / 100), by_bytes))

    def _sums(self, demand: PodDemand) -> tuple[int, int, int, int]:
        whole, share_pct, memory_bytes, most = self._whole, self._share_pct, self._bytes, self._most
        for one in demand.containers:
            most = max(most, one.gpus)
            if one.lifespan.ends:
                continue  # it runs before the others, on their GPUs
            if one.whole:
                whole += one.gpus
            else:
                share_pct += one.share_pct * one.gpus
                memory_bytes += (one.memory_bytes or 0) * one.gpus
        return whole, share_pct, memory_bytes, most


def _anti_affinity(demand: PodDemand) -> tuple[str, ...]:
    """The pod's anti-affinity label; none for a pod whose GPUs are all whole, because they are counted apart."""
    label = demand.locality.anti_affinity
    return (label,) if label is not None and _shares(demand) else ()


def _exclusion(demand: PodDemand) -> set[str | None]:
    return {demand.locality.exclusion} if _shares(demand) else set()


def _shares(demand: PodDemand) -> bool:
    return any(not one.whole and not one.lifespan.ends for one in demand.containers)
