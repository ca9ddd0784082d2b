"""Searches the cluster for the cheapest victims whose end makes room for a refused pod.

As in kube-scheduler, nodes are tried until `ENOUGH` have victims. Nodes of pods with the lowest priority come first.
A node is not tried again for the same kind of pod until the node, or a budget, changes. Other tasks run between two
nodes. What always holds: nothing is changed here.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Hashable
from dataclasses import dataclass, field
from typing import Final

from placer.core.plan import Plan
from placer.core.reasons import summary_of
from placer.kube.budgets import Budgets
from placer.kube.choice import KINDS, NodeChoice, Wanted
from placer.kube.liftable import are_liftable, is_too_small
from placer.kube.occupants import Occupant, priority_of
from placer.kube.trial import NodeTrial
from placer.kube.victims import Victims, cheapest, victims_among
from plimsoll.ids import GpuUuid, NodeName, PodUid

ENOUGH: Final = 100
"""The nodes with victims that one search compares, as in kube-scheduler up to 1000 nodes. It compares a tenth of a
larger cluster; here a node takes up to some 10 ms, so the number stays."""
FEW_NODES: Final = 128
"""In a cluster of so many nodes each node's part of the text is found out, else by the reasons that nodes share."""

NO_VICTIMS: Final = "No preemption victims found for incoming pod"
NOT_HELPFUL: Final = "Preemption is not helpful for scheduling"
"""kube-scheduler's own texts."""
BEING_BOUND: Final = "Preemption victims are still being bound"
"""No pod is deleted while its bind is under way. The refused pod is tried again."""


@dataclass(frozen=True, slots=True)
class NoVictims:
    """Why no victims help.

    Attributes:
        text: for people, in kube-scheduler's words.
        reasons: against the nodes that the pod does not fit on even without all pods of lower priority.
    """

    text: str
    reasons: frozenset[str]


@dataclass(slots=True)
class _Tried:
    """The nodes that were tried for pods of one kind: the victims, or the reasons that stay without them."""

    fits: int
    rooms: int
    nodes: dict[NodeName, Victims | tuple[str, ...]] = field(default_factory=dict)


