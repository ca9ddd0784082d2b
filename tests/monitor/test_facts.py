"""Each fact has one id and one content, whatever comes late, again, or not at all.

The machine below plays the node: processes with and without the hook, a broker that reads each process's messages
when it pleases, NVML's lists, deaths, a disk that fails, a publisher whose acknowledgements are lost, and a monitor
that is killed. The monitor's core and its outbox are the real ones.
"""

import asyncio
from collections import defaultdict
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from monitor.core import entries
from monitor.core import tasks as table
from monitor.core.lifecycle import LoadingRules, TaskKey
from monitor.core.node_state import Thresholds
from monitor.core.node_state import gpus as gpus_of
from monitor.core.observation import JOURNAL_START, Observation, observe
from monitor.core.reports import Identity, Reports
from monitor.core.tasks import ListedProcess, Listing, Tasks
from monitor.outbox import database
from monitor.outbox.database import Checkpoint
from monitor.outbox.store import Store
from plimsoll.broker.announcements import Announcement
from plimsoll.bus.stream import MAX_AGE_S
from plimsoll.envelope import decode_event, decode_report
from plimsoll.events import Phase
from plimsoll.ids import GpuUuid, NodeName, ProcessKey
from plimsoll.nvml.readings import GpuReading
from plimsoll.part.times import rfc3339
from tests.announcements import announcement
from tests.slow import examples

RULES = LoadingRules(settle_s=1.0, tolerance_bytes=8, reload_bytes=64)
THRESHOLDS = Thresholds(idle_pct=10, memory_bytes=10, heartbeat_s=3)
GPUS = (GpuUuid("GPU-a"), GpuUuid("GPU-b"))
NODE = NodeName("node-1")


@dataclass
class Process:
    """A process of the node.

    Attributes:
        used_bytes: by GPU on which it has a context.
        sent: messages of its library that the broker has not read: `what` and GPU.
    """

    key: ProcessKey
    is_hooked: bool
    is_alive: bool = True
    used_bytes: dict[GpuUuid, int] = field(default_factory=dict)
    met: set[GpuUuid] = field(default_factory=set)
    sent: list[tuple[str, GpuUuid | None]] = field(default_factory=list)


