"""Reads reports and the hardware of nodes from JetStream into the view, newer-only.

What always holds: every node's last message of each kind is in the stream, and a placer that starts reads it from
there. A damaged message is logged, terminated, and delays no other. While NATS is away, messages wait in the stream.
A node that stays silent is forgotten, so the view does not grow with every node that ever existed.

A node that has been silent for three of its own heartbeats is no candidate until it reports again (`ReportView`).
The intake measures the silence on its own clock, from the arrival of the last report. A report may have waited in the
stream before it arrives: while the placer was away, cut off, or stood still. Then its age counts too, by the clock of
the server that stored it. No clock of a node or of this machine is compared with that one. While NATS is away, all
nodes become silent: decisions would rest on measurements that are too old.
"""

import asyncio
import contextlib
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import JetStreamContext

from placer.core.silence import LONG_S, Lateness, Silence
from placer.core.topology.hardware import hardware_of
from placer.intake.reports import ReportView
from placer.intake.stream import age_s, consumer_of, last_messages, server_time
from placer.metrics.reports import ReportMetrics
from plimsoll.bus.consumers import BATCH
from plimsoll.bus.stream import Stream
from plimsoll.bus.subjects import INFOS, STREAM, node_token
from plimsoll.envelope import decode_report
from plimsoll.events import SLOWEST_HEARTBEAT_S, NodeState, Report
from plimsoll.ids import NodeName
from plimsoll.node_info import decode_info
from plimsoll.part.backoff import Pauses
from plimsoll.part.ending import heed_cancellation
from plimsoll.part.errors import SHOWN_CHARS, InputError
from plimsoll.part.log import get_logger

TOGETHER: Final = 32
"""Messages that are read before other tasks run: some 10 ms."""

IDLE_S: Final = 2.0
"""Seconds that a request for messages waits on the server. After a request without a message, the placer checks that
the consumer exists. A server that was killed has lost the request, so this also bounds a wait in vain."""

FRESH_S: Final = 3 * IDLE_S
"""Reports count as new if at some moment of the last `FRESH_S` seconds none was unread. After a longer pause, the
placer asks the server for the time."""

FORGET_NODE_S: Final = 2 * SLOWEST_HEARTBEAT_S
"""Seconds without a report after which a node has left the cluster, or its last report is worthless."""

CHECK_S: Final = 2.0
"""Seconds between two searches for silent nodes. A node is silent for hours before it is forgotten."""

SHOWN_NODES: Final = 10
"""The most nodes that one line of the log names."""

log = get_logger()


@dataclass(frozen=True, slots=True)
class IntakeOptions:
    """The options that differ from one placer to another.

    Attributes:
        durable: the name of the placer's consumer in the stream; placers that run at once have different ones.
        check_s: the interval between two searches for silent nodes, in seconds.
        stream: the settings of the stream, for making it if it is missing.
    """

    durable: str
    check_s: float = CHECK_S
    stream: Stream = field(default_factory=Stream)


