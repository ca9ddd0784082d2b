"""One pod's decision on the whole cluster: its demand, and the node for it, or the reasons why no node will do.

Adds the Kubernetes side to the shared decision (`placer.decide`): nodes that fit apart from their GPUs, pods without
a GPU, and a reason for every node that exists. What always holds: a plan that is returned is booked, and a decision
awaits nothing. A decision reads a bounded number of nodes. A refusal is final only after `explain`, which reads all
nodes once for each signature and later only those that changed.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Final

from placer.core.node_scores import FULL_SCORE, TotalScore, total_score
from placer.core.plan import Plan
from placer.core.reasons import Reason
from placer.core.refusal import Refusal
from placer.decide import FOR_TAINTS, MOST_PLANS, Decider, HeldBookings, NodeSide, NodeWishes
from placer.scheduler.cache.cache import Cache
from placer.scheduler.dry_run import NodeDryRun
from placer.scheduler.pods.assigned_pods import priority_of
from placer.scheduler.pods.nominator import Nomination, bookings_of
from placer.scheduler.pods.pod_info import PodInfo
from placer.scheduler.profile import Profile
from placer.scheduler.verdicts import Explanation, Verdicts
from plimsoll.contract import RESOURCES
from plimsoll.ids import GpuUuid, NodeName

SIGNATURES: Final = 32
"""The signatures of refused pods whose verdicts are kept: some 2 MiB each on 20 000 nodes."""

FEW_NODES: Final = 128
"""A decision that has only this many nodes to choose from reads them all, in some 3 ms."""

MOST_VALUES: Final = 1024
"""A selector with more values is not looked up in the index of labels: that takes milliseconds, and so long a list
rarely names few nodes."""

SLICE: Final = 64
"""The nodes that `explain` judges before it lets other tasks run: some 2 ms."""

READ_AT_ONCE: Final = 1024
"""The nodes and label sets of pods that a decision, or a slice of `explain`, reads for new constraints: some 2 ms."""

PROMISING: Final = 16
"""The nodes that a decision reads because their domains may meet a pod's preferred constraints on other pods. The
best candidates alone may all be in a domain that does not."""

RANKED_AT_ONCE: Final = 64
"""The nodes whose GPUs a decision, or a slice of `explain`, ranks by a policy that is new: some 4 ms."""

RESTARTS: Final = 8
"""The times that `explain` begins anew because rules about pods changed meanwhile. After that the pod backs off."""

_OUR_SUMS: Final = frozenset(f"Insufficient {name}" for name in RESOURCES)


@dataclass(frozen=True, slots=True)
class PodScheduling:
    """Decides over the nodes of one cluster.

    Attributes:
        decider: decides on GPUs.
        profile: the plugins, over the nodes and the pods on them.
        pause: lets other tasks run between two slices of a search over all nodes.
    """

    decider: Decider
    profile: Profile
    pause: Callable[[], Awaitable[None]] = lambda: asyncio.sleep(0)
    # By signature; that used last stands last. A signature has the verdicts of one state at a time.
    _known: dict[Hashable, tuple[Hashable, Verdicts]] = field(default_factory=dict, init=False)

    @property
    def cache(self) -> Cache:
        """The nodes, and the pods on them."""
        return self.profile.cache

    def decide(self, info: PodInfo) -> Plan | Refusal:
        """Plan and book, or refuse. After a refusal, `explain` finds the reasons, or a place where it was not final.

        A pod that is nominated for a node goes there, if it fits there now: to the GPU that is held for it, if it is
        one. A replacement would else return to the GPU that its predecessor was moved from.

        Raises:
            NotBookedError: the pod is booked already.
        """
        return self.decider.counted(lambda: self._decide(info))

    async def explain(self, info: PodInfo) -> Explanation | None:
        """The reasons of every node that exists, in kube-scheduler's form, after `decide` refused a pod.

        All nodes are judged for the first pod of a signature, which takes about a second on 20 000 nodes; other tasks
        run meanwhile. For later pods of it, only the nodes that changed are judged. Cancelling loses nothing.

        Returns:
            The explanation, of this moment; None if a node has a place now, so that another `decide` will find it.
        """
        for prepare in (self._prepare, self._prepare_wishes):
            while not prepare(info):
                await self.pause()  # other tasks run between two slices
        key, few = self._key(info), _most(FEW_NODES, info)
        known = self._verdicts(key)
        restarts = 0
        while True:
            problem = self._problem(info)
            if problem is not None:  # as kube-scheduler words it, without a number of nodes
                text = f"0/{len(self.cache.nodes)} nodes are available: {problem}."
                return Explanation(text, frozenset({problem}), is_of_pod=True)
            known.cover(self.cache.nodes)
            self._catch_up(known)
            for _ in range(_most(SLICE, info)):
                if not known.unseen or len(known.fitting) >= few:
                    info.found[:] = islice(known.fitting, few)
                    return None if known.fitting else self._explanation(info, known)
                self._judge(info, known, next(reversed(known.unseen)))
            await self.pause()  # other tasks run between two slices
            if self._key(info) != key:
                key = self._key(info)
                known = self._verdicts(key)
                restarts += 1
                if restarts > RESTARTS:
                    return None
            self._keep(key, known)  # decisions on other signatures may have dropped it meanwhile

    def known_reasons(self, info: PodInfo) -> Mapping[NodeName, tuple[str, ...]]:
        """The nodes that are known to have no place now, with their reasons; good until anything else runs."""
        known = self._find(self._key(info)) if self._prepare(info) else None
        if known is None:
            return {}
        self._catch_up(known)
        return known.reasons

    def obstacles(self, info: PodInfo, node: NodeName) -> tuple[str, ...]:
        """The reasons why one node cannot take a pod now; empty if it can. Nothing is booked."""
        if not self._prepare(info):
            return ()  # a decision will find out
        if self.cache.nominator.are_on(node):
            tried = NodeDryRun(self.decider, self.profile, info, node).plan()
            return () if isinstance(tried, Plan) else tried
        return self._shared_obstacles(info, node)

    def reasons_against(self, info: PodInfo, node: NodeName) -> tuple[str, ...]:
        """The reasons why one node cannot take a pod of this signature, from the verdicts where there is one."""
        known = self._find(self._key(info))
        if known is not None:
            self._catch_up(known)
            if (reasons := known.reasons.get(node)) is not None:
                return reasons
        return self._shared_obstacles(info, node)

    def counts(self, info: PodInfo) -> dict[tuple[str, ...], int]:
        """The number of nodes with each combination of reasons, as far as they were judged for the signature."""
        known = self._find(self._key(info))
        return dict(known.alike) if known is not None else {}

    def state(self, info: PodInfo) -> tuple[Hashable, int, int]:
        """Equal at two times if no node has changed for pods of this signature in between."""
        self.decider.candidates.refresh()
        return self._key(info), self.cache.changes.serial, self.decider.candidates.changes.serial

    def _shared_obstacles(self, info: PodInfo, node: NodeName) -> tuple[str, ...]:
        return self._against(info, node)[0]

    def _explanation(self, info: PodInfo, known: Verdicts) -> Explanation | None:
        """The explanation by the verdicts, which no pod's own nomination has a part in; None if its node fits."""
        topics = self.profile.topology.topics(info.pod, info.constraints)
        explained = replace(known.explanation(len(self.cache.nodes)), topics=topics)
        if Reason.GPU_MEMORY.value in explained.reasons and _is_best_effort(info):
            expected = self.decider.expected(info.request.owner)
            explained = replace(explained, text=f"{explained.text} {expected.text}")
        if too_many := self._asks_too_many(info):
            explained = replace(explained, text=f"{explained.text} {too_many}")
        own = self.cache.nominator.find(info.request.pod)
        if own is None or own.node not in self.cache.nodes:
            return explained
        obstacles = self.obstacles(info, own.node)
        return replace(explained, reasons=explained.reasons.union(obstacles)) if obstacles else None

    def _asks_too_many(self, info: PodInfo) -> str:
        """A sentence for a pod with a container that asks for more GPUs than any node reports; else empty."""
        asked = max((container.gpus for container in info.request.demand.containers), default=0)
        if asked <= 1:
            return ""
        most = max((len(state.gpus) for state in self.decider.reports.values()), default=0)
        return f"No node has {asked} GPUs, the most on a node is {most}." if asked > most else ""

    def _held(self, info: PodInfo) -> HeldBookings:
        nominator, priority = self.cache.nominator, priority_of(info.pod)
        return lambda node: bookings_of(nominator.against_others(priority, node))

    def _decide(self, info: PodInfo) -> Plan | Refusal:
        if not self._prepare(info):
            return Refusal(is_final=False)  # `explain` reads the rest, in slices
        if info.preferred.key and not self._prepare_wishes(info) and not info.found:
            # With nodes found, the pod was explained, and counts that were forgotten since then are left out.
            return Refusal(is_final=False)
        if self._problem(info) is not None:
            return Refusal()
        own = self.cache.nominator.find(info.request.pod)
        if own is not None:
            for only in dict.fromkeys((_held_gpu(own), None)):
                plan = NodeDryRun(self.decider, self.profile, info, own.node, only).plan()
                if isinstance(plan, Plan):
                    self.decider.ledger.book(plan.booking)
                    return plan
        return self._decide_anywhere(info)

    def _decide_anywhere(self, info: PodInfo) -> Plan | Refusal:
        key, few = self._key(info), _most(FEW_NODES, info)
        known = self._find(key)
        if known is not None:
            if self._lacks_room(info):
                return Refusal()
            self._catch_up(known)
        nodes = known.open_nodes(few) if known is not None else None
        if nodes is None:
            nodes = self._named(info, few)
        if nodes is not None:
            return self._decide_among(info, key, nodes)
        decided = self._decide_among(info, key, None if _wants_gpu(info) else self.cache.by_pods())
        if isinstance(decided, Plan) or decided.is_final:
            return decided
        # Many of the best nodes may not fit this pod, and hide those that do.
        known = self._find(key)
        nodes = info.found or (known.some_open_nodes(few) if known is not None else [])
        other = self._decide_among(info, key, nodes)
        return other if isinstance(other, Plan) else decided

    def _named(self, info: PodInfo, few: int) -> list[NodeName] | None:
        """The nodes that the pod's selectors may select, if they are few and cheap to find, else None."""
        return self.profile.named(info, few) if info.rules.selector.size <= MOST_VALUES else None

    def _decide_among(self, info: PodInfo, key: "_Key", nodes: Iterable[NodeName] | None) -> Plan | Refusal:
        side = NodeSide(
            lambda node: self._misfits(info, key, node),
            info.weight,
            self._wishes(info, nodes),
            self._held(info),
        )
        return self.decider.choose(info.request, info.policy, nodes, side)

    def _wishes(self, info: PodInfo, nodes: Iterable[NodeName] | None) -> NodeWishes:
        """The preferences of one decision, with the present counts. Those that are not counted yet are left out.

        Only a list of nodes, which the pod may choose from, keeps other promising nodes out.
        """
        cache, topology = self.cache, self.profile.topology
        about_pods = topology.scores(info.preferred) if info.preferred.key else ()
        scores = info.scores + about_pods

        def met(name: NodeName) -> TotalScore:
            node = cache.node(name)
            return FULL_SCORE if node is None else total_score(scores, node)

        def pods(name: NodeName) -> int:
            node = cache.node(name)
            return 0 if node is None else node.requested.pods

        def promising() -> list[NodeName]:
            some = sorted(topology.promising(info.preferred, _most(PROMISING, info)), key=pods)
            return [name for name in some if name in nodes] if isinstance(nodes, list) else some

        states_any = len(scores) > 1  # beside the one about taints, which each pod has
        return NodeWishes(met, MOST_PLANS if states_any else FOR_TAINTS, promising if about_pods else None)

    def _misfits(self, info: PodInfo, key: "_Key", node: NodeName) -> tuple[str, ...]:
        """The reasons against a node: the verdict on it, or the check of all but its GPUs, which is then noted."""
        known = self._find(key)
        reasons = known.reasons.get(node) if known is not None else None
        if reasons is None:
            reasons = self._unfit(info, node)
            if reasons and node in self.cache.nodes:
                self._verdicts(key).refuse_fit(node, reasons)
        return reasons

    def _judge(self, info: PodInfo, known: Verdicts, node: NodeName) -> None:
        if node not in self.cache.nodes:
            known.leave_out(node)
            return
        reasons, refusal = self._against(info, node)
        if refusal is not None:
            known.refuse_gpus(node, refusal)
        elif reasons:
            known.refuse_fit(node, reasons)
        else:
            known.accept(node)

    def _against(self, info: PodInfo, node: NodeName) -> tuple[tuple[str, ...], Refusal | None]:
        """The reasons against a node, and the refusal of its GPUs if they are its reasons.

        A node whose sum of our resources is short is refused for its GPUs where they have no place, because they say
        how much is free, and where.
        """
        unfit = self._unfit(info, node)
        if not _wants_gpu(info) or not _OUR_SUMS.issuperset(unfit):
            return unfit, None
        tried = self.decider.plan_on(info.request, info.policy, node, self._held(info))
        return (tried.reasons[node], tried) if isinstance(tried, Refusal) else (unfit, None)

    def _lacks_room(self, info: PodInfo) -> bool:
        return _wants_gpu(info) and not self.decider.candidates.has_room(info.request, info.policy)

    def _catch_up(self, known: Verdicts) -> None:
        self.decider.candidates.refresh()
        known.catch_up()

    def _unfit(self, info: PodInfo, node: NodeName) -> tuple[str, ...]:
        """The reasons why a node is unfit, apart from its GPUs."""
        return self.profile.filter(info, node)

    def _prepare(self, info: PodInfo) -> bool:
        """Read a part of what rules about pods need, and rank a part of the GPUs by a policy that nobody has used.

        Returns whether all is read and ranked.
        """
        if not self.profile.topology.counts.prepare(info.constraints, _most(READ_AT_ONCE, info)):
            return False
        return not _wants_gpu(info) or self.decider.candidates.rank(info.policy, RANKED_AT_ONCE)

    def _prepare_wishes(self, info: PodInfo) -> bool:
        """Read a part of what wishes about pods need; returns whether all is read."""
        return self.profile.topology.counts.prepare(info.preferred, _most(READ_AT_ONCE, info))

    def _key(self, info: PodInfo) -> "_Key":
        """Equal for pods that get the same verdicts now."""
        best_effort, ledger = _is_best_effort(info), self.decider.ledger
        expected = ledger.best_effort_bytes(info.request.owner) if best_effort else None
        applying, state = self.profile.topology.state(info.pod, info.constraints)
        tied = ledger.fixed(info.request.demand)
        objections = info.policy.state(info.request, ledger)
        return (info.signature, expected, applying, self.volume_state(info), objections), (state, tied)

    def volume_state(self, info: PodInfo) -> Hashable:
        """Equal for pods whose claims get the same answers now."""
        return self.profile.volumes.state(info.pod, info.needs.mounts)

    def _problem(self, info: PodInfo) -> str | None:
        """The reason why a pod has to wait for its claims, whatever the nodes are; or None."""
        return self.profile.volumes.problem(info.pod, info.needs.mounts)

    def _find(self, key: "_Key") -> Verdicts | None:
        signature, state = key
        found = self._known.get(signature)
        return found[1] if found is not None and found[0] == state else None

    def _verdicts(self, key: "_Key") -> Verdicts:
        known = self._find(key)
        if known is None:
            self.decider.candidates.refresh()
            known = Verdicts(self.cache.changes, self.decider.candidates.changes)
        self._keep(key, known)
        return known

    def _keep(self, key: "_Key", known: Verdicts) -> None:
        """Keep the verdicts of a signature, in place of those of an earlier state."""
        signature, state = key
        if self._known.pop(signature, None) is None and len(self._known) >= SIGNATURES:
            del self._known[next(iter(self._known))]
        self._known[signature] = state, known


_Key = tuple[Hashable, Hashable]
"""A signature with the volumes and the expected memory, and the state on which its verdicts depend."""


def _most(nodes: int, info: PodInfo) -> int:
    """This many nodes of a small pod take as long as the result for this pod."""
    return max(1, nodes // info.weight)


def _is_best_effort(info: PodInfo) -> bool:
    return any(container.best_effort for container in info.request.demand.containers)


def _wants_gpu(info: PodInfo) -> bool:
    return bool(info.request.demand.containers)


def _held_gpu(nomination: Nomination) -> GpuUuid | None:
    """The GPU that is held, if it is one."""
    held = {grant.gpu for grant in nomination.booking.grants} if nomination.booking is not None else set()
    return held.pop() if len(held) == 1 else None
