"""The whole core, over any order of events that a node can produce."""

from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise

import hypothesis.strategies as st
import msgspec
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from hook.broker.core.audit.audit import UNHOOKED_NS
from hook.broker.core.datagram import Datagram, DatagramKind
from hook.broker.core.events import DatagramReceived, Died, Event, Surveyed, WordsRead
from hook.broker.core.ids import ContainerKey, Process, SlotUse, owner_word
from hook.broker.core.instructions import (
    Append,
    ClearSlots,
    Instruction,
    RemovePod,
    Rewrite,
    SaveContexts,
    SaveRecord,
    SetLimits,
    Survey,
    Watch,
)
from hook.broker.core.journal import Journal, JournalLine, decode_line
from hook.broker.core.node import Node
from hook.broker.core.registration import PodRecord
from plimsoll.broker.announcements import Announcement, Context, Resized
from plimsoll.broker.wire import (
    Acknowledge,
    Measured,
    MeasuredProcess,
    Unregister,
)
from plimsoll.ids import PodUid, ProcessKey
from plimsoll.quantity import GIB, MIB
from tests.hook.broker.core.registrations import GPUS, MAIN, PODS, pod
from tests.slow import examples

NOW_S = 1_700_000_000.0


@dataclass(slots=True)
class Body:
    """A process on the modelled node."""

    container: ContainerKey
    process: Process
    used: tuple[int, int] = (0, 0)
    holds_slot: bool = True
    alive: bool = True


@dataclass(slots=True)
class Disk:
    """The state that outlives a broker."""

    journal: list[JournalLine] = field(default_factory=list)
    records: dict[PodUid, PodRecord] = field(default_factory=dict)


KILLED_AFTER = st.one_of(st.none(), st.none(), st.none(), st.integers(0, 3))
"""The instructions that a broker carries out before its kill; usually all."""


