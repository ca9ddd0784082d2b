"""Gaia's policy: several GPUs of a container lie near each other, and other containers leave such sets whole.

Source: S. Song, L. Deng, J. Gong, H. Luo, "Gaia Scheduler: A Kubernetes-based Scheduler Framework", ISPA 2018.
Fragment, Singular and Link follow from one rule, see `placer.core.topology.sets`, which names the deviations. Further
ones:

* Gaia gives several GPUs whole only. Here a container may have parts of several GPUs.
* Gaia's one resource is two here, so the room of a GPU in use is the mean of its free memory and free compute time.
* Pods of one controller stay on one model of GPUs, as "in the same service allocation, there are different kinds of
  GPUs, thereby the cluster does not work properly" (§III.A). That is a constraint: a pod waits rather than mix
  models. Gaia reads the model from a quota. Here a pod that names models in `plimsoll.dev/gpu-model` may have any
  of these.

Links of a node without `node.info` all count as the farthest kind. The decision's note says so.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Final

from placer.core.index import Index, Surroundings
from placer.core.ledger import Ledger
from placer.core.policies.best_gpus import (
    FRAGMENT,
    chosen,
    empty_among,
    links_of,
    owner_models,
    packed,
    worth,
)
from placer.core.policies.policy import Judgement, Policy
from placer.core.policy_context import AssignedGpu, Context, Request
from placer.core.reasons import Reason
from placer.core.room import Room
from plimsoll.demand import ContainerDemand
from plimsoll.ids import ContainerName


@dataclass(frozen=True, slots=True)
class Topology(Policy):
    """Prefers near sets of GPUs, fragments, and single GPUs that no set needs, in the node's own access costs."""

    name: str = "topology"

    def rank(self, room: Room) -> float:
        """The score of a GPU in use. That of an empty one depends on its neighbours, and is at most this."""
        return FRAGMENT if room.is_empty else FRAGMENT + (1 - FRAGMENT) * packed(room)

    def sub_scores(self, room: Room, demand: ContainerDemand) -> dict[str, float]:  # noqa: ARG002 - one interface
        """The part of the GPU that is taken, 0–1."""
        return {"packed": round(packed(room), 6)}

    def score(self, room: Room, demand: ContainerDemand) -> float:  # noqa: ARG002 - one interface for all policies
        """The rank: the links are those of a node, so `judge` has the score."""
        return self.rank(room)

    def objection(self, context: Context, room: Room, demand: ContainerDemand) -> str | None:  # noqa: ARG002 - one interface
        """Objects to a GPU of another model than the owner's other pods have."""
        allowed = owner_models(context.request, context.ledger)
        return Reason.OWNER_MODEL.value if allowed and room.gpu.model not in allowed else None

    def state(self, request: Request, ledger: Ledger) -> Hashable:
        """The models of the owner's other pods."""
        return owner_models(request, ledger)

    def arrange(self, context: Context, demand: ContainerDemand, fitting: Sequence[Room]) -> Sequence[Room]:
        """The cheapest set; among equals the one that leaves the closest pairs of empty GPUs, then the fullest."""
        links = links_of(context.node, context.rooms)
        empty = empty_among(links, context.rooms, {one.grant.gpu for one in context.chosen})
        return chosen(links, empty, fitting, demand.gpus)

    def judge(self, context: Context, assigned: Sequence[AssignedGpu]) -> Judgement:
        """The lowest score of the pod's containers, each on the node as it is before the pod."""
        given: dict[ContainerName, list[Room]] = {}
        for one in assigned:
            given.setdefault(one.demand.container, []).append(context.rooms[one.grant.gpu])
        links = links_of(context.node, context.rooms)
        empty = empty_among(links, context.rooms)
        scores = {name: worth(links, empty, rooms) for name, rooms in given.items()}
        parts: dict[str, dict[str, float]] = {}
        for name, rooms in given.items():
            what = "nearness" if len(rooms) > 1 else "single"
            for room in rooms:
                parts[f"{name}/{room.gpu.uuid}"] = {
                    what: round(scores[name], 6),
                    **self.sub_scores(room, assigned[0].demand),
                }
        return Judgement(min(scores.values(), default=0.0), parts, _note(context, given))

    def index(self, around: Surroundings) -> Index:
        """The nodes by the score of their best GPUs for the pod's hardest container."""
        # The import of numpy takes a tenth of a second, which commands that only name the policy do without.
        from placer.core.policies.topology_table import TopologyIndex  # noqa: PLC0415

        return TopologyIndex(around)


def _note(context: Context, given: dict[ContainerName, list[Room]]) -> str:
    """The links of each container with several GPUs, or that they are not known."""
    hardware = context.node.hardware
    if not given:
        return ""
    if hardware is None or not hardware.knows(context.rooms):
        return f"links between the GPUs of node {context.node.node} are not known, so all count as equal"
    levels = {name: hardware.levels(room.gpu.uuid for room in rooms) for name, rooms in given.items()}
    return "; ".join(f"links of {name}: {found}" for name, found in levels.items() if found)


TOPOLOGY: Final = Topology()
