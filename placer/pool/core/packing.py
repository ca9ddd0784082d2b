"""The GPUs that pods need at least, together: no packing needs fewer.

So no GPU is taken in vain. Where pods need more, those that still wait show it once these have joined.
"""

import math
from dataclasses import dataclass, field

from plimsoll.contract import PodDemand


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

    def add(self, demand: PodDemand) -> None:
        """Count a pod."""
        self._whole, self._share_pct, self._bytes, self._most = self._sums(demand)
        if demand.gpu_name is not None:
            self._names.add(demand.gpu_name)

    def gpus(self, more: PodDemand | None = None) -> int:
        """The GPUs that the pods need at least; with one more pod, if one is given."""
        sums = (self._whole, self._share_pct, self._bytes, self._most) if more is None else self._sums(more)
        whole, share_pct, memory_bytes, most = sums
        names = len(self._names)
        if more is not None and more.gpu_name is not None:
            names += more.gpu_name not in self._names
        by_bytes = math.ceil(memory_bytes / self.gpu_bytes) if self.gpu_bytes else 0
        # Any pod needs one, also one that declares nothing.
        return max(most, whole + max(names, math.ceil(share_pct / 100), by_bytes))

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