class NodeMachine(RuleBasedStateMachine):
    """A node whose processes start, report and die, and whose broker may be killed between any two writes.

    The model holds the truth. The core gets it only by events, late, twice, or not at all.
    """

    def __init__(self) -> None:
        super().__init__()
        self.disk = Disk()
        self.bodies: list[Body] = []
        self.everything: dict[int, Announcement] = {}
        self.acknowledged = 0
        self.watched: set[ProcessKey] = set()
        self.next_pid = 100
        self.boot()

    def boot(self) -> None:
        """Start a broker over the files on disk."""
        self.watched.clear()
        lines = [decode_line(msgspec.json.encode(line)) for line in self.disk.journal]
        self.node = Node(Journal(lines, 10_000), list(self.disk.records.values()), "boot")
        self.carry_out(self.node.start(NOW_S))

    def handle(self, event: Event, limit: int | None = None) -> None:
        """Handle one event. With a limit, the broker is killed after this many instructions."""
        self.carry_out(self.node.handle(event, NOW_S), limit)

    def carry_out(self, instructions: list[Instruction], limit: int | None = None) -> None:
        """Carry out the core's instructions on the model."""
        for instruction in instructions[:limit]:
            self.do(instruction)
        if limit is not None:
            self.boot()

    def do(self, instruction: Instruction) -> None:  # noqa: C901 - one instruction a case
        """Carry out one instruction."""
        match instruction:
            case Append(line):
                self.disk.journal.append(line)
                if isinstance(line, Announcement):
                    self.note(line)
            case Rewrite(lines):
                self.disk.journal = list(lines)
                for entry in lines:
                    if isinstance(entry, Announcement):
                        self.note(entry)
            case SaveRecord(record):
                self.check_announced(record)
                self.disk.records[record.pod.pod] = record
            case ClearSlots(container, owner):
                self.clear(container, owner)
            case Survey():
                self.handle(self.survey(instruction))
            case RemovePod():
                assert not [
                    b for b in self.bodies if b.alive and b.holds_slot and b.container.pod == instruction.pod
                ]
                self.disk.records.pop(instruction.pod, None)
            case Watch(key):
                self.watched.add(key)

    def note(self, line: Announcement) -> None:
        """Write an announcement to disk. No number stands for two announcements."""
        assert self.everything.setdefault(line.seq, line) == line

    def check_announced(self, record: PodRecord) -> None:
        """A changed line in a pod's record was announced before, so that no resize is lost."""
        old = self.disk.records.get(record.pod.pod)
        before = old.pod.containers[0].lines if old else record.pod.containers[0].lines
        for line, was in zip(record.pod.containers[0].lines, before, strict=True):
            if line.line_bytes != was.line_bytes:
                told = [
                    entry.line_bytes
                    for _, entry in sorted(self.everything.items())
                    if isinstance(entry, Resized) and (entry.pod, entry.gpu) == (record.pod.pod, line.gpu)
                ]
                assert told[-1:] == [line.line_bytes]

    def clear(self, container: ContainerKey, owner: int) -> None:
        """Clear slots of dead processes only."""
        for body in self.bodies:
            if body.container == container and body.process.owner == owner:
                assert not body.alive
                body.holds_slot = False

    def survey(self, survey: Survey) -> Surveyed:
        """The findings of the file adapter."""
        here = [body for body in self.bodies if body.container == survey.container]
        slots = [SlotUse(n, b.process.owner, b.used, 0) for n, b in enumerate(here) if b.holds_slot]
        wanted = {slot.owner for slot in slots}
        living = {
            b.process.owner: b.process
            for b in here
            if b.alive and (b.process.owner in wanted or b.process.key in survey.known)
        }
        alive = {body.process.key for body in self.bodies if body.alive}
        return Surveyed(survey.container, tuple(slots), living, frozenset(survey.known - alive))

    def living(self) -> list[Body]:
        """The living processes."""
        return [body for body in self.bodies if body.alive]

    @rule(uid=st.sampled_from(PODS), line_bytes=st.integers(1, 3), limit=KILLED_AFTER)
    def register(self, uid: PodUid, line_bytes: int, limit: int | None) -> None:
        """Register or resize a pod."""
        self.handle(pod(uid, line_bytes), limit)

    @rule(uid=st.sampled_from(PODS), limit=KILLED_AFTER)
    def unregister(self, uid: PodUid, limit: int | None) -> None:
        """Remove a pod."""
        self.handle(Unregister(pod=uid), limit)

    @rule(uid=st.sampled_from(PODS))
    def begin(self, uid: PodUid) -> None:
        """Let a process claim a slot in a registered container without a greeting."""
        if uid in self.disk.records:
            self.next_pid += 1
            process = Process(ProcessKey(self.next_pid, 5), owner_word(self.next_pid, 5))
            self.bodies.append(Body(ContainerKey(uid, MAIN), process))

    @precondition(lambda self: self.bodies)
    @rule(data=st.data(), limit=KILLED_AFTER)
    def speak(self, data: st.DataObject, limit: int | None) -> None:
        """Send a process's message, which may arrive after its death."""
        body = data.draw(st.sampled_from(self.bodies))
        kind = data.draw(st.sampled_from(DatagramKind))
        gpu = (
            data.draw(st.sampled_from(GPUS)) if kind in {DatagramKind.CONTEXT, DatagramKind.DENIED} else None
        )
        if body.alive or body.process.key in self.watched:
            datagram = Datagram(kind, 0, body.process.owner, gpu=gpu, text="cuFoo")
            self.handle(DatagramReceived(body.container, body.process, datagram), limit)

    @precondition(lambda self: self.living())
    @rule(data=st.data(), used=st.tuples(st.integers(0, 2), st.integers(0, 2)))
    def allocate(self, data: st.DataObject, used: tuple[int, int]) -> None:
        """Let a process hold memory."""
        data.draw(st.sampled_from(self.living())).used = used

    @precondition(lambda self: self.living())
    @rule(data=st.data())
    def die(self, data: st.DataObject) -> None:
        """Let a process die without a report."""
        data.draw(st.sampled_from(self.living())).alive = False

    @rule(data=st.data(), limit=KILLED_AFTER)
    def hear_of_death(self, data: st.DataObject, limit: int | None) -> None:
        """Report a watched process's death, as the watch guarantees."""
        dead = [b.process.key for b in self.bodies if not b.alive and b.process.key in self.watched]
        if dead:
            self.handle(Died(data.draw(st.sampled_from(dead))), limit)

    @rule()
    def audit(self) -> None:
        """Run the audit over everything."""
        self.carry_out(self.node.survey())

    @rule(data=st.data())
    def acknowledge(self, data: st.DataObject) -> None:
        """Acknowledge some entries, as a subscriber that stored them."""
        seq = data.draw(st.integers(0, self.node.newest_seq))
        self.handle(Acknowledge(seq=seq))
        self.acknowledged = max(self.acknowledged, seq)

    @rule()
    def restart(self) -> None:
        """Kill the broker and start another."""
        self.boot()

    @invariant()
    def every_entry_is_kept_until_acknowledged(self) -> None:
        """A subscriber gets exactly the entries past the last acknowledged number, in order."""
        expected = [self.everything[seq] for seq in sorted(self.everything) if seq > self.acknowledged]
        assert self.node.after(0) == expected
        assert all(one.seq < other.seq for one, other in pairwise(self.node.after(0)))

    @invariant()
    def each_life_is_told_once(self) -> None:
        """Each process has at most one greeting and one exit, in this order, and no living process has an exit."""
        alive = {body.process.key for body in self.living()}
        told = Counter((e.what, e.pid) for e in self.everything.values() if e.what in {"hello", "exited"})
        assert not told or max(told.values()) == 1
        exited = {pid for what, pid in told if what == "exited"}
        assert exited <= {pid for what, pid in told if what == "hello"}
        assert not exited & {key.pid for key in alive}
        contexts = Counter((e.pid, e.gpu) for e in self.everything.values() if isinstance(e, Context))
        assert not contexts or max(contexts.values()) == 1

    def teardown(self) -> None:
        """After one more audit, each living process with a slot is known and each dead one was announced."""
        self.carry_out(self.node.survey())
        hellos = {e.pid for e in self.everything.values() if e.what == "hello"}
        exits = {e.pid for e in self.everything.values() if e.what == "exited"}
        for body in self.bodies:
            pid = body.process.key.pid
            assert (pid in hellos - exits) if body.alive else (pid in exits or pid not in hellos)
            assert body.alive or not body.holds_slot or body.container.pod not in self.disk.records
        self.each_life_is_told_once()


