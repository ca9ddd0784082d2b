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
from collections.abc import AsyncIterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

from monitor.announcement_queue import AnnouncementQueue
from monitor.core import conditions, lifecycle, node_state
from monitor.core import tasks as table
from monitor.core.conditions import ConditionChanges, ConditionRules, Conditions
from monitor.core.lifecycle import LoadingRules, TaskKey
from monitor.core.node_state import Thresholds
from monitor.core.observation import (
    JOURNAL_START,
    Findings,
    JournalPosition,
    Observation,
    is_urgent,
    observe,
)
from monitor.core.pace import Pace
from monitor.core.reports import Batch, Identity, Reports
from monitor.core.tasks import Tasks
from monitor.core.throttle import RoundThrottle
from monitor.epoch import raise_epoch
from monitor.foreign import ForeignNaming, ForeignReport
from monitor.gpu_readings import GpuReadings, driver_view
from monitor.info import Informer
from monitor.listeners import Listeners
from monitor.outbox.database import Checkpoint
from monitor.outbox.store import Store, StoreError
from monitor.processes import Deaths
from monitor.sampler import NodeSample, Sampler
from monitor.settings import Settings
from monitor.troubles import Troubles
from plimsoll.broker.announcements import Announcement
from plimsoll.broker.wire import MemoryChange
from plimsoll.events import Gpu
from plimsoll.gpu_health import DriverView
from plimsoll.ids import GpuUuid, NodeName, ProcessKey
from plimsoll.nvml.readings import NvmlAwayError, XidSeen
from plimsoll.part.errors import InputError
from plimsoll.part.log import get_logger
from plimsoll.part.times import rfc3339

XIDS_MAX: Final = 1024  # XID errors that wait for a round

STORE_RETRY_S: Final = 1.0

SAMPLE_S: Final = 0.1
"""Seconds between samples while a task loads: they date `loaded` to a tenth of the settle time, at 1 % of a core."""

NVML_RETRY_S: Final = 10.0
"""Seconds between attempts to reach a driver that is not there."""

LOADING: Final = LoadingRules()
CONDITIONS: Final = ConditionRules()

log = get_logger()