@dataclass(slots=True)
class VictimSearch:
    """Finds victims.

    Attributes:
        choice: judges nodes.
        budgets: the disruption budgets.
        spared: gives the pods that are no victims now, although their priority is lower.
    """

    choice: NodeChoice
    budgets: Budgets
    spared: Callable[[], frozenset[PodUid]] = frozenset
    _tried: dict[Hashable, _Tried] = field(default_factory=dict)  # the kind used last stands last

    async def search(self, wanted: Wanted) -> Victims | NoVictims:
        """The cheapest victims, or why there are none.

        Both hold for the nodes as they were when they were tried, perhaps for another pod of the kind; ask `on_node`
        again before acting. Cancelling loses nothing.
        """
        found: list[Victims] = []
        tried: dict[NodeName, tuple[str, ...]] = {}
        cluster = self.choice.cluster
        own = cluster.nominations.find(wanted.request.pod)
        known = self._known(wanted).nodes
        for node in tuple(cluster.occupants.nodes_below(priority_of(wanted.pod))):
            if node not in cluster.nodes:
                continue
            is_shared = own is None or own.node != node  # its own room counts as free for the pod alone
            result = known.get(node) if is_shared else None
            if result is None:
                result = self.on_node(wanted, node)
                if is_shared and result != (BEING_BOUND,):
                    known[node] = result
                await asyncio.sleep(0)  # other tasks run between two nodes
                known = self._known(wanted).nodes
            if isinstance(result, Victims):
                found.append(result)
            else:
                tried[node] = result
            if len(found) >= ENOUGH and any(not one.violations for one in found):
                break
        if found:
            return cheapest(found)
        left = frozenset(reason for reasons in tried.values() for reason in reasons)
        return NoVictims(self._text(wanted, tried), left - {NO_VICTIMS, NOT_HELPFUL})

    def on_node(self, wanted: Wanted, node: NodeName) -> Victims | tuple[str, ...]:
        """The cheapest victims on one node, or the reasons that their end would not lift."""
        cluster = self.choice.cluster
        offer, reasons = cluster.offer(node), self.choice.reasons_against(wanted, node)
        if offer is None or not are_liftable(reasons) or is_too_small(wanted.needs, offer, reasons):
            return (NOT_HELPFUL,)
        spared = self.spared()
        lower = [
            one for one in cluster.occupants.below(priority_of(wanted.pod), node) if one.uid not in spared
        ]
        if not lower:
            return (NO_VICTIMS,)
        bound = [one for one in lower if one.is_bound]
        result = self._among(wanted, node, bound, reasons)
        if len(bound) == len(lower) or isinstance(result, Victims):
            return result
        later = self._among(wanted, node, lower, reasons)
        return (BEING_BOUND,) if isinstance(later, Victims) else later

    def _among(
        self, wanted: Wanted, node: NodeName, lower: Collection[Occupant], reasons: tuple[str, ...]
    ) -> Victims | tuple[str, ...]:
        """The cheapest victims among some pods of a node; `reasons` are those against the node now."""
        if not lower:
            return reasons
        empty = self._trial(wanted, node)
        for one in lower:
            empty.remove(one)
        left = empty.plan()
        if not isinstance(left, Plan):
            return left  # as on most nodes where no victims help
        found: list[Victims] = []
        for gpu in self._single_gpus(wanted, node) or (None,):
            trial = self._trial(wanted, node, gpu)
            # Where only the GPU is short, the end of pods on other GPUs does not help.
            is_narrow = gpu is not None and not trial.misfits()
            pods = [one for one in lower if not is_narrow or trial.concerns_gpus(one)]
            result = victims_among(trial, node, pods, self.budgets)
            if isinstance(result, Victims):
                found.append(result)
        if not found:
            return reasons
        # Without victims, the pod fits by now, so nobody has to end.
        return cheapest(found) if all(one.pods for one in found) else (NOT_HELPFUL,)

    def _trial(self, wanted: Wanted, node: NodeName, only: GpuUuid | None = None) -> NodeTrial:
        return NodeTrial(self.choice.decider, self.choice.cluster, wanted, node, only)

    def _single_gpus(self, wanted: Wanted, node: NodeName) -> tuple[GpuUuid, ...]:
        """The GPUs of a node, for a pod that wants one GPU; none for any other pod."""
        containers = wanted.request.demand.containers
        if len(containers) != 1 or containers[0].gpus != 1:
            return ()
        found = self.choice.decider.candidates.find(node)
        return tuple(gpu.uuid for gpu in found.node.gpus) if found is not None else ()

    def _text(self, wanted: Wanted, tried: dict[NodeName, tuple[str, ...]]) -> str:
        cluster, counts = self.choice.cluster, Counter[str]()
        total = len(cluster.nodes)
        if total <= FEW_NODES:
            tried = {node: tried.get(node) or self._reasons(wanted, node) for node in cluster.nodes}
        for reasons in tried.values():
            counts.update(reasons)
        alike = self.choice.counts(wanted).items()
        open_nodes = sum(nodes for reasons, nodes in alike if are_liftable(reasons))
        open_tried = sum(1 for reasons in tried.values() if reasons != (NOT_HELPFUL,))
        others = total - len(tried)
        without_victims = min(max(open_nodes - open_tried, 0), others)
        counts += Counter({NO_VICTIMS: without_victims, NOT_HELPFUL: others - without_victims})
        return summary_of(total, counts)

    def _reasons(self, wanted: Wanted, node: NodeName) -> tuple[str, ...]:
        result = self.on_node(wanted, node)
        return (NOT_HELPFUL,) if isinstance(result, Victims) else result

    def _known(self, wanted: Wanted) -> _Tried:
        """The nodes that were tried for this kind and have not changed since."""
        kind, fits, rooms = self.choice.state(wanted)
        key = kind, self.budgets.serial, self.spared()
        known = self._tried.pop(key, None) or _Tried(fits, rooms)
        for changes, serial in (
            (self.choice.cluster.changes, known.fits),
            (self.choice.decider.candidates.changes, known.rooms),
        ):
            if not changes.reaches_back_to(serial):
                known.nodes.clear()
            for node in changes.since(serial):
                known.nodes.pop(node, None)
        known.fits, known.rooms = fits, rooms
        if len(self._tried) >= KINDS:
            del self._tried[next(iter(self._tried))]
        self._tried[key] = known
        return known
