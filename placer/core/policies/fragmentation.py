"""Fragmentation Gradient Descent (FGD): take the place by which the node's GPUs become least fragmented.

Source: Weng et al., "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient Descent"
(USENIX ATC 2023), §4.2 and Algorithm 1. The fragment of a node n for a typical pod m is the idle GPU that m cannot
use:

    F_n(m) = all idle parts, if m asks for no GPU, or for more CPU, more GPUs or another model than n has;
             otherwise the idle parts of the GPUs that have less than m asks of each.
    F_n    = Σ over typical pods of popularity × F_n(m)

A place is scored by Δ = F_n before − F_n after, in thousandths of a GPU, as in the authors' simulator
(github.com/hkust-adsl/kubernetes-scheduler-simulator, 8f3d641): ⌊100 · sigmoid(Δ / 1000)⌋. The rounding matters:
places that differ by less than some 40 thousandths are equal, and the order of names decides. Without it, the
published allocation is not reached. Here the score is divided by 100.

Deviations: GPUs have one measure, the lesser of free share and free memory. The paper's traces have shares alone.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from placer.core.policies.workload_table import Floats, States, TypicalPods, WorkloadPolicy


@dataclass(frozen=True, slots=True)
class Fragmentation(WorkloadPolicy):
    """Prefers the place by which least becomes unusable for the typical pods."""

    name: str = "fragmentation"

    def offers(self, idle_milli: Floats, need_milli: Floats) -> Floats:
        """The idle part of a GPU that a pod can use: all or nothing."""
        return np.where(idle_milli >= need_milli, idle_milli, 0.0)[:, None]

    def places(self, states: States, typicals: TypicalPods) -> Floats:
        """The idle parts that a pod type can use, in units of the GPU that it takes; none where it has no place."""
        usable = states.offers[:, 0]
        sizes = np.maximum(typicals.gpus * typicals.need_milli, 1.0)[states.gpu_type]
        fits = (usable >= sizes) & (states.cpu_milli[:, None] >= typicals.cpu_milli)
        return np.where(fits, usable / sizes, 0.0)

    def worth(self, lost_milli: Floats, request_milli: Floats) -> Floats:
        """⌊100 · sigmoid(Δ / 1000)⌋ / 100. The fragment is the idle part less its worth, so Δ is request − loss."""
        gradient = (request_milli - lost_milli) / 1000
        return np.floor(100 / (1 + np.exp(-gradient)) + ROUNDING) / 100


ROUNDING: Final = 1e-9
"""The error of sums, which must not push a score into the next bucket: equal places then differ."""

FRAGMENTATION: Final = Fragmentation()
