"""Reads reports from JetStream into the view and, newer-only, into the sorted list.

What always holds: a message is acknowledged only once Redis has its report. A damaged message is logged, terminated,
and delays no other. While NATS or Redis is away, messages wait in the stream. The list in Redis is compared with the
view at intervals, and filled again from the stream's last message per subject when it is behind. A node that stays
silent is forgotten, so view and list do not grow with every node that ever existed.
"""

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import nats.errors
import structlog
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

from placer.connection import REQUEST_S
from placer.metrics import Metrics
from placer.reports import ReportView, newest_of_each
from placer.scores import ReportResult, ScoreList, ScoresAwayError, ScoresLostError
from plimsoll.bus import Stream
from plimsoll.events import SLOWEST_HEARTBEAT_S, NodeState, decode_report
from plimsoll.ids import NodeName
from plimsoll.part.backoff import Pauses
from plimsoll.part.ending import heed_cancellation
from plimsoll.part.errors import InputError
from plimsoll.subjects import REPORTS, STREAM, node_token

BATCH: Final = 256
"""Messages of one fetch: a burst from a large cluster costs Redis one exchange."""

IDLE_S: Final = 2.0
"""Seconds that a request for messages waits on the server. After a request without a message, the placer checks that
the consumer exists. A server that was killed has lost the request, so this also bounds a wait in vain."""

ACK_WAIT_S: Final = 10.0
"""After this time an unacknowledged message is delivered again, which changes nothing but the counts."""

FORGET_CONSUMER_S: Final = 24 * 3600.0
"""Seconds after which the server deletes an unused consumer. A placer that restarts earlier continues from there."""

FORGET_NODE_S: Final = 2 * SLOWEST_HEARTBEAT_S
"""Seconds without a report after which a node has left the cluster, or its last report is worthless."""

log = structlog.get_logger(__name__)


def _is_set() -> asyncio.Event:
    event = asyncio.Event()
    event.set()
    return event


@dataclass(frozen=True, slots=True)
class IntakeOptions:
    """The options that differ from one placer to another.

    Attributes:
        durable: the name of the placer's consumer in the stream; placers that run at once have different ones.
        check_s: the interval at which the list in Redis is compared with the reports, in seconds.
        forget_s: the time without a report after which a node is forgotten, in seconds.
        stream: the settings of the stream, for making it if it is missing.
        leads: set once this placer is the one that places. Until then it only reads: the list is another placer's.
    """

    durable: str
    check_s: float
    forget_s: float = FORGET_NODE_S
    stream: Stream = field(default_factory=Stream)
    leads: asyncio.Event = field(default_factory=_is_set)


