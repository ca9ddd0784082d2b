"""When a GPU is taken from the device plugin, and when it is given back: facts and the time in, steps out.

A vGPU's phases (KubeShare, HPDC 2020, §4.4) follow from the objects: *creation* while a reservation does not name its
GPU, *active* while a pod uses it, *idle* while none does, *deletion* from the request for its release on.

What always holds: a step follows from the present facts, so a step that was lost or came twice does no harm. A
reservation whose GPU pods use is not given back, and a GPU that pods use without a reservation is reserved again
before anything else happens on its node. A cordoned GPU without pods serves no waiting pod, and stays reserved, so
that nobody gets it. A GPU is given back only after the placer has granted its release.
"""

import math
from collections.abc import Mapping
from typing import Final

from placer.core.holders import GpuKey
from placer.pool.core.facts import Facts, User
from placer.pool.core.release_policy import ReleasePolicy
from placer.pool.core.round import Draft, PoolNode, Round, concerned_nodes, other_nodes
from placer.pool.core.steps import Drop, Give, Keep, Learn, Reserve, Step
from plimsoll.ids import GpuUuid, NodeName, PodUid
from plimsoll.kube.names import fitted_name
from plimsoll.pool import Release, Reservation

SETTLE_S: Final = 5.0
"""The time in which the placer uses a GPU that joined for a waiting pod: some tenths of a second, by a busy machine's
measure. A GPU that is idle for longer does not suit the pods that wait on its node, and another one is taken."""
RETRY_S: Final = 5.0
"""The pause on a node after a reservation that got no GPU. The next one meets the same kubelet."""
AVOID_S: Final = 300.0
"""The time for which a node where a reservation failed is the last choice, as its runtime or its network may be at
fault, which a person has to mend."""
PINNED_RETRY_S: Final = 60.0
"""The pause between two searches for a GPU that a pod names by its UUID while a native pod has it. Each
search takes all free GPUs of the node for some seconds, because the kubelet chooses which GPU it gives."""


