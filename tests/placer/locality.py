"""An independent check of locality labels: pairs of pods, by the GPUs that each was given."""

from collections.abc import Collection
from dataclasses import dataclass
from itertools import combinations

from plimsoll.locality import Locality


@dataclass(frozen=True)
class Placed:
    """A pod that has GPUs; each GPU has a name of its own in the whole cluster."""

    name: str
    gpus: frozenset[str]
    locality: Locality


def violations(pods: Collection[Placed]) -> list[str]:
    """The pairs of pods whose labels do not hold."""
    found = []
    for one, other in combinations(pods, 2):
        meet = bool(one.gpus & other.gpus)
        a, b = one.locality, other.locality
        if a.affinity is not None and a.affinity == b.affinity and one.gpus != other.gpus:
            found.append(f"{one.name} and {other.name} have affinity {a.affinity} and no GPU in common")
        if meet and a.anti_affinity is not None and a.anti_affinity == b.anti_affinity:
            found.append(f"{one.name} and {other.name} share a GPU despite anti-affinity {a.anti_affinity}")
        if meet and a.exclusion != b.exclusion:
            found.append(f"{one.name} and {other.name} share a GPU despite {a.exclusion} and {b.exclusion}")
    return found
