"""KubeShare's locality labels, by which pods share a GPU, avoid each other, or keep a GPU for themselves.

Source: Yeh et al., "KubeShare", HPDC 2020, §4.2. The paper's labels are arbitrary strings in the whole cluster. Ours
belong to a namespace, so no tenant meets, or blocks, the labels of another. What always holds: in the placer, a label
is written with its namespace, as `team-a/L`; on a pod, without it.
"""

from dataclasses import dataclass
from typing import Annotated, Final

from msgspec import Meta, Struct

LABEL_PATTERN: Final = r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
"""As in the values of Kubernetes' labels."""

_Label = Annotated[str, Meta(pattern=rf"\A{LABEL_PATTERN}\Z")]


class StatedLabels(Struct, frozen=True, omit_defaults=True):
    """The labels of a pod as its decision states them, without the namespace, which is the pod's own."""

    affinity: _Label | None = None
    anti_affinity: _Label | None = None
    exclusion: _Label | None = None


NONE_STATED: Final = StatedLabels()


@dataclass(frozen=True, slots=True)
class Locality:
    """The labels of a pod, each with the pod's namespace, as `team-a/L`.

    Attributes:
        affinity: all pods with this label have their GPU in common; None for a pod without one, as below.
        anti_affinity: no two pods with this label have a GPU in common.
        exclusion: all pods on the pod's GPUs have this exclusion label.
    """

    affinity: str | None = None
    anti_affinity: str | None = None
    exclusion: str | None = None

    @property
    def stated(self) -> StatedLabels:
        """The labels for the pod's decision; `locality_of` reads them back."""
        return StatedLabels(_bare(self.affinity), _bare(self.anti_affinity), _bare(self.exclusion))


NO_LABELS: Final = Locality()


def locality_of(namespace: str, stated: StatedLabels) -> Locality:
    """The labels of a pod of this namespace."""
    if stated == NONE_STATED:
        return NO_LABELS  # as for nearly all pods
    return Locality(
        *(_within(namespace, one) for one in (stated.affinity, stated.anti_affinity, stated.exclusion))
    )


def _within(namespace: str, label: str | None) -> str | None:
    return None if label is None else f"{namespace}/{label}"


def _bare(label: str | None) -> str | None:
    return None if label is None else label.partition("/")[2]