class Intake:
    """Takes reports in while `run` does.

    Attributes:
        ready: set once the view holds every node's last report, and the list too if this placer leads.
    """

    def __init__(
        self,
        jetstream: JetStreamContext,
        scores: ScoreList,
        reports: ReportView,
        metrics: Metrics,
        options: IntakeOptions,
    ) -> None:
        self._jetstream = jetstream
        self._scores = scores
        self._reports = reports
        self._metrics = metrics
        self._options = options
        self._reported_s: dict[
            NodeName, float
        ] = {}  # the time of each node's newest report, on the loop's clock
        self._read_s = -math.inf  # when NATS last answered a request for reports
        self.ready = asyncio.Event()

    def silent_s(self) -> float:
        """Seconds since NATS last answered a request for reports; infinite before."""
        return asyncio.get_running_loop().time() - self._read_s

    async def run(self) -> None:
        """Load the last reports, then take new ones; returns only by cancellation."""
        await self._load()
        self._read_s = asyncio.get_running_loop().time()
        if self._options.leads.is_set():
            await self._complete()
        heed_cancellation()
        self.ready.set()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow(), name="follow reports")
            tasks.create_task(self._keep_complete(), name="keep the list complete")

    async def forget(self, node: NodeName) -> None:
        """Drop a node that left from view and list; a later report brings it back.

        Raises:
            ScoresAwayError: Redis did not answer; forget again.
        """
        reported_s = self._reported_s.get(node)
        self._reports.forget(node)
        self._metrics.nodes.set(len(self._reports))
        if self._options.leads.is_set():
            await self._scores.forget(node)
        if self._reported_s.get(node) == reported_s:  # else a report arrived meanwhile
            self._reported_s.pop(node, None)

    async def _load(self) -> None:
        """Load the last reports into the view; retries until NATS answers."""
        pauses = Pauses()
        while True:
            heed_cancellation()
            try:
                await self._load_once()
            except (nats.errors.Error, TimeoutError) as error:
                log.warning("the last reports cannot be read, retrying", error=_error_text(error))
                await asyncio.sleep(pauses.next_s())
            else:
                return

    async def _load_once(self) -> None:
        await self._options.stream.ensure(self._jetstream)
        for message in await last_messages(self._jetstream):
            try:
                self._keep(_report(message))
            except InputError as error:
                log.warning("a damaged last report is skipped", subject=message.subject, problem=str(error))

    async def _follow(self) -> None:
        pauses = Pauses()
        while True:
            heed_cancellation()
            try:
                await self._options.stream.ensure(self._jetstream)
                async with _consumer(self._jetstream, self._options.durable) as subscription:
                    while True:
                        heed_cancellation()
                        await self._take(subscription)
                        pauses.reset()
            except (nats.errors.Error, TimeoutError) as error:
                log.warning("reports cannot be read, retrying", error=_error_text(error))
                await asyncio.sleep(pauses.next_s())

    async def _take(self, subscription: JetStreamContext.PullSubscription) -> None:
        """Take the waiting messages, or wait for some, and acknowledge them once Redis has the reports."""
        try:
            messages = await subscription.fetch(BATCH, timeout=IDLE_S)
        except nats.errors.TimeoutError:
            # Silence is normal, but a deleted consumer is silent too.
            await self._jetstream.consumer_info(STREAM, self._options.durable)
            self._read_s = asyncio.get_running_loop().time()
            return
        self._read_s = asyncio.get_running_loop().time()
        sound: list[Msg] = []
        states: list[NodeState] = []
        for message in messages:
            try:
                states.append(_report(message))
            except InputError as error:
                await self._terminate(message, error)
            else:
                sound.append(message)
        await self._take_in(states)
        for message in sound:
            await message.ack()

    async def _take_in(self, states: Sequence[NodeState]) -> None:
        for state in states:
            self._keep(state)
        if not self._options.leads.is_set():
            return
        newest = newest_of_each(states)
        applied = await self._apply(newest)
        self._metrics.reports.labels("applied").inc(applied)
        self._metrics.reports.labels("stale").inc(len(states) - applied)

    def _keep(self, state: NodeState) -> None:
        if self._reports.apply(state):
            self._reported_s[state.node] = asyncio.get_running_loop().time()
        self._metrics.nodes.set(len(self._reports))

    async def _terminate(self, message: Msg, error: InputError) -> None:
        """Have the server never deliver this message again: it stays damaged."""
        self._metrics.reports.labels("damaged").inc()
        log.error(
            "a damaged event is dropped",
            subject=message.subject,
            field=error.field,
            value=str(error.value),
            problem=error.problem,
            remedy=error.remedy,
        )
        await message.term()

    async def _apply(self, states: Sequence[NodeState]) -> int:
        """Write reports to Redis; retries until it answers. Returns how many changed the list."""
        pauses = Pauses()
        while True:
            heed_cancellation()
            try:
                return (await self._scores.apply(states)).count(ReportResult.APPLIED)
            except ScoresLostError:
                await self._refill()
            except ScoresAwayError as error:
                log.warning("reports wait for Redis", reports=len(states), error=str(error))
                await asyncio.sleep(pauses.next_s())

    async def _keep_complete(self) -> None:
        """Restore a list that was lost or went back in time, also while no report arrives."""
        await self._until_leading()
        while True:
            heed_cancellation()
            await asyncio.sleep(self._options.check_s)
            try:
                await self._forget_silent()
                orders = await self._scores.orders()
            except ScoresAwayError as error:
                log.warning("the list cannot be checked, retrying", error=str(error))
                continue
            if orders is None or any(orders.get(node, (0, 0)) < s.order for node, s in self._reports.items()):
                await self._restore(lost=orders is None)

    async def _until_leading(self) -> None:
        """Keep the view while another placer leads. Then complete the list."""
        if self._options.leads.is_set():
            return
        while not self._options.leads.is_set():
            heed_cancellation()
            await self._forget_silent()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._options.check_s):
                    await self._options.leads.wait()
        await self._complete()

    async def _complete(self) -> None:
        """Make the list hold every node's last report, and no other node."""
        await self._refill()
        await self._drop_strangers()
        log.info("the list is complete", nodes=len(self._reports))

    async def _forget_silent(self) -> None:
        before_s = asyncio.get_running_loop().time() - self._options.forget_s
        for node in [node for node, reported_s in self._reported_s.items() if reported_s < before_s]:
            log.warning("a silent node is forgotten", node=node, silent_s=self._options.forget_s)
            await self.forget(node)

    async def _drop_strangers(self) -> None:
        """Forget nodes that are in the list and not in the stream: they left while no placer ran."""
        with contextlib.suppress(ScoresAwayError):  # such nodes do no harm, and the next start tries again
            for node in (await self._scores.orders() or {}).keys() - self._reports.keys():
                await self.forget(node)

    async def _restore(self, *, lost: bool) -> None:
        """Fill the list again, from the stream if NATS answers, else from the view alone."""
        if lost:
            log.warning("the list in Redis was lost and is filled again", nodes=len(self._reports))
            with contextlib.suppress(nats.errors.Error, TimeoutError):  # the view holds the same reports
                await self._load_once()
        await self._refill()

    async def _refill(self) -> None:
        pauses = Pauses()
        while True:
            heed_cancellation()
            try:
                await self._scores.fill(self._reports.values())
            except ScoresAwayError as error:
                log.warning("the list cannot be filled, retrying", error=str(error))
                await asyncio.sleep(pauses.next_s())
            else:
                self._metrics.refills.inc()
                return


