"""The features of Kubernetes that the differential test draws."""

from collections.abc import Mapping
from typing import Final

OFTEN: Final[Mapping[str, float]] = {
    "resources": 0.8,
    "extended resources": 0.25,
    "odd quantities": 0.3,
    "overhead": 0.3,
    "init containers": 0.3,
    "pod-level resources": 0.3,
    "tolerations": 0.6,
    "node selector": 0.25,
    "node affinity": 0.35,
    "preferred node affinity": 0.3,
    "host ports": 0.4,
    "operating system": 0.2,
    "supplemental groups": 0.2,
    "declared features": 0.2,
    "existing anti-affinity": 0.35,
    "resized residents": 0.5,
    "ended residents": 0.3,
    "namespace selectors of existing pods": 0.5,
    "topology spread": 0.8,
    "pod affinity": 0.3,
    "pod anti-affinity": 0.4,
    "bound claims": 0.35,
    "exclusive claims": 0.3,
    "attach limits": 0.35,
    "claims that wait for a consumer": 0.25,
}
"""By feature, the share of pods that use it, in a scenario that has the feature, 0–1."""
ALL: Final = frozenset(OFTEN)
