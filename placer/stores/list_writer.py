"""Keeps the sorted list in Redis equal to the reports and promises in memory, while this placer leads.

What always holds: nothing waits for Redis but the list itself. New reports are written at once. Scores that changed
with promises are written once a second, many nodes at a time. The list is compared with the reports at intervals. So
a list that was lost, went back in time, or was changed by somebody else becomes what a rebuild gives, without any new
report.
"""

import asyncio
import contextlib
from collections.abc import Iterable
from itertools import islice
from typing import Final

from placer.decide import Decider
from placer.stores.scores import CHUNK, ReportResult, ScoreList, ScoresAwayError, ScoresLostError, Sizes
from plimsoll.events import NodeState
from plimsoll.ids import NodeName
from plimsoll.part.backoff import Pauses
from plimsoll.part.causes import Outage
from plimsoll.part.ending import heed_cancellation
from plimsoll.part.log import get_logger

RESCORE_S: Final = 1.0
"""Seconds between two writes of scores: a burst of bookings on a node causes one write."""

CHECK_S: Final = 2.0
"""Seconds between two comparisons of the list with the reports: a list that Redis lost is filled again this soon."""

COMPARED: Final = 200
"""The most nodes whose whole entries one check compares, if none is known to differ: some 10 ms in small slices. The
next check continues after these nodes."""

SLICE: Final = 50
"""Nodes that are compared before other tasks run: some 2 ms."""

log = get_logger()


def _leads_from_the_start() -> asyncio.Event:
    leads = asyncio.Event()
    leads.set()
    return leads