class Node(RuleBasedStateMachine):
    """A node, its monitor, and a subscriber without any memory of the server's."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = pytest.MonkeyPatch()
        self.patches.setattr(entries, "TASKS_AT_MOST", 3)  # two events at once have one state
        self.loop = asyncio.new_event_loop()
        self.thread = ThreadPoolExecutor(max_workers=1)
        self.book = self.thread.submit(database._connect, Path(":memory:"), MAX_AGE_S).result()
        self.store = Store(self.book, self.thread)
        self.processes: list[Process] = []
        self.journal: list[Announcement] = []
        self.published: list[tuple[str, bytes]] = []
        self.now_s, self.epoch = 0.0, 0
        self.restart()

    def teardown(self) -> None:
        """Everything ends, arrives and is published; then the subscriber counts."""
        try:
            self.end()
            self.judge()
        finally:
            self.patches.undo()
            self.loop.run_until_complete(self.store.close())
            self.loop.close()

    def end(self) -> None:
        """Kill, deliver and publish everything; the monitor sees the deaths first, and the broker is late."""
        for process in self.processes:
            if process.is_alive:
                self.kill(process)
        self.look(0, looks=True)
        self.restart()
        for process in self.processes:
            self.read(process, len(process.sent))
        self.deliver(len(self.journal), 0)
        for _ in range(3):
            self.look(0, looks=True)
        while self.store.waiting_count:
            self.publish(100, acknowledged=100)

    # The node.

    @rule(is_hooked=st.booleans())
    def spawn(self, is_hooked: bool) -> None:  # noqa: FBT001 - a drawn value
        """A process begins; pids are used again."""
        number = len(self.processes)
        key = ProcessKey(10 + number % 3, 100 + number)
        if not any(each.is_alive and each.key.pid == key.pid for each in self.processes):
            self.processes.append(Process(key, is_hooked, sent=[("hello", None)] if is_hooked else []))

    @precondition(lambda self: self.processes)
    @rule(data=st.data(), gpu=st.sampled_from(GPUS), used_bytes=st.integers(0, 200))
    def use(self, data: st.DataObject, gpu: GpuUuid, used_bytes: int) -> None:
        """A living process takes or changes memory; its first context on a GPU is announced."""
        process = data.draw(st.sampled_from(self.processes))
        if process.is_alive:
            if process.is_hooked and gpu not in process.met:
                process.sent.append(("context", gpu))
            process.met.add(gpu)
            process.used_bytes[gpu] = used_bytes

    @precondition(lambda self: self.processes)
    @rule(data=st.data(), gpu=st.sampled_from(GPUS))
    def leave(self, data: st.DataObject, gpu: GpuUuid) -> None:
        """A process destroys its context."""
        data.draw(st.sampled_from(self.processes)).used_bytes.pop(gpu, None)

    @precondition(lambda self: self.processes)
    @rule(data=st.data())
    def die(self, data: st.DataObject) -> None:
        """A process dies; its last messages may still be on their way to the broker."""
        process = data.draw(st.sampled_from(self.processes))
        if process.is_alive:
            self.kill(process)

    def kill(self, process: Process) -> None:
        """End a process."""
        process.is_alive, process.used_bytes = False, {}
        if process.is_hooked:
            process.sent.append(("exited", None))

    @precondition(lambda self: self.processes)
    @rule(data=st.data(), count=st.integers(1, 3))
    def broker_reads(self, data: st.DataObject, count: int) -> None:
        """The broker reads some messages of one process, however late."""
        self.read(data.draw(st.sampled_from(self.processes)), count)

    def read(self, process: Process, count: int) -> None:
        """Announce the oldest messages of a process."""
        for what, gpu in process.sent[:count]:
            seq = len(self.journal) + 1
            time = f"2026-01-01T00:00:00.{seq:06d}Z"
            given = {"gpu": gpu} if gpu else {}
            self.journal.append(
                announcement(
                    what,
                    seq=seq,
                    pid=process.key.pid,
                    start_ticks=process.key.start_ticks,
                    time=time,
                    **given,
                )
            )
        del process.sent[:count]

    # The monitor.

    @rule()
    def restart(self) -> None:
        """The monitor is killed, and starts."""
        self.epoch += 1
        self.store = Store(self.book, self.thread)
        kept = database.kept(self.book)
        self.tasks, self.position = Tasks(), kept.position if kept.boot_id else JOURNAL_START
        if kept.boot_id:
            self.tasks = table.restored(kept.lives, kept.left, self.now_s, kept.dead)
        self.reports = Reports(NODE, Identity("boot", self.epoch), THRESHOLDS)
        self.delivered = self.position.seq
        self.watched = {key.process for key in (*self.tasks.lives, *self.tasks.left)}
        self.queue: list[Announcement] = []

    @rule(count=st.integers(1, 4), again=st.integers(0, 3))
    def deliver(self, count: int, again: int) -> None:
        """Announcements arrive at the monitor, some of them once more."""
        start = max(self.delivered - again, 0)
        self.queue += self.journal[start : self.delivered + count]
        self.delivered = min(self.delivered + count, len(self.journal))

    @rule(
        wait_s=st.sampled_from([0.1, 2.0, 4.0]),
        looks=st.booleans(),
        fails=st.booleans(),
        sends=st.booleans(),
        raises=st.booleans(),
        most=st.sampled_from([1, 2, 100]),
    )
    def look(
        self,
        wait_s: float,
        *,
        looks: bool,
        fails: bool = False,
        sends: bool = False,
        raises: bool = False,
        most: int = 100,
    ) -> None:
        """A round, with a process list or without, which takes in this many events at most.

        Its storing may fail, or meet the publisher's reading, or a new epoch.
        """
        self.now_s += wait_s
        deaths = tuple(each.key for each in self.processes if not each.is_alive and each.key in self.watched)
        listed = tuple(
            ListedProcess(TaskKey(each.key, gpu), used)
            for each in self.processes
            for gpu, used in each.used_bytes.items()
        )
        listing = Listing(frozenset(GPUS), listed) if looks else None
        observation = Observation(tuple(self.queue), listing, deaths)
        findings = observe(self.tasks, self.position, observation, self.now_s, RULES, most)
        readings = [
            GpuReading(gpu, index, "L4", total_bytes=1000, reserved_bytes=0, used_bytes=0)
            for index, gpu in enumerate(GPUS)
        ]
        gpus = gpus_of(readings, {}, findings.tasks.lives.values())
        time = rfc3339(datetime.fromtimestamp(self.now_s, UTC))
        batch = self.reports.batch(findings, gpus, self.now_s, time, state_waits=self.store.state_waits)
        if not fails:
            keeping = self.store.keep(
                batch.entries,
                findings.tasks,
                Checkpoint("boot", findings.position),
                replaces_state=batch.replaces_state,
            )
            self.loop.run_until_complete(self.kept(keeping, sends=sends))
            if raises:
                self.epoch += 1
                self.reports.begin_epoch(self.epoch)
            self.reports.stored(batch, findings.tasks.lives)
            self.tasks, self.position = findings.tasks, findings.position
            self.watched |= {key.process for key in (*self.tasks.lives, *self.tasks.left)}
            self.watched -= set(findings.ended)
            del self.queue[: findings.taken]

    async def kept(self, keeping: Coroutine[Any, Any, None], *, sends: bool) -> None:
        """Wait for a round's storing, beside which the publisher may ask for the oldest events."""
        if not sends:
            await keeping
            return
        _, sent = await asyncio.gather(keeping, self.store.oldest(2))
        self.published += [(each.id, each.body) for each in sent]

    @rule(count=st.integers(1, 4), acknowledged=st.integers(0, 4))
    def publish(self, count: int, acknowledged: int) -> None:
        """Some events are sent; the acknowledgements of the last ones may be lost."""
        waiting = self.loop.run_until_complete(self.store.oldest(count))
        self.published += [(each.id, each.body) for each in waiting]
        self.loop.run_until_complete(self.store.remove(each.number for each in waiting[:acknowledged]))

    # The subscriber.

    def judge(self) -> None:
        """A subscriber to plain NATS saw exactly the facts, once each identical repetition is dropped."""
        contents: dict[str, bytes] = {}
        for event_id, body in self.published:
            assert contents.setdefault(event_id, body) == body, "one id has two contents"
        lives: defaultdict[TaskKey, list[Phase]] = defaultdict(list)
        numbers: defaultdict[int, list[int]] = defaultdict(list)
        for body in contents.values():
            assert decode_event(body).id
            report = decode_report(body)
            seqs = numbers[report.state.epoch]
            if report.state.is_omitted:
                assert report.state.seq == seqs[-1], (
                    "an event without a state is not numbered as the state before"
                )
            else:
                seqs.append(report.state.seq)
            if report.task:
                lives[TaskKey(report.task.process, report.task.gpu)].append(report.task.phase)
        for seqs in numbers.values():
            assert seqs == list(range(1, len(seqs) + 1)), "the numbers of an epoch have a gap"
        known = {TaskKey(each.key, gpu) for each in self.processes for gpu in each.met}
        assert lives.keys() <= known, "a task that never was"
        for each in self.processes:
            for gpu in each.met if each.is_hooked else ():
                assert lives[TaskKey(each.key, gpu)], "an announced task without an event"
        for phases in lives.values():
            assert phases[0] is Phase.STARTED
            assert phases[-1] is Phase.EXITED
            ends = [phase for phase in phases if phase is not Phase.LOADED]
            assert ends == [Phase.STARTED, Phase.EXITED] * (len(ends) // 2), "a phantom start or exit"


Node.TestCase.settings = settings(max_examples=examples(150), stateful_step_count=40, deadline=None)
TestNode = Node.TestCase
