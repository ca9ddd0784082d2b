"""The locality labels on a GPU, and the check that a pod may join them.

Source: Yeh et al., "KubeShare", HPDC 2020, §4.2. A GPU has the labels of the pods that are booked on it, and loses a
label with the last pod that has it. Labels stand between pods: the containers of one pod never keep each other out.
Processes of no booked pod have no label, and keep nobody out here.

Affinity is not checked here, because it is about all GPUs of the cluster: see `placer.core.ledger.Ledger.joined`.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from placer.core.reasons import Reason
from plimsoll.contract import AFFINITY, ANTI_AFFINITY, EXCLUSION
from plimsoll.locality import NO_LABELS, Locality


@dataclass(frozen=True, slots=True)
class GpuLabels:
    """The labels on one GPU.

    Attributes:
        affinity: the affinity labels.
        anti_affinity: the anti-affinity labels.
        exclusions: the exclusion labels of the pods, with None for pods without one; empty on an idle GPU. At
            most one GPU, unless another program bound pods.
    """

    affinity: frozenset[str]
    anti_affinity: frozenset[str]
    exclusions: frozenset[str | None]

    @property
    def words(self) -> tuple[str, ...]:
        """The labels for people, such as `affinity=team-a/x`; nothing for pods without a label."""
        kinds = ((AFFINITY, self.affinity), (ANTI_AFFINITY, self.anti_affinity), (EXCLUSION, self.exclusions))
        return tuple(
            f"{key.partition('/')[2]}={label}"
            for key, labels in kinds
            for label in sorted(one for one in labels if one is not None)
        )

    @property
    def is_idle(self) -> bool:
        """Whether no pod is booked on the GPU."""
        return not self.exclusions

    def refuse(self, pod: Locality) -> Reason | None:
        """The reason why a pod with these labels may not join, or None."""
        others = self.exclusions
        if others and (len(others) > 1 or pod.exclusion not in others):
            return Reason.EXCLUDED if pod.exclusion is None else Reason.EXCLUSION
        return Reason.ANTI_AFFINITY if pod.anti_affinity in self.anti_affinity else None

    def opened_since(self, before: "GpuLabels") -> bool:
        """Whether a pod may be able to join now, by its labels, that could not before."""
        return bool(before.exclusions - self.exclusions or before.anti_affinity - self.anti_affinity)


IDLE: Final = GpuLabels(frozenset(), frozenset(), frozenset())
_UNLABELLED: Final = GpuLabels(frozenset(), frozenset(), frozenset({None}))


def gpu_labels(pods: Collection[Locality]) -> GpuLabels:
    """The labels on a GPU with these pods."""
    if not pods:
        return IDLE
    if all(pod is NO_LABELS or pod == NO_LABELS for pod in pods):
        return _UNLABELLED  # as on nearly all GPUs
    return GpuLabels(
        frozenset(pod.affinity for pod in pods if pod.affinity is not None),
        frozenset(pod.anti_affinity for pod in pods if pod.anti_affinity is not None),
        frozenset(pod.exclusion for pod in pods),
    )
