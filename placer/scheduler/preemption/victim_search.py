"""Searches the cluster for the cheapest victims whose end makes room for a refused pod.

As in kube-scheduler, nodes are tried until `ENOUGH` have victims. Nodes of pods with the lowest priority come first.
A node is not tried again for another pod of the signature until the node, or a budget, changes. Other tasks run
between two nodes, and at least every `SLICE_S` on one node, which is begun anew if it changes meanwhile. What always
holds: nothing is changed here.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Hashable
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar

from placer.core.plan import Plan
from placer.core.reasons import summary_of
from placer.scheduler.dry_run import NodeDryRun
from placer.scheduler.plugins.node_resources_fit import is_too_small
from placer.scheduler.pods.assigned_pods import AssignedPod, priority_of
from placer.scheduler.pods.pod_info import PodInfo
from placer.scheduler.preemption.budgets import Budgets
from placer.scheduler.preemption.victims import Steps, Victims, cheapest, victims_among
from placer.scheduler.schedule_pod import SIGNATURES, PodScheduling
from plimsoll.ids import GpuUuid, NodeName, PodUid

T = TypeVar("T")

ENOUGH: Final = 100
"""The nodes with victims that one search compares, as in kube-scheduler up to 1000 nodes. It compares a tenth of a
larger cluster; here a node rarely takes more than some 10 ms, so the number stays."""
SLICE_S: Final = 0.005
"""Seconds after which other tasks run. A node with hundreds of pods takes longer for a pod with many rules."""
RESTARTS: Final = 8
"""The times that the search on a node begins anew because the node changed. Then the pod backs off."""
FEW_NODES: Final = 128
"""In a cluster of up to this many nodes, the text counts what a search finds on each node. In a larger one, it counts
the reasons that nodes share."""

NO_VICTIMS: Final = "No preemption victims found for incoming pod"
NOT_HELPFUL: Final = "Preemption is not helpful for scheduling"
"""kube-scheduler's own texts."""
BEING_BOUND: Final = "Preemption victims are still being bound"
"""No pod is deleted while its bind is under way. The refused pod is tried again."""
UNSETTLED: Final = "Preemption victims changed during each search for them"
"""The refused pod is tried again."""
PASSING: Final = frozenset({BEING_BOUND, UNSETTLED})
"""Reasons that may pass without a change that is announced."""


@dataclass(frozen=True, slots=True)
class NoVictims:
    """The reasons why no victims help.

    Attributes:
        text: for people, in kube-scheduler's words.
        reasons: against the nodes that the pod does not fit on even without all pods of lower priority.
    """

    text: str
    reasons: frozenset[str]


@dataclass(slots=True)
class _Tried:
    """The nodes that were tried for pods of one signature: the victims, or the reasons that stay without them."""

    fits: int
    rooms: int
    nodes: dict[NodeName, Victims | tuple[str, ...]] = field(default_factory=dict)


