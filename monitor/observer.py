"""The monitor's loop: waits for something to happen, looks, and stores what is to be told.

What wakes it is an event: an announcement of a hooked process, a death. A timer does so only while a task loads, and
slowly otherwise, for processes without the hook and for the idle average. What always holds:

* A turn is stored whole before anything follows from it: the table moves on, the broker may forget, NATS is told.
  A turn that could not be stored is as if it had not been, and what was heard is taken in again.
* One turn at a time. Everything here belongs to one task of the loop.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterable, Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import structlog

from monitor.core import entries as building
from monitor.core import lifecycle, node_state
from monitor.core import tasks as table
from monitor.core.entries import Entry, Moment
from monitor.core.idle import IdleMeter
from monitor.core.lifecycle import Fact, TaskKey
from monitor.core.observation import START, Heard, Mark, Outcome, turn
from monitor.core.tasks import Tasks
from monitor.epoch import raise_epoch
from monitor.processes import Deaths
from monitor.sampler import Sample, Sampler
from monitor.settings import Settings
from monitor.store import Store, StoreError
from plimsoll.broker.wire import Announcement
from plimsoll.events import Gpu
from plimsoll.ids import GpuUuid, NodeName, ProcessKey
from plimsoll.nvml.readings import NvmlAwayError
from plimsoll.part.times import rfc3339

HEARD_MAX: Final = 1024
"""Announcements held here at once; more wait in the socket, and then in the broker's journal."""

STORE_RETRY_S: Final = 1.0

log = structlog.get_logger("monitor.observer")


@dataclass(frozen=True, slots=True)
class Listeners:
    """What follows from a stored turn.

    Attributes:
        published: events wait in the outbox.
        acknowledged: announcements up to this number are safe.
        looked: the GPUs as of the end of the turn, and its facts.
        measured: the same GPUs, and CLOCK_MONOTONIC in nanoseconds just before NVML was asked; not where it was away.
        told: what was told of limits: `denied`, `violated` and so on.
    """

    published: Callable[[], None]
    acknowledged: Callable[[int], None]
    looked: Callable[[tuple[Gpu, ...], tuple[Fact, ...]], None]
    measured: Callable[[tuple[Gpu, ...], int], None]
    told: Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Identity:
    """Who speaks: this run of the monitor, on this boot of this machine."""

    boot_id: str
    epoch: int