class Intake:
    """Takes reports in while `run` runs.

    Attributes:
        on_event: called with each report that can be read, also with one that is late or came before. It must not
            block or raise.
        ready: set once the view holds every node's last report.
    """

    def __init__(
        self, client: Client, reports: ReportView, metrics: ReportMetrics, options: IntakeOptions
    ) -> None:
        self._client = client
        self._jetstream = client.jetstream()
        self._reports = reports
        self._metrics = metrics
        self._options = options
        self._reported_s: dict[NodeName, float] = {}  # each node's newest report, on the loop's clock
        self._read_s = -math.inf  # when NATS last answered a request for reports
        self._current_s = -math.inf  # the last known time at which no report was unread
        self._silence = Silence()
        self._lateness = Lateness()
        # A consumer that is new begins with each node's last messages, which were loaded.
        self._loaded_seq = 0
        self._silence_wakened = asyncio.Event()
        self.ready = asyncio.Event()
        self.on_event: Callable[[Report], None] = lambda _: None

    def silent_s(self) -> float:
        """Seconds since NATS last answered a request for reports; infinite before."""
        return asyncio.get_running_loop().time() - self._read_s

    async def run(self) -> None:
        """Load the last reports, then take new ones; returns only by cancellation."""
        await self._load()
        self._read_s = asyncio.get_running_loop().time()
        self._mark_silent()
        heed_cancellation()
        self.ready.set()
        log.info("the last reports are read", nodes=len(self._reports))
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow(), name="follow reports")
            tasks.create_task(self._forget_silent(), name="forget silent nodes")
            tasks.create_task(self._watch_silence(), name="watch for silent nodes")

    def forget(self, node: NodeName) -> None:
        """Drop a node that left from the view; a later report brings it back."""
        self._reports.forget(node)
        self._silence.forget(node)
        self._lateness.forget(node)
        self._metrics.forget_node(node)
        self._metrics.nodes.set(len(self._reports))
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
        began_s = asyncio.get_running_loop().time()
        messages = await last_messages(self._jetstream)
        now = await server_time(self._client)
        for number, message in enumerate(messages, start=1):
            if number % TOGETHER == 0:
                await asyncio.sleep(0)  # other tasks run between two batches of messages
            try:
                self._load_message(message, now)
            except InputError as error:
                log.warning("a damaged last report is skipped", subject=message.subject, problem=str(error))
            self._loaded_seq = max(self._loaded_seq, message.metadata.sequence.stream)
        self._current_s = began_s

    def _load_message(self, message: Msg, now: datetime) -> None:
        if _is_info(message):
            self._keep_hardware(message)
        else:
            self._keep(self._read(message), age_s(message, now))

    async def _follow(self) -> None:
        pauses = Pauses()
        while True:
            heed_cancellation()
            try:
                await self._options.stream.ensure(self._jetstream)
                async with consumer_of(self._jetstream, self._options.durable) as subscription:
                    while True:
                        heed_cancellation()
                        await self._take(subscription)
                        pauses.reset()
            except (nats.errors.Error, TimeoutError) as error:
                log.warning("reports cannot be read, retrying", error=_error_text(error))
                await asyncio.sleep(pauses.next_s())

    async def _take(self, subscription: JetStreamContext.PullSubscription) -> None:
        """Take the waiting messages, or wait for some, and acknowledge them."""
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        try:
            messages = await subscription.fetch(BATCH, timeout=IDLE_S)
        except TimeoutError:
            # Silence is normal, but a deleted consumer is silent too. If the server's answer and nats-py's own timer
            # come at the same moment, nats-py raises asyncio's error in place of its own.
            await self._look_for_unread()
            return
        self._read_s = loop.time()
        may_be_old = self._read_s - self._current_s > FRESH_S
        now = await server_time(self._client) if may_be_old else None
        for start in range(0, len(messages), TOGETHER):
            if start:
                await asyncio.sleep(0)  # other tasks run between two batches of messages
            await self._take_together(messages[start : start + TOGETHER], now)
        if may_be_old:
            # The messages may have been long on their way, and others behind them.
            await self._look_for_unread()
        elif messages and messages[-1].metadata.num_pending == 0:
            self._current_s = began_s

    async def _look_for_unread(self) -> None:
        """Ask the server whether reports are unread: still to be sent, or sent and not acknowledged."""
        began_s = asyncio.get_running_loop().time()
        info = await self._jetstream.consumer_info(STREAM, self._options.durable)
        self._read_s = asyncio.get_running_loop().time()
        if not info.num_pending and not info.num_ack_pending:
            self._current_s = began_s

    async def _take_together(self, messages: Sequence[Msg], now: datetime | None) -> None:
        """Take some messages, and then acknowledge them; `now` is the server's time if they may be old."""
        problems: list[InputError | None] = []
        for message in messages:
            try:
                self._take_message(message, now)
            except InputError as error:
                problems.append(error)
            else:
                problems.append(None)
        # Before anything is awaited, so that no decision sees a node that an old report seems to bring back.
        self._mark_silent()
        for message, problem in zip(messages, problems, strict=True):
            if problem is None:
                await message.ack()
            else:
                await self._terminate(message, problem)

    def _take_message(self, message: Msg, now: datetime | None) -> None:
        if _is_info(message):
            self._keep_hardware(message)
            return
        state = self._read(message)
        is_newer = self._keep(state, age_s(message, now) if now else 0.0)
        outcome = "applied" if is_newer else "stateless" if state.is_omitted else "stale"
        self._metrics.taken.labels(outcome).inc()
        if not is_newer and message.metadata.sequence.stream > self._loaded_seq:
            self._note_late(state)

    def _keep_hardware(self, message: Msg) -> None:
        time, info = decode_info(message.data)
        _check_subject(message, "data.node", info.node)
        self._reports.apply_hardware(info.node, time, hardware_of(info))

    def _read(self, message: Msg) -> NodeState:
        report = _report(message)
        self.on_event(report)
        return report.state

    def _keep(self, state: NodeState, age_s: float) -> bool:
        is_newer = self._reports.apply(state)
        if is_newer:
            now_s = asyncio.get_running_loop().time()
            self._reported_s[state.node] = now_s
            self._metrics.last.labels(state.node).set(time.time() - age_s)
            self._metrics.node_silent.labels(state.node).set(0)
            if self._silence.reported(state.node, now_s - age_s, state.heartbeat_s):
                self._silence_wakened.set()
        self._metrics.nodes.set(len(self._reports))
        self._metrics.silent_nodes.set(len(self._reports.silent))
        return is_newer

    def _note_late(self, state: NodeState) -> None:
        """Count a report that is older than the newest one, and name its node once that has gone on for long."""
        newest = self._reports.get(state.node)
        # The server delivered the newest report again, or an event without a state.
        if newest is None or newest.order == state.order or state.is_omitted:
            return
        self._metrics.late.labels(state.node).inc()
        if self._lateness.was_late(state.node, asyncio.get_running_loop().time(), state.heartbeat_s):
            log.error(
                "a node's reports have been older than its newest one for long: two monitors report as one node",
                node=state.node,
                seconds=LONG_S,
                epoch=state.epoch,
                newest_epoch=newest.epoch,
                gpus=[gpu.uuid for gpu in state.gpus],
                newest_gpus=[gpu.uuid for gpu in newest.gpus],
                remedy="stop one of the monitors, or give its node the right name",
            )

    async def _terminate(self, message: Msg, error: InputError) -> None:
        """Have the server never deliver this message again: it stays damaged."""
        self._metrics.taken.labels("damaged").inc()
        log.error(
            "a damaged event is dropped",
            subject=message.subject,
            field=error.field,
            value=str(error.value)[:SHOWN_CHARS],
            problem=error.problem,
            remedy=error.remedy,
        )
        await message.term()

    async def _forget_silent(self) -> None:
        while True:
            heed_cancellation()
            await asyncio.sleep(self._options.check_s)
            before_s = asyncio.get_running_loop().time() - FORGET_NODE_S
            for node in [node for node, reported_s in self._reported_s.items() if reported_s < before_s]:
                log.warning("a silent node is forgotten", node=node, silent_s=FORGET_NODE_S)
                self.forget(node)

    async def _watch_silence(self) -> None:
        while True:
            heed_cancellation()
            self._silence_wakened.clear()
            self._mark_silent()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(self._silence.next_s()):
                    await self._silence_wakened.wait()

    def _mark_silent(self) -> None:
        nodes = self._silence.take(asyncio.get_running_loop().time())
        for node in nodes:
            self._reports.set_silent(node)
            self._metrics.node_silent.labels(node).set(1)
        if nodes:
            log.warning("nodes are silent, no pod goes there", count=len(nodes), some=nodes[:SHOWN_NODES])
        self._metrics.silent_nodes.set(len(self._reports.silent))


def _report(message: Msg) -> Report:
    """The report in a message. The subject must name the same node, as a monitor reports its own node alone."""
    report = decode_report(message.data)
    _check_subject(message, "data.state.node", report.state.node)
    return report


def _is_info(message: Msg) -> bool:
    return message.subject.startswith(INFOS.removesuffix("*"))


def _check_subject(message: Msg, field: str, node: NodeName) -> None:
    token = message.subject.rpartition(".")[2]
    if node_token(node) != token:
        remedy = "publish a node's events on its own subjects"
        raise InputError(field, node, f"came on the subject of node {token}", remedy)


def _error_text(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