@dataclass(slots=True)
class VictimSearch:
    """Finds victims.

    Attributes:
        scheduling: judges nodes.
        budgets: the disruption budgets.
        spared: gives the pods that are no victims now, although their priority is lower.
    """

    scheduling: PodScheduling
    budgets: Budgets
    spared: Callable[[], frozenset[PodUid]]
    _tried: dict[Hashable, _Tried] = field(default_factory=dict)  # the signature used last stands last

    async def search(self, info: PodInfo) -> Victims | NoVictims:
        """The cheapest victims, or the reason why there are none.

        Both hold for the nodes as they were when they were tried, perhaps for another pod of the signature; ask
        `confirm` before acting. Cancelling loses nothing.
        """
        found: list[Victims] = []
        tried: dict[NodeName, tuple[str, ...]] = {}
        cache = self.scheduling.cache
        own = cache.nominator.find(info.request.pod)
        known = self._known(info)
        for node in tuple(cache.assigned.nodes_below(priority_of(info.pod))):
            if node not in cache.nodes:
                continue
            is_shared = own is None or own.node != node  # its own room counts as free for the pod alone
            result = known.nodes.get(node) if is_shared else None
            if result is None:
                result = await self.on_node(info, node)
                is_of_state = self._known(info) is known  # rules about pods may have changed meanwhile
                if is_shared and is_of_state and (isinstance(result, Victims) or PASSING.isdisjoint(result)):
                    known.nodes[node] = result
                await self.scheduling.pause()  # other tasks run between two nodes
                known = self._known(info)
            if isinstance(result, Victims):
                found.append(result)
            else:
                tried[node] = result
            if len(found) >= ENOUGH and any(not one.violations for one in found):
                break
        if found:
            return await self._renewed(info, cheapest(found))
        left = frozenset(reason for reasons in tried.values() for reason in reasons)
        return NoVictims(await self._text(info, tried), left - {NO_VICTIMS, NOT_HELPFUL})

    async def _renewed(self, info: PodInfo, found: Victims) -> Victims:
        """These victims, searched for again if their node has changed: reports change nodes while many are tried."""
        if found.mark == self._mark(found.node):
            return found
        again = await self.on_node(info, found.node)
        return again if isinstance(again, Victims) else found

    async def on_node(self, info: PodInfo, node: NodeName) -> Victims | tuple[str, ...]:
        """The cheapest victims on one node, or the reasons that their end would not lift.

        The node has not changed when this returns. Other tasks may have changed the counts of rules about pods: so
        `confirm` checks victims again, and reasons hold for the state of the rules at the beginning. Cancelling
        loses nothing.
        """
        for _ in range(1 + RESTARTS):
            mark, state = self._mark(node), self._state(info)
            result = await self._in_slices(self._steps(info, node), node, mark)
            if isinstance(result, Victims):
                return replace(result, mark=mark)
            if result is not None and self._state(info) == state:
                return result
        return (UNSETTLED,)

    async def _in_slices(self, steps: Steps[T], node: NodeName, mark: Hashable) -> T | None:
        """Take all steps, and let other tasks run every `SLICE_S`; None if the node has changed after that."""
        loop = asyncio.get_running_loop()
        while self._mark(node) == mark:
            until_s = loop.time() + SLICE_S
            while True:
                try:
                    next(steps)
                except StopIteration as end:
                    result: T = end.value
                    return result
                if loop.time() >= until_s:
                    break
            await asyncio.sleep(0)  # other tasks run between two slices
        return None

    def confirm(self, info: PodInfo, found: Victims) -> Victims | None:
        """The victims that were found, with a plan for this pod by all that is known now.

        None if their node has changed since, or if they do not help by now. The cost is that of one plan, and of
        taking each victim away.
        """
        node, assigned = found.node, self.scheduling.cache.assigned
        if found.mark != self._mark(node):
            return None
        pods = tuple(one for victim in found.pods if (one := assigned.find(victim.uid)) is not None)
        gpus = {grant.gpu for grant in found.plan.booking.grants}
        only = next(iter(gpus)) if self._single_gpus(info, node) else None
        dry_run = NodeDryRun(self.scheduling.decider, self.scheduling.profile, info, node, only)
        for one in pods:
            dry_run.remove(one)
        plan = dry_run.plan()
        return replace(found, pods=pods, plan=plan) if isinstance(plan, Plan) else None

    def _mark(self, node: NodeName) -> Hashable:
        """Equal at two times if the node, its pods and the budgets have not changed in between."""
        candidates, cache = self.scheduling.decider.candidates, self.scheduling.cache
        candidates.refresh()
        spared = self.spared().intersection(one.uid for one in cache.assigned.on(node))
        return cache.changes.last(node), candidates.changes.last(node), self.budgets.serial, spared

    def _steps(self, info: PodInfo, node: NodeName) -> Steps[Victims | tuple[str, ...]]:
        """The result of `on_node` for a node that does not change between two steps."""
        cache = self.scheduling.cache
        known, reasons = cache.node(node), self.scheduling.reasons_against(info, node)
        is_resolvable = self.scheduling.profile.framework.is_resolvable
        if known is None or not is_resolvable(reasons) or is_too_small(info.needs, known, reasons):
            return (NOT_HELPFUL,)
        spared = self.spared()
        lower = [one for one in cache.assigned.below(priority_of(info.pod), node) if one.uid not in spared]
        if not lower:
            return (NO_VICTIMS,)
        bound = [one for one in lower if one.is_bound]
        result = yield from self._among(info, node, bound, reasons)
        if len(bound) == len(lower) or isinstance(result, Victims):
            return result
        later = yield from self._among(info, node, lower, reasons)
        return (BEING_BOUND,) if isinstance(later, Victims) else later

    def _among(
        self, info: PodInfo, node: NodeName, lower: Collection[AssignedPod], reasons: tuple[str, ...]
    ) -> Steps[Victims | tuple[str, ...]]:
        """The cheapest victims among some pods of a node; `reasons` are those against the node now."""
        if not lower:
            return reasons
        empty = NodeDryRun(self.scheduling.decider, self.scheduling.profile, info, node)
        for one in lower:
            empty.remove(one)
            yield
        left = empty.plan()
        if not isinstance(left, Plan):
            return left  # as on most nodes where no victims help
        found: list[Victims] = []
        for gpu in self._single_gpus(info, node) or (None,):
            dry_run = empty.anew(gpu)
            # Where only the GPU is short, the end of pods on other GPUs does not help.
            is_narrow = gpu is not None and not dry_run.filter()
            pods = [one for one in lower if not is_narrow or dry_run.concerns_gpus(one)]
            result = yield from victims_among(dry_run, node, pods, self.budgets)
            if isinstance(result, Victims):
                found.append(result)
        if not found:
            return reasons
        # Without victims, the pod fits by now, so no pod has to end.
        return cheapest(found) if all(one.pods for one in found) else (NOT_HELPFUL,)

    def _single_gpus(self, info: PodInfo, node: NodeName) -> tuple[GpuUuid, ...]:
        """The GPUs of a node, for a pod that wants one GPU; none for any other pod."""
        containers = info.request.demand.containers
        if len(containers) != 1 or containers[0].gpus != 1:
            return ()
        found = self.scheduling.decider.candidates.find(node)
        return tuple(gpu.uuid for gpu in found.node.gpus) if found is not None else ()

    async def _text(self, info: PodInfo, tried: dict[NodeName, tuple[str, ...]]) -> str:
        cache, counts = self.scheduling.cache, Counter[str]()
        total = len(cache.nodes)
        if total <= FEW_NODES:
            tried = {node: tried.get(node) or await self._reasons(info, node) for node in tuple(cache.nodes)}
        for reasons in tried.values():
            counts.update(reasons)
        alike = self.scheduling.counts(info).items()
        open_nodes = sum(
            nodes for reasons, nodes in alike if self.scheduling.profile.framework.is_resolvable(reasons)
        )
        open_tried = sum(1 for reasons in tried.values() if reasons != (NOT_HELPFUL,))
        others = total - len(tried)
        without_victims = min(max(open_nodes - open_tried, 0), others)
        counts += Counter({NO_VICTIMS: without_victims, NOT_HELPFUL: others - without_victims})
        return summary_of(total, counts)

    async def _reasons(self, info: PodInfo, node: NodeName) -> tuple[str, ...]:
        result = await self.on_node(info, node)
        return (NOT_HELPFUL,) if isinstance(result, Victims) else result

    def _known(self, info: PodInfo) -> _Tried:
        """The nodes that were tried for this signature and have not changed since."""
        _, fits, rooms = self.scheduling.state(info)
        key = self._state(info), self.budgets.serial, self.spared()
        known = self._tried.pop(key, None) or _Tried(fits, rooms)
        for changes, serial in (
            (self.scheduling.cache.changes, known.fits),
            (self.scheduling.decider.candidates.changes, known.rooms),
        ):
            if not changes.reaches_back_to(serial):
                known.nodes.clear()
            for node in changes.since(serial):
                known.nodes.pop(node, None)
        known.fits, known.rooms = fits, rooms
        if len(self._tried) >= SIGNATURES:
            del self._tried[next(iter(self._tried))]
        self._tried[key] = known
        return known

    def _state(self, info: PodInfo) -> Hashable:
        """The signature of a pod, and the state of all rules about pods that it has to heed."""
        signature, _, _ = self.scheduling.state(info)
        # Whether the end of a pod opens a domain depends on the pods of other nodes with the same rule.
        return signature, self.scheduling.profile.topology.terms_against(info.pod).counts