class Observer:
    """Observes one node. `run` it as a task; feed it with `listen` in another."""

    def __init__(
        self, settings: Settings, identity: Identity, store: Store, sampler: Sampler, listeners: Listeners
    ) -> None:
        self._settings = settings
        self._boot_id = identity.boot_id
        self._store = store
        self._sampler = sampler
        self._listeners = listeners
        self._announcements = AnnouncementQueue()
        self._peaks: dict[TaskKey, int] = {}  # as counted by hooked programs, not taken in yet
        self._has_changes = False  # counts changed since the last sample began
        self._throttle = RoundThrottle()
        self._dead: set[ProcessKey] = set()
        self._deaths = Deaths(self._died)
        self._xids: list[XidSeen] = []  # not stored yet
        self._conditions = Conditions()
        self._wakened = asyncio.Event()
        self._tasks = Tasks()
        self._gpus: tuple[Gpu, ...] = ()
        self._readings = GpuReadings(settings.idle_period_s, self._slow_s)
        self._pace = Pace(SAMPLE_S, self._slow_s, LOADING)
        self._position: JournalPosition = JOURNAL_START
        self._reports = Reports(NodeName(settings.node), identity, Thresholds(settings.heartbeat_s))
        self._informer = Informer(NodeName(settings.node), settings.heartbeat_s, sampler, self._wakened.set)
        self._foreign = ForeignNaming(NodeName(settings.node))
        self._troubles = Troubles()
        self._has_broker = True
        self._has_events = False  # the round that is under way

    @property
    def epoch(self) -> int:
        """The epoch of the reports that are built now."""
        return self._reports.epoch

    @property
    def has_broker(self) -> bool:
        """Whether the broker took the last measurement."""
        return self._has_broker

    @property
    def busy_s(self) -> Mapping[GpuUuid, float]:
        """Per GPU, the seconds of work since this start of the monitor."""
        return self._readings.meters.busy_s

    @property
    def ecc_errors(self) -> Mapping[GpuUuid, int]:
        """Per GPU, its uncorrected ECC errors since it was last reset, as last read."""
        return self._readings.ecc_errors

    def set_broker_presence(self, is_there: bool) -> None:  # noqa: FBT001 - it is the whole message
        """Note whether the broker takes measurements; called after each attempt."""
        if is_there == self._has_broker:
            return
        self._has_broker = is_there
        if is_there:
            self._reports.broker_returned()
            log.info("the broker is there again")
        else:
            self._reports.broker_left(rfc3339(datetime.now(UTC)))
            log.warning("the broker is away", effect="the last memory limits hold, no shares are kept")
        self._wakened.set()  # either is worth a report

    async def listen(self, messages: AsyncIterable[Announcement | MemoryChange]) -> None:
        """Queue announcements for as long as they come, and note changes of memory; waits while the queue is full."""
        async for message in messages:
            if isinstance(message, MemoryChange):
                self._note_change(message)
            else:
                await self._announcements.put(message)
                if self._announcements.is_full or is_urgent(message, self._tasks, self._dead):
                    self._wakened.set()

    def wake(self) -> None:
        """Begin the next round now."""
        self._wakened.set()

    def _note_change(self, change: MemoryChange) -> None:
        """Keep the counted peak, and sample the task, if it is known by now."""
        key = TaskKey(change.process, change.gpu)
        self._peaks[key] = max(change.peak_bytes, self._peaks.get(key, 0))
        self._has_changes = True
        if key in self._tasks.lives:
            self._wakened.set()

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
        self._wakened.set()

    def set_labels(self, labels: Mapping[str, str]) -> None:
        """Note the node's labels in the cluster."""
        self._informer.set_labels(labels)

    def foreign_reported(self, report: ForeignReport) -> None:
        """Note a report that another monitor published under this node's name."""
        self._listeners.foreign_report()
        gpus = tuple(gpu.uuid for gpu in self._gpus)
        event = self._foreign.event(report, self._reports.epoch, gpus, time.monotonic())
        if event is not None:
            log.error("another monitor reports under this node's name", **msgspec.structs.asdict(event))
            self._reports.add_foreign(event)
            self._wakened.set()

    def xid_seen(self, seen: XidSeen) -> None:
        """Note an XID error."""
        if len(self._xids) < XIDS_MAX:  # a storm of one error says no more than the first
            self._xids.append(seen)
        self._listeners.xid_seen(seen)
        self._wakened.set()

    async def run(self) -> None:
        """Observe for ever.

        Cancelling between two rounds loses nothing. The events of a cancelled round are published after a restart.
        """
        try:
            await self._restore()
            while True:
                self._has_events = False
                next_s = await self._round()
                ended_s = time.monotonic()
                least_s = self._throttle.pause_s(ended_s, has_events=self._has_events)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(next_s - ended_s):
                        await self._wakened.wait()
                await asyncio.sleep(max(0.0, ended_s + least_s - time.monotonic()))
        finally:
            self._deaths.close()

    async def _restore(self) -> None:
        kept = await self._store.kept()
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

    async def _round(self) -> float:
        """Observe once, store the events, and return when the next round is due."""
        self._wakened.clear()
        await self._outlive()
        if await self._is_full():
            return self._troubled("the outbox is full: observing pauses until NATS takes events")
        xids = tuple(self._xids)
        observation, sample = await self._observe()
        now_s, time_text = time.monotonic(), rfc3339(datetime.now(UTC))
        findings = observe(self._tasks, self._position, observation, now_s, LOADING)
        gpus = self._gpus_after(findings)
        view = driver_view(sample, xids, now_s, time_text)
        found, changes = conditions.update(self._conditions, view, gpus, CONDITIONS)
        state_waits = self._store.state_waits
        batch = self._reports.batch(
            findings, gpus, now_s, time_text, state_waits=state_waits, changes=changes
        )
        try:
            await self._keep(batch, findings, found)
        except StoreError as error:
            return self._troubled(str(error))
        self._advance(observation, findings, batch)
        self._advance_conditions(found, changes, view)
        self._listeners.round_stored(gpus, findings.facts)
        if sample is not None:
            self._listeners.gpus_measured(gpus, sample.began_ns)
        self._watch_deaths()
        if self._troubles.end(has_driver=sample is not None):
            log.info("observing again", gpus=len(self._readings.gpus))
        return self._next_s(now_s, sample)

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
                self._troubles.report(str(error))

    async def _is_full(self) -> bool:
        most = self._settings.outbox_bytes
        if self._store.waiting_bytes >= most:
            with contextlib.suppress(StoreError):  # the disk refuses: the outbox stays as full as it is
                await self._store.drop_old()
        return self._store.waiting_bytes >= most

    async def _observe(self) -> tuple[Observation, NodeSample | None]:
        # The sample comes after the announcements, so that NVML lists the announced processes; and before the deaths,
        # so that no process is taken for another one that died meanwhile and had its pid.
        announcements, peaks = self._announcements.next(), dict(self._peaks)
        is_due = self._sampler.has_begun or self._wait_s(time.monotonic()) <= 0
        sample = await self._sample() if is_due else None
        listing = sample.listing if sample else None
        return Observation(announcements, listing, tuple(self._dead), peaks), sample

    async def _sample(self) -> NodeSample | None:
        """Sample the GPUs; None if no driver answers, or not yet."""
        is_due = not self._sampler.is_busy and self._readings.is_utilisation_due(time.monotonic())
        try:
            since_us, watched = self._readings.meters.last_us if is_due else None, self._deaths.watched
            if not self._sampler.has_begun:
                self._pace.begins(time.monotonic())
                self._has_changes = False
            sample = await self._sampler.sample(since_us, watched, reads_health=is_due or bool(self._xids))
            if sample is not None:
                info = await self._informer.due(sample.readings, time.monotonic())
                if info is not None:
                    self._reports.add_info(info)
        except NvmlAwayError as error:
            self._readings.lose()
            self._listeners.driver_answered(False)  # noqa: FBT003 - the one thing that there is to say
            self._troubles.report_no_driver(error)
            return None
        if is_due:
            self._readings.utilisation_read(time.monotonic())
        if sample is not None:
            self._listeners.driver_answered(True)  # noqa: FBT003 - likewise
            self._readings.take(sample)
        return sample

    def _advance_conditions(self, found: Conditions, changes: ConditionChanges, view: DriverView) -> None:
        self._conditions = found
        del self._xids[: len(view.xids)]
        self._listeners.conditions_stored(found, changes)
        for change in changes.health:
            one = change.health
            text = one.reason or "nothing is wrong with it any more"
            log.warning("a GPU's health changed", gpu=one.gpu, health=one.health.value, reason=text)
        for pressed in changes.pressure:
            log.info("a GPU's free memory", gpu=pressed.gpu.uuid, short=pressed.short)

    async def _keep(self, batch: Batch, findings: Findings, found: Conditions) -> None:
        """Store a round if it changes anything that a restart must know."""
        is_same = findings.position == self._position and findings.tasks.left == self._tasks.left
        if not batch.entries and is_same:
            return
        self._has_events = any(not entry.is_state for entry in batch.entries)
        await self._store.keep(
            batch.entries,
            findings.tasks,
            Checkpoint(self._boot_id, findings.position, found),
            replaces_state=batch.replaces_state,
        )
        if batch.entries:
            self._listeners.events_stored()

    def _advance(self, observation: Observation, findings: Findings, batch: Batch) -> None:
        """Move on to the state after a stored round."""
        for note in findings.notes:
            log.warning(
                "a hooked process reports", what=note.what, text=note.text, pod=note.pod, pid=note.pid
            )
        for what in batch.limit_events:
            self._listeners.limit_event(what)
        self._reports.stored(batch, findings.tasks.lives)
        if batch.info is not None:
            self._informer.stored(batch.info, batch.now_s)
        self._tasks, self._position = findings.tasks, findings.position
        self._gpus = batch.gpus
        self._dead.difference_update(findings.ended)
        # A change may come before the announcement of its task.
        self._peaks = {
            key: peak
            for key, peak in self._peaks.items()
            if peak != observation.peaks.get(key)
            or (key not in self._tasks.lives and key.process not in self._tasks.dead)
        }
        self._announcements.stored(findings.taken)
        if batch.has_more:
            self._wakened.set()
        if findings.taken:
            self._listeners.announcements_stored(observation.announcements[findings.taken - 1].seq)

    def _watch_deaths(self) -> None:
        self._deaths.watch({key.process for key in (*self._tasks.lives, *self._tasks.left)})

    def _died(self, process: ProcessKey) -> None:
        self._dead.add(process)
        self._wakened.set()

    @property
    def _slow_s(self) -> float:
        """The slow pace. The idle average is read at least once a period, which the demo and tests make short."""
        return min(self._settings.reconcile_s, self._settings.idle_period_s)

    def _next_s(self, now_s: float, sample: NodeSample | None) -> float:
        heartbeat_s = max(self._reports.last_s + self._settings.heartbeat_s, now_s + SAMPLE_S)
        if sample is not None:
            self._pace.sampled(self._tasks, now_s)
            return min(self._pace.next_s(self._tasks, now_s), heartbeat_s)
        if self._sampler.is_busy:
            return heartbeat_s  # the answer wakes the loop
        return now_s + (NVML_RETRY_S if self._readings.is_away else self._wait_s(now_s))

    def _wait_s(self, now_s: float) -> float:
        """How long the next sample must wait, in seconds."""
        return self._pace.wait_s(now_s, at_once=self._has_changes and self._throttle.is_calm(now_s))

    def _troubled(self, what: str) -> float:
        """Log a trouble; returns when the next attempt is due."""
        self._troubles.report(what)
        return time.monotonic() + STORE_RETRY_S
