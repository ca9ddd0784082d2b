"""The monitor's loop: waits for an event, observes the node, and stores the events that follow.

An announcement of a hooked process, a large change of its memory, or a death wakes the loop. A timer wakes it too,
see `monitor.core.pace`. What always holds:

* A round is stored whole before anything follows from it: before the table moves on, the broker may forget
  announcements, and NATS gets events. A round that could not be stored changes nothing, and its announcements and
  deaths are taken in again by the next one.
* The observer runs one round at a time. Everything here belongs to one task of the loop.
* A slow driver delays what the driver alone knows. Announcements and deaths are published meanwhile, with the GPUs as
  last read.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

from monitor.advertise import Advertiser
from monitor.broker import Acknowledger, Measurer
from monitor.core import conditions, lifecycle, node_state
from monitor.core import tasks as table
from monitor.core.conditions import ConditionChanges, ConditionRules, Conditions
from monitor.core.lifecycle import LoadingRules
from monitor.core.node_state import Thresholds
from monitor.core.observation import (
    JOURNAL_START,
    Findings,
    JournalPosition,
    Observation,
    is_urgent,
    observe,
)
from monitor.core.pace import Pace, RoundThrottle
from monitor.core.reports import Batch, Identity, Reports
from monitor.core.tasks import Tasks
from monitor.epoch import raise_epoch
from monitor.foreign import ForeignNaming, ForeignReport
from monitor.gpu_readings import GpuReadings, Informer, driver_view
from monitor.inbox import Inbox
from monitor.metrics import NodeMetrics
from monitor.outbox.database import Checkpoint
from monitor.outbox.store import Store, StoreError
from monitor.processes import Deaths
from monitor.publisher import Publisher
from monitor.sampler import NodeSample, Sampler
from monitor.settings import Settings
from plimsoll.broker.announcements import Announcement
from plimsoll.broker.wire import MemoryChange
from plimsoll.events import Gpu
from plimsoll.ids import NodeName, ProcessKey
from plimsoll.nvml.readings import NvmlAwayError, XidSeen
from plimsoll.part.errors import InputError
from plimsoll.part.log import get_logger
from plimsoll.part.times import rfc3339

STORE_RETRY_S: Final = 1.0

SAMPLE_S: Final = 0.1
"""Seconds between samples while a task loads: they date `loaded` to a tenth of the settle time, at 1 % of a core."""

NVML_RETRY_S: Final = 10.0
"""Seconds between attempts to reach a driver that is not there."""

LOADING: Final = LoadingRules()
CONDITIONS: Final = ConditionRules()
NO_GPU: Final = "no GPU"
"""The beginning of the problem in which no driver answers."""

NO_DRIVER: Final = (
    "install NVIDIA's driver on this node, or, in a pod, give it the runtime class `nvidia` and "
    "NVIDIA_VISIBLE_DEVICES=all; the monitor looks again by itself"
)
"""The remedy where no driver answers."""

log = get_logger()


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of the monitor that a round works with.

    Attributes:
        wakened: begins the next round; the other parts set it where they have news.
        sampler: reads the node.
        store: keeps the events.
        publisher: publishes them.
        acknowledger: lets the broker forget announcements that are on disk.
        measurer: sends the GPUs as NVML showed them to the broker, and knows whether the broker is there.
        advertiser: shows the GPUs in the cluster, and knows the node's labels.
        metrics: show the node to Prometheus.
    """

    wakened: asyncio.Event
    sampler: Sampler
    store: Store
    publisher: Publisher
    acknowledger: Acknowledger
    measurer: Measurer
    advertiser: Advertiser
    metrics: NodeMetrics


