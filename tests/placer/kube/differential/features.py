"""The features of Kubernetes that the differential test draws, each with its switch.

A feature is off while the placer refuses the pods that use it. To turn it on, replace `OFF` by `ON` in its line.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

ON: Final = True
OFF: Final = False


@dataclass(frozen=True, slots=True)
class Feature:
    """A feature.

    Attributes:
        name: its name here.
        is_on: whether it is drawn by default.
        often: the share of pods that use it, in a scenario that has it, 0–1.
        reason: why it is off; empty if it is on.
    """

    name: str
    is_on: bool
    often: float
    reason: str = ""


FEATURES: Final = (
    Feature("resources", ON, 0.8),
    Feature("extended resources", ON, 0.25),
    Feature("odd quantities", ON, 0.3),
    Feature("overhead", ON, 0.3),
    Feature("init containers", ON, 0.3),
    Feature("pod-level resources", ON, 0.3),
    Feature("tolerations", ON, 0.6),
    Feature("node selector", ON, 0.25),
    Feature("node affinity", ON, 0.35),
    Feature("preferred node affinity", ON, 0.3),
    Feature("host ports", ON, 0.4),
    Feature("operating system", ON, 0.2),
    Feature("supplemental groups", ON, 0.2),
    Feature("declared features", ON, 0.2),
    Feature("existing anti-affinity", ON, 0.35),
    Feature("resized residents", ON, 0.5),
    Feature("ended residents", ON, 0.3),
    Feature("namespace selectors of existing pods", ON, 0.5),
    Feature("topology spread", ON, 0.8),
    Feature("pod affinity", ON, 0.3),
    Feature("pod anti-affinity", ON, 0.4),
    Feature("bound claims", ON, 0.35),
    Feature("exclusive claims", ON, 0.3),
    Feature("attach limits", ON, 0.35),
    Feature("claims that wait for a consumer", ON, 0.25),
)

SWITCHED_ON: Final = frozenset(one.name for one in FEATURES if one.is_on)
ALL: Final = frozenset(one.name for one in FEATURES)
OFTEN: Final = {one.name: one.often for one in FEATURES}


def named(names: Collection[str]) -> frozenset[str]:
    """These features beside those that are on; `all` stands for every feature.

    Raises:
        ValueError: there is no such feature.
    """
    if "all" in names:
        return ALL
    unknown = set(names) - ALL
    if unknown:
        raise ValueError(f"no such feature: {', '.join(sorted(unknown))}; known are {', '.join(sorted(ALL))}")
    return SWITCHED_ON | frozenset(names)