class Planner:
    """Plans round after round. It remembers only how long things have stood."""

    def __init__(self, policy: ReleasePolicy, acquire_s: float) -> None:
        """Remember nothing.

        Args:
            policy: when idle GPUs are given back.
            acquire_s: the seconds in which a reservation must name its GPU; then it is made anew.
        """
        self._policy = policy
        self._acquire_s = acquire_s
        self._since_s: dict[PodUid, float] = {}  # since when a reservation acquires
        self._idle_s: dict[GpuKey, float] = {}  # since when a GPU is idle
        self._failed_s: dict[NodeName, float] = {}  # when a reservation last got no GPU
        self._given_up_s: dict[PodUid, float] = {}  # when a pinned GPU was not to be had

    def plan(self, facts: Facts, now_s: float) -> Round:
        """The steps of this moment.

        Args:
            facts: not changed.
            now_s: seconds on a clock that does not go back.
        """
        self._forget(facts)
        draft = Draft(facts, now_s, concerned_nodes(facts))
        for node in draft.nodes:
            self._sort(node, draft)
        self._share_out(draft)
        for node in draft.nodes:
            self._want(node, now_s)
            self._take(node, draft)
        self._take_ready(draft)
        self._give_back(draft)
        draft.due_s += [at_s + PINNED_RETRY_S for at_s in self._given_up_s.values()]
        draft.due_s += [at_s + self._acquire_s for at_s in self._since_s.values()]
        return draft.round()

    def _forget(self, facts: Facts) -> None:
        there = {uid for several in facts.reservations.values() for uid in several}
        waiting = {uid for several in facts.waiting.values() for uid in several}
        self._since_s = {uid: at for uid, at in self._since_s.items() if uid in there}
        self._given_up_s = {uid: at for uid, at in self._given_up_s.items() if uid in waiting}

    def _sort(self, node: PoolNode, draft: Draft) -> None:
        """Sort a node's reservations, and find the GPUs that pods use without one."""
        users: Mapping[GpuUuid, set[User]] = draft.facts.users.get(node.name, {})
        for one in node.there:
            if not one.leaving:
                self._sort_one(one, node, draft, is_used=one.gpu in users)
        for card in [card for card in self._idle_s if card[0] == node.name and card[1] not in node.held]:
            del self._idle_s[card]
        node.free = max(0, node.facts.devices - draft.facts.devices[node.name] - node.unplaced)
        if not node.facts.dedicated:
            gone = {gpu: frozenset(pods) for gpu, pods in users.items() if gpu not in node.held}
            draft.lost |= {(node.name, gpu): pods for gpu, pods in gone.items()}
            node.missing = set(gone)

    def _sort_one(self, one: Reservation, node: PoolNode, draft: Draft, *, is_used: bool) -> None:
        """Count a reservation; mend one that holds no GPU, or another than it says."""
        fault = self._fault(one, node.held, draft.now_s)
        if fault:
            draft.steps.append(Drop(one, fault))
            self._failed_s[node.name] = draft.now_s
        elif one.card is not None and one.card != one.gpu:
            draft.steps.append(Learn(one, one.card))
            node.acquiring += 1
        elif one.gpu is None:
            node.acquiring += 1
            node.unplaced += not one.bound
        else:
            node.held.add(one.gpu)
            is_shut = not is_used and node.takes_pods and one.gpu in node.facts.cordoned
            node.cordoned += is_shut
            if is_used or is_shut:
                self._idle_s.pop((node.name, one.gpu), None)
                if one.release is not None:
                    draft.steps.append(Keep(one))
            else:
                node.idle.append(one)
                since_s = self._idle_s.setdefault((node.name, one.gpu), draft.now_s)
                node.young += draft.now_s - since_s < SETTLE_S

    def _fault(self, one: Reservation, held: set[GpuUuid], now_s: float) -> str:
        """Why a reservation is of no use; empty if it is."""
        if one.ended:
            return f"the kubelet ended it: {one.problem or 'no reason given'}"
        if one.unschedulable and not one.bound:
            return "the node has no free GPU"
        if one.gpu is not None:
            return f"GPU {one.gpu} is handed out twice" if one.gpu in held else ""
        since_s = self._since_s.setdefault(one.uid, now_s)
        if now_s - since_s >= self._acquire_s and one.card is None:
            return f"it did not name its GPU in {self._acquire_s:g} s: {one.problem or 'it has not started'}"
        return ""

    def _share_out(self, draft: Draft) -> None:
        """Share the pods that wait out among the nodes that the placer named for them.

        Each node gets as many as its GPUs may serve; those that are left over wait with the first. A node whose
        reservations fail comes last.
        """
        nodes = {one.name: one for one in draft.nodes}
        for named, waiting in sorted(draft.facts.waiting.items()):
            here = [nodes[name] for name in named if name in nodes and nodes[name].facts.ready]
            here.sort(key=lambda one: draft.now_s - self._failed_s.get(one.name, -math.inf) < AVOID_S)
            if not here:
                continue
            for uid, demand in waiting.items():
                if demand.gpu_id is not None:  # one node has it
                    here[0].pinned[uid] = demand.gpu_id
                    continue
                fitting = (one for one in here if one.packing.gpus(demand) <= one.supply)
                next(fitting, here[0]).packing.add(demand)

    def _want(self, node: PoolNode, now_s: float) -> None:
        """Count the GPUs that the node is to have for its pods."""
        node.wanted = node.packing.gpus()
        sought = {
            uid: gpu
            for uid, gpu in node.pinned.items()
            if gpu not in node.held and now_s - self._given_up_s.get(uid, -math.inf) >= PINNED_RETRY_S
        }
        if sought and not node.free and not node.acquiring:
            self._given_up_s |= dict.fromkeys(sought, now_s)
        else:
            node.missing |= set(sought.values())
        kept = not node.held.isdisjoint(node.pinned.values())
        node.keeps = bool(node.wanted or node.missing or kept)

    def _take(self, node: PoolNode, draft: Draft) -> None:
        """Reserve the GPUs that pods of the node need."""
        if not node.facts.ready:
            return
        if node.wanted and node.young:
            draft.due_s += [self._idle_since(node, one) + SETTLE_S for one in node.idle]
        needed = max(node.wanted - node.young, len(node.missing)) - node.acquiring
        resume_s = self._failed_s.get(node.name, -math.inf) + RETRY_S
        if needed > 0 and draft.now_s < resume_s:
            draft.due_s.append(resume_s)
            return
        self._reserve(node, min(needed, node.free), draft.steps)

    def _take_ready(self, draft: Draft) -> None:
        """Reserve GPUs ahead, where most are free, until as many are spare as the policy says."""
        lacking = self._policy.ready - sum(one.spare for one in draft.nodes if one.takes_pods)
        if lacking <= 0:
            return
        takers = [
            one
            for one in (*draft.nodes, *other_nodes(draft))
            if one.facts.ready
            and one.takes_pods
            and draft.now_s - self._failed_s.get(one.name, -math.inf) >= RETRY_S
        ]
        for _ in range(lacking):
            best = max(takers, key=lambda one: (one.free, one.name), default=None)
            if best is None or best.free <= 0:
                return
            self._reserve(best, 1, draft.steps)
            if best not in draft.nodes:
                draft.nodes.append(best)

    def _reserve(self, node: PoolNode, count: int, steps: list[Step]) -> None:
        """Reserve GPUs under the lowest free numbers, so that two controllers make one reservation and not two."""
        made = {step.name for step in steps if isinstance(step, Reserve) and step.node == node.name}
        taken = {one.name for one in node.there} | made | node.strangers
        number = 0
        for _ in range(max(0, count)):
            while (name := reservation_name(node.name, number)) in taken:
                number += 1
            taken.add(name)
            steps.append(Reserve(node.name, name))
            node.acquiring += 1
            node.free -= 1

    def _give_back(self, draft: Draft) -> None:
        """Give idle GPUs back, the one that has been idle for the longest time first."""
        spare = sum(one.spare for one in draft.nodes if one.takes_pods)
        idle = sorted(
            ((self._idle_since(node, one), one.name, node, one) for node in draft.nodes for one in node.idle),
            key=lambda found: found[:2],
        )
        for since_s, _, node, one in idle:
            may_go = not node.keeps and (not node.takes_pods or spare > self._policy.ready)
            is_due = not node.takes_pods or draft.now_s >= since_s + self._policy.idle_s
            if may_go and not is_due:
                draft.due_s.append(since_s + self._policy.idle_s)
            if may_go and (is_due or one.release is not None):
                spare -= node.takes_pods
                if one.release is None:
                    draft.steps.append(Give(one))
                elif one.release is Release.GRANTED:
                    draft.steps.append(Drop(one, "", released=True))
            elif one.release is not None:
                draft.steps.append(Keep(one))

    def _idle_since(self, node: PoolNode, one: Reservation) -> float:
        return self._idle_s[node.name, one.gpu or GpuUuid("")]


def reservation_name(node: NodeName, number: int) -> str:
    """The name of a node's reservation with this number."""
    return fitted_name(f"gpu-{number}.{node}")