class Observer:
    """Observes one node. `run` it as a task; feed it with `listen` in another."""

    def __init__(self, settings: Settings, identity: Identity, parts: Parts) -> None:
        self._settings = settings
        self._boot_id = identity.boot_id
        self._parts = parts
        self._inbox = Inbox()
        self._throttle = RoundThrottle()
        self._deaths = Deaths(self._died)
        self._conditions = Conditions()
        self._tasks = Tasks()
        self._gpus: tuple[Gpu, ...] = ()
        self._readings = GpuReadings(settings.idle_period_s, self._slow_s)
        self._pace = Pace(SAMPLE_S, self._slow_s, LOADING)
        self._position: JournalPosition = JOURNAL_START
        self._reports = Reports(NodeName(settings.node), identity, Thresholds(settings.heartbeat_s))
        self._informer = Informer(NodeName(settings.node), settings.heartbeat_s, parts.sampler)
        self._foreign = ForeignNaming(NodeName(settings.node))
        self._problems = Problems()

    @property
    def epoch(self) -> int:
        """The epoch of the reports that are built now."""
        return self._reports.epoch

    async def listen(self, messages: AsyncIterable[Announcement | MemoryChange]) -> None:
        """Queue announcements for as long as they come, and note changes of memory; waits while the queue is full."""
        async for message in messages:
            if isinstance(message, MemoryChange):
                is_news = self._inbox.add_change(message) in self._tasks.lives
            else:
                await self._inbox.put(message)
                is_news = self._inbox.is_full or is_urgent(message, self._tasks, self._inbox.deaths)
            if is_news:
                self._parts.wakened.set()

    async def pass_epoch(self, known: int) -> None:
        """Make our epoch greater than `known`, the greatest epoch of this node in the stream.

        Raises:
            InputError: the new epoch could not be written to disk.
        """
        if known < self._reports.epoch:
            return
        directory = Path(self._settings.state_dir)
        epoch = await asyncio.to_thread(raise_epoch, directory, known + 1)
        log.warning("the epoch begins after the stream's greatest", known=known, epoch=epoch)
        self._reports.begin_epoch(epoch)
        self._parts.wakened.set()

    def foreign_reported(self, report: ForeignReport) -> None:
        """Note a report that another monitor published under this node's name."""
        self._parts.metrics.foreign_report()
        gpus = tuple(gpu.uuid for gpu in self._gpus)
        event = self._foreign.event(report, self._reports.epoch, gpus, time.monotonic())
        if event is not None:
            log.error("another monitor reports under this node's name", **msgspec.structs.asdict(event))
            self._reports.add_foreign(event)
            self._parts.wakened.set()

    def xid_seen(self, seen: XidSeen) -> None:
        """Note an XID error."""
        self._inbox.add_xid(seen)
        self._parts.metrics.xid_seen(seen)
        self._parts.wakened.set()

    async def run(self) -> None:
        """Observe for ever.

        Cancelling between two rounds loses nothing. The events of a cancelled round are published after a restart.
        """
        try:
            await self._restore()
            while True:
                next_s, has_events = await self._round()
                ended_s = time.monotonic()
                least_s = self._throttle.pause_s(ended_s, has_events=has_events)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(next_s - ended_s):
                        await self._parts.wakened.wait()
                await asyncio.sleep(max(0.0, ended_s + least_s - time.monotonic()))
        finally:
            self._deaths.close()

    async def _restore(self) -> None:
        kept = await self._parts.store.kept()
        now_s = time.monotonic()
        self._position = kept.position
        is_former = kept.boot_id != self._boot_id
        self._conditions = conditions.restored(kept.records, kept.short, now_s, is_former=is_former)
        if kept.boot_id == self._boot_id:
            self._tasks = table.restored(kept.lives, kept.left, now_s, kept.dead)
        elif kept.boot_id:
            exits = tuple(lifecycle.finish(life, now_s) for life in kept.lives)
            self._reports.add_former_boot(kept.boot_id, exits)
        self._watch_deaths()

    async def _round(self) -> tuple[float, bool]:
        """Observe once, and store the events; returns when the next round is due, and whether there were events."""
        self._parts.wakened.clear()
        await self._outlive()
        if await self._is_full():
            return self._fail("the outbox is full: observing pauses until NATS takes events")
        xids = tuple(self._inbox.xids)
        observation, sample = await self._observe()
        now_s, time_text = time.monotonic(), rfc3339(datetime.now(UTC))
        findings = observe(self._tasks, self._position, observation, now_s, LOADING)
        gpus = self._gpus_after(findings)
        view = driver_view(sample, xids, now_s, time_text)
        found, changes = conditions.update(self._conditions, view, gpus, CONDITIONS)
        state_waits = self._parts.store.state_waits
        self._reports.broker_away(self._parts.measurer.away_since)
        batch = self._reports.batch(
            findings, gpus, now_s, time_text, state_waits=state_waits, changes=changes
        )
        try:
            has_events = await self._keep(batch, findings, found)
        except StoreError as error:
            return self._fail(str(error))
        self._advance(observation, findings, batch)
        self._inbox.stored(observation, findings, len(view.xids))
        self._advance_conditions(found, changes)
        self._parts.metrics.round_stored(gpus, findings.facts, self._readings)
        self._parts.advertiser.set_gpus(gpus)
        if sample is not None:
            self._parts.measurer.send(gpus, sample.began_ns)
        self._watch_deaths()
        if self._problems.end(has_driver=sample is not None):
            log.info("observing again", gpus=len(self._readings.gpus))
        return self._next_s(now_s, sample), has_events

    def _gpus_after(self, findings: Findings) -> tuple[Gpu, ...]:
        """The GPUs as of the end of the round."""
        return node_state.gpus(
            self._readings.gpus,
            self._readings.meters.idle_pct,
            findings.tasks.lives.values(),
            self._settings.overcommit_ratio,
            self._readings.memory_meters.busy_pct,
        )

    async def _outlive(self) -> None:
        """Begin a new epoch where another monitor of this name had a greater one, and has ended."""
        known = self._foreign.outlived(self.epoch, time.monotonic(), self._settings.heartbeat_s)
        if known is not None:
            try:
                await self.pass_epoch(known)
            except InputError as error:  # the next round tries again
                self._problems.report(str(error))

    async def _is_full(self) -> bool:
        most = self._settings.outbox_bytes
        if self._parts.store.waiting_bytes >= most:
            with contextlib.suppress(StoreError):  # the disk refuses: the outbox stays as full as it is
                await self._parts.store.drop_old()
        return self._parts.store.waiting_bytes >= most

    async def _observe(self) -> tuple[Observation, NodeSample | None]:
        # The sample comes after the announcements, so that NVML lists the announced processes; and before the deaths,
        # so that no process is taken for another one that died meanwhile and had its pid.
        announcements, peaks = self._inbox.announcements(), dict(self._inbox.peaks)
        is_due = self._parts.sampler.has_begun or self._wait_s(time.monotonic()) <= 0
        sample = await self._sample() if is_due else None
        listing = sample.listing if sample else None
        return Observation(announcements, listing, tuple(self._inbox.deaths), peaks), sample

    async def _sample(self) -> NodeSample | None:
        """Sample the GPUs; None if no driver answers, or not yet."""
        is_due = not self._parts.sampler.is_busy and self._readings.is_utilisation_due(time.monotonic())
        try:
            since_us, watched = self._readings.meters.last_us if is_due else None, self._deaths.watched
            if not self._parts.sampler.has_begun:
                self._pace.begins(time.monotonic())
                self._inbox.has_changes = False
            sample = await self._parts.sampler.sample(
                since_us, watched, reads_health=is_due or bool(self._inbox.xids)
            )
            if sample is not None:
                labels = self._parts.advertiser.labels
                info = await self._informer.due(sample.readings, labels, time.monotonic())
                if info is not None:
                    self._reports.add_info(info)
        except NvmlAwayError as error:
            self._readings.lose()
            self._parts.metrics.driver_answered(False)  # noqa: FBT003 - the one thing that there is to say
            self._problems.report_no_driver(error)
            return None
        if is_due:
            self._readings.utilisation_read(time.monotonic())
        if sample is not None:
            self._parts.metrics.driver_answered(True)  # noqa: FBT003 - likewise
            self._readings.take(sample)
        return sample

    def _advance_conditions(self, found: Conditions, changes: ConditionChanges) -> None:
        self._conditions = found
        self._parts.metrics.conditions_stored(found, changes)
        self._parts.measurer.set_unhealthy(found.unhealthy)
        for change in changes.health:
            one = change.health
            text = one.reason or "nothing is wrong with it any more"
            log.warning("a GPU's health changed", gpu=one.gpu, health=one.health.value, reason=text)
        for pressed in changes.pressure:
            log.info("a GPU's free memory", gpu=pressed.gpu.uuid, short=pressed.short)

    async def _keep(self, batch: Batch, findings: Findings, found: Conditions) -> bool:
        """Store a round if it changes anything that a restart must know; returns whether it has events of facts."""
        is_same = findings.position == self._position and findings.tasks.left == self._tasks.left
        if not batch.entries and is_same:
            return False
        await self._parts.store.keep(
            batch.entries,
            findings.tasks,
            Checkpoint(self._boot_id, findings.position, found),
            replaces_state=batch.replaces_state,
        )
        if batch.entries:
            self._parts.publisher.wake()
        return any(not entry.is_state for entry in batch.entries)

    def _advance(self, observation: Observation, findings: Findings, batch: Batch) -> None:
        """Move on to the state after a stored round."""
        for note in findings.notes:
            log.warning(
                "a hooked process reports", what=note.what, text=note.text, pod=note.pod, pid=note.pid
            )
        for what in batch.limit_events:
            self._parts.metrics.limit_event(what)
        self._reports.stored(batch, findings.tasks.lives)
        if batch.info is not None:
            self._informer.stored(batch.info, batch.now_s)
        self._tasks, self._position = findings.tasks, findings.position
        self._gpus = batch.gpus
        if batch.has_more:
            self._parts.wakened.set()
        if findings.taken:
            self._parts.acknowledger.acknowledge(observation.announcements[findings.taken - 1].seq)

    def _watch_deaths(self) -> None:
        self._deaths.watch({key.process for key in (*self._tasks.lives, *self._tasks.left)})

    def _died(self, process: ProcessKey) -> None:
        self._inbox.deaths.add(process)
        self._parts.wakened.set()

    @property
    def _slow_s(self) -> float:
        """The slow pace. The idle average is read at least once a period, which the demo and tests make short."""
        return min(self._settings.reconcile_s, self._settings.idle_period_s)

    def _next_s(self, now_s: float, sample: NodeSample | None) -> float:
        heartbeat_s = max(self._reports.last_s + self._settings.heartbeat_s, now_s + SAMPLE_S)
        if sample is not None:
            self._pace.sampled(self._tasks, now_s)
            return min(self._pace.next_s(self._tasks, now_s), heartbeat_s)
        if self._parts.sampler.is_busy:
            return heartbeat_s  # the answer wakes the loop
        return now_s + (NVML_RETRY_S if self._readings.is_away else self._wait_s(now_s))

    def _wait_s(self, now_s: float) -> float:
        """How long the next sample must wait, in seconds."""
        return self._pace.wait_s(now_s, at_once=self._inbox.has_changes and self._throttle.is_calm(now_s))

    def _fail(self, what: str) -> tuple[float, bool]:
        """Log a problem; returns when the next attempt is due, and that there were no events."""
        self._problems.report(what)
        return time.monotonic() + STORE_RETRY_S, False


class Problems:
    """The problems that last. What always holds: a problem is one line in the log for as long as it lasts."""

    def __init__(self) -> None:
        self._logged: set[str] = set()

    def report(self, problem: str) -> None:
        """Log a problem, unless it lasts since it was last logged."""
        if problem not in self._logged:
            self._logged.add(problem)
            log.error(problem)

    def report_no_driver(self, error: NvmlAwayError) -> None:
        """Log that no driver answers."""
        self.report(f"{NO_GPU}: {error}; {error.remedy or NO_DRIVER}")

    def end(self, *, has_driver: bool) -> bool:
        """End all problems but that of a driver which is still away; returns whether the last one ended now."""
        was_logged = bool(self._logged)
        self._logged = {problem for problem in self._logged if not has_driver and problem.startswith(NO_GPU)}
        return was_logged and not self._logged