async def last_messages(jetstream: JetStreamContext) -> list[Msg]:
    """The last message of each report subject in the stream.

    Raises:
        nats.errors.Error: no answer, or not all of them in time.
    """
    config = ConsumerConfig(
        filter_subjects=list(REPORTS),
        deliver_policy=DeliverPolicy.LAST_PER_SUBJECT,
        ack_policy=AckPolicy.NONE,
        inactive_threshold=ACK_WAIT_S,
        mem_storage=True,
        num_replicas=1,
    )
    info = await jetstream.add_consumer(STREAM, config)
    subscription = await jetstream.pull_subscribe_bind(consumer=info.name, stream=STREAM)
    messages: list[Msg] = []
    try:
        while len(messages) < (info.num_pending or 0):
            heed_cancellation()
            messages += await subscription.fetch(BATCH, timeout=REQUEST_S)
    finally:
        with contextlib.suppress(nats.errors.Error):  # the server deletes an idle consumer by itself
            await subscription.unsubscribe()
            await jetstream.delete_consumer(STREAM, info.name)
    return messages


@contextlib.asynccontextmanager
async def _consumer(
    jetstream: JetStreamContext, durable: str
) -> AsyncIterator[JetStreamContext.PullSubscription]:
    """The placer's durable consumer of reports, made if it is missing."""
    config = ConsumerConfig(
        durable_name=durable,
        filter_subjects=list(REPORTS),
        deliver_policy=DeliverPolicy.LAST_PER_SUBJECT,
        ack_policy=AckPolicy.EXPLICIT,
        ack_wait=ACK_WAIT_S,
        inactive_threshold=FORGET_CONSUMER_S,
    )
    await jetstream.add_consumer(STREAM, config)
    subscription = await jetstream.pull_subscribe_bind(consumer=durable, stream=STREAM)
    try:
        yield subscription
    finally:
        with contextlib.suppress(nats.errors.Error):  # a closed connection has no subscriptions left
            await subscription.unsubscribe()


def _report(message: Msg) -> NodeState:
    """The node's state in a message. The subject must name the same node, as a monitor reports its own node alone."""
    state = decode_report(message.data).state
    token = message.subject.rpartition(".")[2]
    if node_token(state.node) != token:
        remedy = "publish a node's reports on its own subject"
        raise InputError("data.state.node", state.node, f"came on the subject of node {token}", remedy)
    return state


def _error_text(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
