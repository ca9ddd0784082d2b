"""The verbs of kube-scheduler's extender protocol, on the placer's own view, ledger and binder.

All but bind read only, in slices, so that a question about 20 000 nodes delays no other task. What always
holds: a placer that could not bind answers no question. It names the reason at once, because kube-scheduler waits.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Final

from placer.core.dry_run import GpuDryRun
from placer.core.plan import Plan
from placer.decide import Decider
from placer.extender.binds import Binds
from placer.extender.demand import ExtenderDemand, extender_demand
from placer.extender.fits import Answer, Fits
from placer.extender.wire import BindingArgs, UnavailableError
from placer.scheduler.plugins.opt_out import REASON as OPTED_OUT
from placer.scheduler.pods.nominator import bookings_of
from placer.scheduler.profile import PodReader
from plimsoll.contract import opt_out_of
from plimsoll.ids import NodeName, PodUid
from plimsoll.kube.lease import Lease
from plimsoll.kube.models import Pod

COMPUTED: Final = 64
"""The nodes whose answers are computed in one piece: some 2 ms."""
LOOKED_UP: Final = 4096
"""The nodes that are handled in one piece, if their answers are known: some 2 ms."""
BROKEN_S: Final = 5.0
"""Seconds without a live watch after which nothing is answered. Shorter pauses also pass while everything is well."""


@dataclass(frozen=True, slots=True)
class Leadership:
    """Whether this placer is the one that places.

    Attributes:
        leads: set once it is, and knows everything.
        lease: None if it is the only placer.
        broken_s: seconds since a watch was last live.
    """

    leads: asyncio.Event
    lease: Lease | None
    broken_s: Callable[[], float]

    def check(self) -> None:
        """Return if the placer can decide and bind now.

        Raises:
            UnavailableError: it cannot; the message says why.
        """
        if self.lease is not None and self.lease.held.is_set() and not self.lease.is_held():
            raise UnavailableError(
                "this placer could not renew its lease: the API server is away, or it was lost"
            )
        if self.lease is not None and not self.lease.held.is_set():
            raise UnavailableError(
                "this placer does not hold the lease; send requests to the placer that does"
            )
        if not self.leads.is_set():
            raise UnavailableError(
                "this placer has just started and has not read all pods, nodes and reports yet"
            )
        broken_s = self.broken_s()
        if broken_s > BROKEN_S:
            raise UnavailableError(f"the watch of pods or nodes has been broken for {broken_s:.0f} s")


@dataclass(slots=True)
class Extender:
    """Answers kube-scheduler.

    Attributes:
        leadership: whether this placer may answer.
        decider: the reports and the ledger.
        binds: carries out binds; its owner runs it.
        reader: reads pods.
    """

    leadership: Leadership
    decider: Decider
    binds: Binds
    reader: PodReader
    fits: Fits = field(init=False)

    def __post_init__(self) -> None:
        self.fits = Fits(self.decider, self.binds.cache)

    async def filter(self, pod: Pod, nodes: Sequence[NodeName]) -> dict[NodeName, str]:
        """The nodes whose GPUs cannot take a pod now, each with the reasons; nothing is booked.

        A pod that is being bound fits on that node alone, so that kube-scheduler asks for the same bind again.

        Raises:
            InputError: the pod is malformed.
            UnavailableError: this placer cannot answer now.
        """
        self.leadership.check()
        asked = extender_demand(pod, self.reader)
        if not asked.request.demand.containers:
            return {}
        place = self.binds.place_of(PodUid(pod.metadata.uid))
        if place is not None:
            reason = f"node(s) were not the one that the pod is being bound to ({place})"
            return {node: reason for node in nodes if node != place}
        answers = await self._answers(asked, nodes)
        return {node: answer for node, answer in answers.items() if isinstance(answer, str)}

    async def prioritize(self, pod: Pod, nodes: Sequence[NodeName]) -> dict[NodeName, float]:
        """The policy's score of the best place on each node; 0 for nodes without a place, or without a GPU asked.

        Raises:
            InputError: the pod is malformed.
            UnavailableError: this placer cannot answer now.
        """
        self.leadership.check()
        asked = extender_demand(pod, self.reader)
        if not asked.request.demand.containers:
            return dict.fromkeys(nodes, 0.0)
        answers = await self._answers(asked, nodes)
        return {node: 0.0 if isinstance(answer, str) else answer for node, answer in answers.items()}

    async def preempt(self, pod: Pod, victims: Mapping[NodeName, AbstractSet[PodUid]]) -> set[NodeName]:
        """The nodes whose GPUs would take a pod once kube-scheduler has evicted these pods there.

        Raises:
            InputError: the pod is malformed.
            UnavailableError: this placer cannot answer now.
        """
        self.leadership.check()
        asked = extender_demand(pod, self.reader)
        helped = set()
        for node, evicted in victims.items():
            if not asked.request.demand.containers or self._fits_without(asked, evicted, node):
                helped.add(node)
            await asyncio.sleep(0)  # a node with hundreds of pods takes a millisecond
        return helped

    def _fits_without(self, asked: ExtenderDemand, victims: AbstractSet[PodUid], node: NodeName) -> bool:
        """Whether a pod fits on a node's GPUs once these pods and their processes are gone.

        kube-scheduler chooses victims by the sums over a node, so their room may lie on several GPUs, to no avail.
        """
        found = self.decider.candidates.find(node)
        if found is None or self._shut(node) is not None:
            return False
        held = bookings_of(self.binds.cache.nominator.against(asked.pod, node))
        dry_run = GpuDryRun(found.node, self.decider.ledger, held)
        for uid in victims:
            dry_run.remove(uid)
        return isinstance(dry_run.plan(asked.request, asked.policy), Plan)

    def _shut(self, node: NodeName) -> str | None:
        """The reason why a node takes no pod of Plimsoll's, of which kube-scheduler knows nothing."""
        cache = self.binds.cache
        known = cache.node(node)
        is_off = known is not None and opt_out_of(known.labels) is not None
        return cache.paused or (OPTED_OUT if is_off else None)

    async def bind(self, order: BindingArgs) -> None:
        """Bind a pod with GPUs of this node that are free at this moment, see `Binds.bind`.

        Raises:
            InputError, NotBoundError: as there.
            UnavailableError: this placer cannot bind now; nothing was done.
        """
        self.leadership.check()
        await self.binds.bind(order)

    async def _answers(self, asked: ExtenderDemand, nodes: Sequence[NodeName]) -> dict[NodeName, Answer]:
        known = self.fits.of(asked)
        computed, answers = known.computed, dict[NodeName, Answer]()
        for count, node in enumerate(nodes, 1):
            answers[node] = self._shut(node) or known.answer(asked, node)
            if known.computed - computed >= COMPUTED or count % LOOKED_UP == 0:
                await asyncio.sleep(0)  # other tasks run between two pieces
                computed = known.computed
        return answers