NodeMachine.TestCase.settings = settings(max_examples=examples(150), stateful_step_count=40)
TestNode = NodeMachine.TestCase


def test_last_words_after_the_exit_bring_nobody_back() -> None:
    """After a process's exit a late greeting or context is dropped, and a late denial is announced."""
    node = Node(Journal([], 100), [], "boot")
    node.handle(pod(PODS[0]), NOW_S)
    process = Process(ProcessKey(7, 5), owner_word(7, 5))
    container = ContainerKey(PODS[0], MAIN)
    node.handle(DatagramReceived(container, process, Datagram(DatagramKind.HELLO, 0, process.owner)), NOW_S)
    node.handle(Died(process.key), NOW_S)
    for kind in (DatagramKind.HELLO, DatagramKind.CONTEXT, DatagramKind.DENIED):
        node.handle(
            DatagramReceived(container, process, Datagram(kind, 0, process.owner, gpu=GPUS[0])), NOW_S
        )
    assert [entry.what for entry in node.after(0)] == ["hello", "exited", "denied"]


def test_a_process_that_died_after_nvmls_list_is_not_unenforced() -> None:
    """Measurements made just before a hooked process died may come just after; they accuse nobody."""
    node = Node(Journal([], 100), [], "boot")
    node.handle(pod(PODS[0]), NOW_S)
    hooked, bare = (Process(ProcessKey(pid, 5), owner_word(pid, 5)) for pid in (7, 8))
    container = ContainerKey(PODS[0], MAIN)
    node.handle(DatagramReceived(container, hooked, Datagram(DatagramKind.HELLO, 0, hooked.owner)), NOW_S)
    node.handle(Died(hooked.key), NOW_S)
    processes = tuple(
        MeasuredProcess(
            pid=each.key.pid, start_ticks=5, gpu=GPUS[0], used_bytes=1, pod=PODS[0], container=MAIN
        )
        for each in (hooked, bare)
    )
    for began_ns in (1, 1 + UNHOOKED_NS):
        node.handle(WordsRead(Measured(began_ns=began_ns, gpus=(), processes=processes), {}), NOW_S)
    accused = [entry.pid for entry in node.after(0) if entry.what == "unenforced"]
    assert accused == [bare.key.pid]


def test_a_program_that_waits_for_its_measurement_does_not_wait_for_the_disk() -> None:
    """The page is written before the cost of the context is saved, which takes seconds on a busy disk."""
    node = Node(Journal([], 100), [], "boot")
    node.handle(pod(PODS[0], GIB), NOW_S)
    process = Process(ProcessKey(7, 5), owner_word(7, 5))
    container = ContainerKey(PODS[0], MAIN)
    context = Datagram(DatagramKind.CONTEXT, 0, process.owner, gpu=GPUS[0])
    node.handle(DatagramReceived(container, process, context), NOW_S)
    shown = MeasuredProcess(pid=7, start_ticks=5, gpu=GPUS[0], used_bytes=300 * MIB, pod=PODS[0])
    slots = {container: (SlotUse(0, process.owner, (0, 0), 0, awaiting=1),)}
    steps = [
        node.handle(WordsRead(Measured(began_ns=began_ns, gpus=(), processes=(shown,)), slots), NOW_S)
        for began_ns in (1, 2)
    ]
    assert [type(step) for step in steps[-1]] == [SetLimits, SaveContexts]