class ListWriter:
    """Writes the list while `run` runs.

    Attributes:
        complete: set once the list holds every node's last report for the first time, and no other node.
    """

    def __init__(
        self,
        scores: ScoreList,
        decider: Decider,
        check_s: float = CHECK_S,
        leads: asyncio.Event | None = None,
    ) -> None:
        """Make a writer that follows the decider's reports from now on.

        Args:
            scores: the list.
            decider: the owner of reports and promises.
            check_s: the interval at which the list is compared with the reports, in seconds.
            leads: set once this placer is the one that places; until then the list is another placer's.
                None: this placer leads from the start.
        """
        self._scores = scores
        self._reports = decider.reports
        self._candidates = decider.candidates
        self._metrics = decider.metrics.servers
        self._check_s = check_s
        self._leads = leads or _leads_from_the_start()
        self.complete = asyncio.Event()
        self._news = asyncio.Event()
        self._unwritten: dict[NodeName, None] = {}  # nodes whose last report is not in the list yet
        self._gone: set[NodeName] = set()  # nodes that are in the list and have left
        self._uncompared: list[NodeName] = []  # nodes that the present round of checks has yet to compare
        self._unscored: set[NodeName] = set()  # nodes whose scores in the list are outdated
        self._outage = Outage(log.warning)
        self._reports.on_change(self._note)

    @property
    def is_away(self) -> bool:
        """Whether Redis did not take the last write."""
        return self._outage.is_on

    async def run(self) -> None:
        """Fill the list and keep it up to date; returns only by cancellation."""
        await self._leads.wait()
        await self._refill()
        # Nodes may have left while no placer ran. An error does no harm, because the next check tries again.
        with contextlib.suppress(ScoresAwayError):
            await self._check(0)
        heed_cancellation()  # a group does not end for a cancellation that came before it
        self.complete.set()
        log.info("the list is complete", nodes=len(self._reports))
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._write_reports(), name="write reports")
            tasks.create_task(self._write_scores(), name="write scores")
            tasks.create_task(self._keep_complete(), name="keep the list complete")

    def _note(self, node: NodeName) -> None:
        if node in self._reports:
            self._unwritten[node] = None
        else:
            self._gone.add(node)
        self._news.set()

    async def _write_reports(self) -> None:
        pauses = Pauses()
        while True:
            heed_cancellation()
            await self._news.wait()
            self._news.clear()
            try:
                await self._write_news()
            except ScoresLostError:
                await self._restore()
            except ScoresAwayError as error:
                self._outage.failed("reports wait for Redis", str(error), reports=len(self._unwritten))
                self._news.set()
                await asyncio.sleep(pauses.next_s())  # Redis is away
            else:
                pauses.reset()

    async def _write_news(self) -> None:
        for node in tuple(self._gone):
            await self._scores.forget(node)
            self._gone.discard(node)
        while self._unwritten:
            states = self._last_reports(tuple(islice(self._unwritten, CHUNK)))
            results = await self._scores.apply(states)
            for state, result in zip(states, results, strict=True):
                if self._reports.get(state.node) is state:  # else a newer report has arrived
                    self._unwritten.pop(state.node, None)
                if result is ReportResult.STALE:
                    # The list had the report already, with an earlier placer's scores.
                    self._unscored.add(state.node)

    async def _write_scores(self) -> None:
        pauses = Pauses()
        while True:
            heed_cancellation()
            await asyncio.sleep(RESCORE_S)
            self._unscored |= self._candidates.take_rebooked()
            try:
                await self._rescore()
            except ScoresLostError:
                pass  # `_write_reports` or `_keep_complete` fills the list, with new scores
            except ScoresAwayError as error:
                self._outage.failed("scores wait for Redis", str(error), nodes=len(self._unscored))
                await asyncio.sleep(pauses.next_s())  # Redis is away
            else:
                pauses.reset()

    async def _rescore(self) -> None:
        outdated = tuple(self._unscored)
        for start in range(0, len(outdated), CHUNK):
            nodes = outdated[start : start + CHUNK]
            self._unscored.difference_update(nodes)
            states = self._last_reports(nodes)
            try:
                results = await self._scores.rescore(states)
            except ScoresAwayError:
                self._unscored.update(nodes)
                raise
            # A report that is not in the list yet is scored once it is there.
            late = (s.node for s, r in zip(states, results, strict=True) if r is ReportResult.STALE)
            self._unscored.update(late)

    async def _keep_complete(self) -> None:
        """Restore a list that was lost or went back in time, also while no report arrives."""
        while True:
            heed_cancellation()
            await asyncio.sleep(self._check_s)
            try:
                await self._check(COMPARED)
                self._outage.ended()
            except ScoresLostError:
                await self._restore()
            except ScoresAwayError as error:
                self._outage.failed("the list cannot be checked, retrying", str(error))

    async def _check(self, most: int) -> None:
        """Make the list what a rebuild gives. At most this many entries are compared one by one, where counts and
        order agree.

        Raises:
            ScoresLostError: the list was lost.
            ScoresAwayError: no answer.
        """
        was_mistyped = await self._scores.drop_wrong_types()
        orders = await self._scores.orders()
        if orders is None:
            raise ScoresLostError("the sorted list in Redis is empty")
        nodes, gpus = len(self._reports), sum(len(state.gpus) for state in self._reports.values())
        if was_mistyped or await self._scores.sizes() != Sizes(nodes, gpus, nodes, nodes):
            dropped = await self._scores.drop_strangers(self._reports)
            mended = await self._mend(tuple(self._reports))
        else:
            dropped = 0
            apart = [node for node, state in self._reports.items() if orders.get(node) != state.order]
            mended = await self._mend((*apart, *self._next_compared(most)))
        if dropped or mended:
            log.info("the list in Redis was not as written and is mended", dropped=dropped, mended=mended)

    def _next_compared(self, most: int) -> list[NodeName]:
        """The nodes to compare in this check: those after the last check's, in turn."""
        if not self._uncompared:
            self._uncompared = list(self._reports)
        rest = max(0, len(self._uncompared) - most)
        taken = self._uncompared[rest:]
        del self._uncompared[rest:]
        return taken

    async def _mend(self, nodes: Iterable[NodeName]) -> int:
        """Replace the entries of these nodes that differ; returns their number.

        Entries whose report or scores are still to be written are left out: they differ for a moment.
        """
        mended = 0
        rest = list(dict.fromkeys(nodes))
        while rest:
            taken = rest[:SLICE]
            del rest[:SLICE]
            self._unscored |= self._candidates.take_rebooked()
            found = await self._scores.differing(self._last_reports(tuple(taken)))
            states = [s for s in self._last_reports(tuple(found)) if not self._is_awaited(s, found[s.node])]
            results = await self._scores.mend(states, found)
            mended += results.count(ReportResult.APPLIED)
        return mended

    def _is_awaited(self, state: NodeState, found: str) -> bool:
        is_listed = found == f"{state.epoch} {state.seq}"
        return state.node in (self._unscored if is_listed else self._unwritten)

    async def _restore(self) -> None:
        log.warning("the list in Redis was lost and is filled again", nodes=len(self._reports))
        await self._refill()

    async def _refill(self) -> None:
        pauses = Pauses()
        while True:
            heed_cancellation()
            states = tuple(self._reports.values())
            try:
                self._unscored |= await self._scores.fill(states)
            except ScoresAwayError as error:
                self._outage.failed("the list cannot be filled, retrying", str(error))
                await asyncio.sleep(pauses.next_s())  # Redis is away
            else:
                for state in states:
                    if self._reports.get(state.node) is state:  # else a newer report has arrived
                        self._unwritten.pop(state.node, None)
                        self._gone.discard(state.node)  # it came back before the list was filled
                self._outage.ended()
                self._metrics.refills.inc()
                return

    def _last_reports(self, nodes: tuple[NodeName, ...]) -> list[NodeState]:
        """The last reports of nodes; nodes that left are no longer unwritten."""
        for node in nodes:
            if node not in self._reports:
                self._unwritten.pop(node, None)
        return [self._reports[node] for node in nodes if node in self._reports]