class Observer:
    """Observes one node. `run` it as a task; feed it with `listen` in another."""

    def __init__(
        self, settings: Settings, identity: Identity, store: Store, sampler: Sampler, listeners: Listeners
    ) -> None:
        self._settings = settings
        self._identity = identity
        self._store = store
        self._sampler = sampler
        self._listeners = listeners
        self._heard: asyncio.Queue[Announcement] = asyncio.Queue(HEARD_MAX)
        self._pending: list[Announcement] = []  # taken from the queue, not stored yet
        self._dead: set[ProcessKey] = set()
        self._deaths = Deaths(self._died)
        self._wakened = asyncio.Event()
        self._tasks = Tasks()
        self._mark: Mark = START
        self._orphans: tuple[str, tuple[Fact, ...]] = ("", ())  # a former boot's id, and what ended with it
        self._meters: dict[GpuUuid, IdleMeter] = {}
        self._seq = 0
        self._told: tuple[Gpu, ...] | None = None
        self._told_s = 0.0
        self._utilisation_due_s = 0.0
        self._trouble = ""
        self._has_broker, self._away_since = True, ""
        self._told_unwatched: frozenset[TaskKey] = frozenset()

    def broker_presence(self, is_there: bool) -> None:  # noqa: FBT001 - it is the whole message
        """Whether the broker takes measurements; called after each attempt."""
        if is_there == self._has_broker:
            return
        self._has_broker, self._away_since = is_there, rfc3339(datetime.now(UTC))
        self._told_unwatched = frozenset()
        if is_there:
            log.info("the broker is there again")
        else:
            log.warning(
                "the broker is away",
                effect="the last memory limits hold, no shares are kept",
            )
            self._wakened.set()

    async def listen(self, announcements: AsyncIterable[Announcement]) -> None:
        """Take announcements in, for as long as they come; waits while too many are held."""
        async for announcement in announcements:
            await self._heard.put(announcement)
            self._wakened.set()

    async def know_epoch(self, known: int) -> None:
        """The stream holds an event of this node from epoch `known`; ours must be greater.

        Raises:
            InputError: the new epoch could not be written down.
        """
        if known < self._identity.epoch:
            return
        directory = Path(self._settings.state_dir)
        epoch = await asyncio.to_thread(raise_epoch, directory, known + 1)
        log.warning("the epoch was lost, and begins after the stream's last", known=known, epoch=epoch)
        self._identity = replace(self._identity, epoch=epoch)
        self._seq, self._told = 0, None
        self._wakened.set()

    async def run(self) -> None:
        """Observe for ever. Cancelling between two turns loses nothing; within one, it is told after a restart."""
        try:
            await self._restore()
            while True:
                pause_s = await self._turn()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause_s):
                        await self._wakened.wait()
        finally:
            self._deaths.close()

    async def _restore(self) -> None:
        kept = await self._store.kept()
        now_s = time.monotonic()
        self._mark = kept.mark
        if kept.boot_id == self._identity.boot_id:
            self._tasks = table.restored(kept.lives, kept.left, now_s)
        elif kept.boot_id:
            ended = tuple(lifecycle.finish(life, now_s) for life in kept.lives)
            self._orphans = (kept.boot_id, ended)
        await self._watch()

    async def _turn(self) -> float:
        """Look once, store what follows, and return the time until the next look in seconds."""
        self._wakened.clear()
        if self._store.waiting_count >= self._settings.outbox_entries:
            return self._troubled("the outbox is full: looking pauses until NATS takes events")
        heard, sample = await self._hear()
        now_s = time.monotonic()
        outcome = turn(self._tasks, self._mark, heard, now_s, self._settings.rules)
        outcome = replace(outcome, unwatched=self._unwatched(outcome.tasks))
        gpus = node_state.gpus(
            sample.readings if sample else (),
            self._idle_pct(),
            outcome.tasks.lives.values(),
            self._settings.overcommit_ratio,
        )
        try:
            await self._keep(outcome, gpus, now_s)
        except StoreError as error:
            return self._troubled(str(error))
        self._taken(heard, outcome)
        self._listeners.looked(gpus, outcome.facts)
        if sample is not None:
            self._listeners.measured(gpus, sample.began_ns)
        await self._watch()
        self._at_ease(sample)
        return self._pause_s(now_s, sample)

    async def _hear(self) -> tuple[Heard, Sample | None]:
        while not self._heard.empty() and len(self._pending) < HEARD_MAX:
            self._pending.append(self._heard.get_nowait())
        announcements, dead = tuple(self._pending), tuple(self._dead)
        # The look comes after: what was announced is then listed, and what died is not.
        sample = await self._look()
        return Heard(announcements, sample.look if sample else None, dead), sample

    async def _look(self) -> Sample | None:
        due = time.monotonic() >= self._utilisation_due_s
        since_us = {uuid: meter.last_us for uuid, meter in self._meters.items()} if due else None
        try:
            sample = await self._sampler.sample(since_us)
        except NvmlAwayError as error:
            self._troubled(f"no GPU: {error}")
            return None
        if due:
            self._utilisation_due_s = time.monotonic() + self._slow_s
        for uuid, samples in sample.utilisation.items():
            meter = self._meters.setdefault(uuid, IdleMeter(self._settings.idle_period_s))
            for at_us, busy_pct in samples:
                meter.add(at_us, busy_pct)
        return sample

    async def _keep(self, outcome: Outcome, gpus: tuple[Gpu, ...], now_s: float) -> None:
        """Store a turn if it tells anything, and only then let the numbers move on."""
        entries, seq = self._entries(outcome, gpus, now_s)
        if not entries and outcome.mark == self._mark and outcome.tasks.left == self._tasks.left:
            return
        await self._store.keep(entries, outcome.tasks, self._identity.boot_id, outcome.mark)
        self._orphans = ("", ())
        if seq > self._seq:
            self._seq, self._told, self._told_s = seq, gpus, now_s
        if entries:
            self._listeners.published()

    def _entries(
        self, outcome: Outcome, gpus: tuple[Gpu, ...], now_s: float
    ) -> tuple[tuple[Entry, ...], int]:
        moment = Moment(
            node=NodeName(self._settings.node),
            boot_id=self._identity.boot_id,
            epoch=self._identity.epoch,
            seq=self._seq,
            time=rfc3339(datetime.now(UTC)),
            gpus=gpus,
        )
        boot_id, ended = self._orphans
        seq = self._seq + 1
        entries = building.task_entries(replace(moment, boot_id=boot_id), ended, seq)
        entries += building.task_entries(moment, outcome.facts, seq + len(ended))
        silent_s = now_s - self._told_s
        if not entries and node_state.worth_telling(self._told, gpus, silent_s, self._settings.thresholds):
            entries = (building.state_entry(moment, seq),)
        numbered = len(entries)
        entries += tuple(building.limit_entry(moment, said) for said in outcome.limits)
        unwatched = (outcome.tasks.lives[key] for key in outcome.unwatched)
        entries += tuple(building.unwatched_entry(moment, life, self._away_since) for life in unwatched)
        return entries, self._seq + numbered

    def _unwatched(self, tasks: Tasks) -> tuple[TaskKey, ...]:
        """Hooked tasks of which nobody was told yet that their broker is away."""
        return () if self._has_broker else tuple(sorted(tasks.hooked - self._told_unwatched))

    def _taken(self, heard: Heard, outcome: Outcome) -> None:
        for note in outcome.notes:
            log.warning(
                "a hooked process reports", what=note.what, text=note.text, pod=note.pod, pid=note.pid
            )
        for what in (*(said.what for said in outcome.limits), *("unenforced" for _ in outcome.unwatched)):
            self._listeners.told(what)
        if not self._has_broker:  # it may have come back while this was stored
            self._told_unwatched = self._told_unwatched.union(outcome.unwatched) & outcome.tasks.lives.keys()
        self._tasks, self._mark = outcome.tasks, outcome.mark
        self._dead.difference_update(heard.dead)
        if heard.announcements:
            del self._pending[: len(heard.announcements)]
            self._listeners.acknowledged(heard.announcements[-1].seq)

    async def _watch(self) -> None:
        for process in {key.process for key in (*self._tasks.lives, *self._tasks.left)}:
            await self._deaths.watch(process)

    def _died(self, process: ProcessKey) -> None:
        self._dead.add(process)
        self._wakened.set()

    def _idle_pct(self) -> dict[GpuUuid, float]:
        return {uuid: meter.idle_pct for uuid, meter in self._meters.items()}

    @property
    def _slow_s(self) -> float:
        """The slow pace; the idle average is read at least once a period, which demo and tests make short."""
        return min(self._settings.reconcile_s, self._settings.idle_period_s)

    def _pause_s(self, now_s: float, sample: Sample | None) -> float:
        if sample is None:
            return self._settings.nvml_retry_s
        fast_s = self._settings.sample_ms / 1000
        slow_s = min(self._slow_s, max(self._told_s + self._settings.heartbeat_s - now_s, fast_s))
        return table.pace_s(self._tasks, now_s, fast_s, slow_s)

    def _troubled(self, what: str) -> float:
        """Tell a trouble once, and give the pause after it."""
        if what != self._trouble:
            self._trouble = what
            log.error(what)
        return STORE_RETRY_S

    def _at_ease(self, sample: Sample | None) -> None:
        if self._trouble and sample is not None:
            self._trouble = ""
            log.info("observing again", gpus=len(sample.readings))
