"""The plan of a pod: its node, the GPUs of its containers, and the judgement of a policy on that place."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from placer.core.booking import Booking, Grant
from placer.core.policies.policy import Policy
from placer.core.policy_context import AssignedGpu, Context
from placer.core.view import NodeView
from plimsoll.demand import PodDemand
from plimsoll.ids import ContainerName, GpuUuid

WISHES: Final = "wishes"
"""The sub-scores of a pod's wishes; no container and GPU have this key, which has no slash."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The place of a pod.

    Attributes:
        booking: the pod's node and grants, to be booked.
        policy: the name of the policy that chose.
        score: the lowest score among the pod's containers.
        sub_scores: the parts of the score, by container and GPU (`<container>/<uuid>`). `WISHES` has those of the
            pod's wishes, which are no part of the score.
        expected: what containers that declare no memory are expected to need and how that is known, for people;
            empty if all declare it.
        cpus: the CPUs near the GPUs of each container of a pod that wants to be bound to them, as Linux lists them. A
            container whose CPUs are not known is missing.
        note: more about the place, for people, such as what is not known of the node; empty for nothing.
    """

    booking: Booking
    policy: str
    score: float
    sub_scores: Mapping[str, Mapping[str, float]]
    expected: str = ""
    cpus: Mapping[ContainerName, str] = field(default_factory=dict)
    note: str = ""

    def wished(self, parts: Mapping[str, float]) -> "Plan":
        """This plan with the parts of the wishes that its node meets; as it is without any."""
        return replace(self, sub_scores={**self.sub_scores, WISHES: parts}) if parts else self

    @property
    def gpus(self) -> dict[ContainerName, tuple[GpuUuid, ...]]:
        """The GPUs of each container, in the order of its grants."""
        return chosen_gpus(self.booking.grants)


def chosen_gpus(grants: Iterable[Grant]) -> dict[ContainerName, tuple[GpuUuid, ...]]:
    """The GPUs of each container, in the order of its grants."""
    given: dict[ContainerName, tuple[GpuUuid, ...]] = {}
    for grant in grants:
        given[grant.container] = (*given.get(grant.container, ()), grant.gpu)
    return given


def judged(context: Context, chosen: Sequence[AssignedGpu], policy: Policy) -> Plan:
    """The plan of a pod whose containers all have their GPUs, with the policy's score of the place.

    Args:
        context: the pod and its node.
        chosen: a GPU for each container; empty for a pod without one.
        policy: the policy that arranged the GPUs.
    """
    request = context.request
    position = {demand.container: index for index, demand in enumerate(request.demand.containers)}
    chosen = sorted(chosen, key=lambda one: position[one.demand.container])
    judgement = policy.judge(context, chosen)
    grants = tuple(one.grant for one in chosen)
    near = near_cpus(request.demand, context.node, chosen_gpus(grants))
    return Plan(
        booking=Booking(
            pod=request.pod,
            node=context.node.node,
            grants=grants,
            owner=request.owner,
            gpu_name=request.demand.gpu_name,
            locality=request.demand.locality,
        ),
        policy=policy.name,
        score=judgement.score,
        sub_scores=judgement.sub_scores,
        cpus=near.cpus,
        note="; ".join(filter(None, (judgement.note, near.note))),
    )


class NearCpus(NamedTuple):
    """CPUs by container as Linux lists them, and for people why some are missing; both empty if none are wanted."""

    cpus: Mapping[ContainerName, str]
    note: str


def near_cpus(
    demand: PodDemand, node: NodeView, gpus: Mapping[ContainerName, Collection[GpuUuid]]
) -> NearCpus:
    """The CPUs near the GPUs of each container, where the pod wants to be bound to them.

    Source: S. Song et al., "Gaia Scheduler: A Kubernetes-based Scheduler Framework", ISPA 2018, §III.A: a GPU is
    bound to the n nearest CPU cores. Deviation: n is not chosen. The driver names the CPUs of the GPU's own socket or
    part of it, and a container gets all of them, because its CPU request and limit say how much it may use.
    """
    if not demand.cpu_affinity:
        return NearCpus({}, "")
    found = {
        name: cpus
        for name, given in gpus.items()
        if node.hardware is not None and (cpus := node.hardware.cpus_near(given))
    }
    missing = sorted(gpus.keys() - found.keys())
    note = f"not bound to CPUs, as node {node.node} names none near the GPUs: {', '.join(missing)}"
    return NearCpus(found, note if missing else "")
