"""The options of the front end for a Kubernetes cluster."""

from dataclasses import dataclass, field
from typing import Final

from placer.core.policies import Policy
from placer.kube.evictions import EvictionRules
from placer.kube.pool import OFF
from placer.relocation.rules import RelocationRules
from placer.scheduler.binding.volumes import BIND_TIMEOUT_S
from plimsoll.contract import SCHEDULER_NAME

DRIFT_S: Final = 300.0
"""Seconds between two comparisons of the ledger with the API server. Each lists all pods of the cluster."""


@dataclass(frozen=True, slots=True)
class KubeOptions:
    """The options that differ from one placer to another.

    Attributes:
        policy: the policy for pods that name none.
        instance: the name of this placer in events.
        binds_at_once: the number of writes under way together; more wait.
        drift_s: the pause between two comparisons of the ledger with the API server, in seconds.
        volumes_s: the longest time that the claims of a placed pod may take to be bound, in seconds.
        evictions: what happens to pods that pass their lines.
        pool_namespace: the namespace of the pool's reservation pods; `OFF`: every GPU that is reported may be used.
        relocation: which pods are moved, and for which.
        namespace: the placer's own namespace, on which an annotation pauses placing; empty: nothing pauses it.
        places_unheld: place pods with containers that nothing would hold to their lines, see `pods.held`.
    """

    policy: Policy
    instance: str = SCHEDULER_NAME
    binds_at_once: int = 16
    drift_s: float = DRIFT_S
    volumes_s: float = BIND_TIMEOUT_S
    pool_namespace: str = OFF
    evictions: EvictionRules = field(default_factory=EvictionRules)
    relocation: RelocationRules = field(default_factory=RelocationRules)
    namespace: str = ""
    places_unheld: bool = False
