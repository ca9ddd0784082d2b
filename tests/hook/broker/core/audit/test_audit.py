"""The audit derives from NVML's figures: excess, the cost of a context, and findings."""

from collections.abc import Callable, Iterator, Mapping, Sequence

import hypothesis.strategies as st
import pytest
from hypothesis import given

from hook.broker.core.audit.attribution import UNKNOWN_CONTAINER, Audited, Hooked, MeasuredUse
from hook.broker.core.audit.audit import RUN, UNHOOKED_NS, Audit, AuditResult, Overhead
from hook.broker.core.ids import ContainerKey
from plimsoll.broker.announcements import Unenforced, Violated
from plimsoll.broker.wire import ContainerLines, Line, Measured, MeasuredGpu, MeasuredProcess
from plimsoll.ids import ContainerName, GpuUuid, PodUid, ProcessKey
from plimsoll.quantity import GIB, MIB

GPU = GpuUuid("GPU-a")
POD = PodUid("pod-a")
MAIN = ContainerKey(POD, ContainerName("main"))
ONE, TWO = ProcessKey(1, 11), ProcessKey(2, 22)
USABLE = 16 * GIB
CONTEXT = 300 * MIB
BEGAN_NS = 1_000


class Bench:
    """An audit of one GPU. The tests supply NVML's figures and the processes' words."""

    def __init__(self, contexts: Mapping[GpuUuid, int] | None = None) -> None:
        self.audit = Audit(contexts or {})
        self.names: tuple[str, ...] = ("main",)
        self.line = Line(gpu=GPU, line_bytes=GIB)
        self.whole = self.best_effort = False

    def take(
        self,
        used: Mapping[ProcessKey, int],
        words: Mapping[ProcessKey, int] | None = None,
        *,
        pods: Mapping[ProcessKey, PodUid] | None = None,
        with_context: bool = True,
        slots: tuple[int, ...] = (0,),
        began_ns: int = BEGAN_NS,
        changed_ns: int = BEGAN_NS - 1,
    ) -> AuditResult:
        """Take one measurement. A process with a word is hooked, in the container `main`."""
        contexts = frozenset({GPU} if with_context else ())
        hooked = {key: Hooked((word,), contexts, slots, changed_ns) for key, word in (words or {}).items()}
        processes = tuple(
            MeasuredProcess(
                pid=key.pid,
                start_ticks=key.start_ticks,
                gpu=GPU,
                used_bytes=used_bytes,
                pod=(pods or {}).get(key),
            )
            for key, used_bytes in used.items()
        )
        gpu = MeasuredGpu(gpu=GPU, usable_bytes=USABLE, used_bytes=sum(used.values()))
        measured = Measured(began_ns=began_ns, gpus=(gpu,), processes=processes)
        return self.audit.take(measured, self._containers(hooked))

    def run(self, used_bytes: int, word_bytes: int, times: int = RUN + 1) -> AuditResult:
        """Repeat a measurement of one process until the audit believes it; returns the last verdict."""
        return [self.take({ONE: used_bytes}, {ONE: word_bytes}) for _ in range(times)][-1]

    @property
    def excess(self) -> int:
        """The excess of the container `main`."""
        return self.audit.excess_bytes(MAIN, GPU)

    def _containers(self, hooked: Mapping[ProcessKey, Hooked]) -> Sequence[Audited]:
        return [
            Audited(
                ContainerKey(POD, ContainerName(name)),
                ContainerLines(
                    name=ContainerName(name),
                    lines=(self.line,),
                    whole=self.whole,
                    best_effort=self.best_effort,
                ),
                hooked if name == "main" else {},
            )
            for name in self.names
        ]


def test_excess_is_believed_at_the_second_measurement_and_falls_at_once() -> None:
    """The first measurement finds the process in its slot and the second charges the excess.

    A smaller excess holds at once.
    """
    bench = Bench()
    assert not bench.run(700 * MIB, 500 * MIB, times=1).stale
    assert bench.excess == 0
    assert bench.run(700 * MIB, 500 * MIB, times=1).stale == {MAIN}
    assert bench.excess == 200 * MIB
    assert not bench.run(700 * MIB, 500 * MIB, times=1).stale
    assert bench.run(600 * MIB, 500 * MIB, times=1).stale == {MAIN}
    assert bench.excess == 100 * MIB
    bench.run(700 * MIB, 650 * MIB, times=1)
    assert bench.excess == 100 * MIB, "a word may be reserved before the memory is held"
    bench.run(700 * MIB, 650 * MIB, times=1)
    assert bench.excess == 50 * MIB


@pytest.mark.parametrize("changed_ns", [BEGAN_NS, BEGAN_NS + 1, 2**64 - 1])
def test_words_that_changed_since_nvml_was_asked_leave_the_excess_as_it_was(changed_ns: int) -> None:
    """Words that changed after NVML was asked neither raise nor lower the excess.

    A time of change that lies in the future has no further effect.
    """
    bench = Bench()
    bench.run(700 * MIB, 500 * MIB)
    for used, word in ((GIB, 0), (500 * MIB, 500 * MIB)):
        verdict = bench.take({ONE: used}, {ONE: word}, changed_ns=changed_ns)
        assert (bench.excess, verdict.stale) == (200 * MIB, frozenset())
    over = [bench.take({ONE: 2 * GIB}, {ONE: 0}, changed_ns=changed_ns).findings for _ in range(2)]
    assert [finding.what for findings in over for finding in findings] == ["violated"]


def test_a_process_that_came_into_other_slots_is_not_weighed_there_at_once() -> None:
    """A process in other slots than at the previous measurement is not charged at once.

    Its words may be another program's.
    """
    bench = Bench()
    bench.run(GIB, GIB)
    bench.take({ONE: GIB}, {ONE: 0}, slots=(1,))
    assert bench.excess == 0
    bench.take({ONE: GIB}, {ONE: 0}, slots=(1,))
    assert bench.excess == GIB


def test_a_process_is_not_weighed_at_the_measurement_at_which_it_says_hello() -> None:
    """A process is charged neither before its greeting nor at the measurement in which its word first appears.

    Its word may be under way before that.
    """
    bench = Bench()
    bench.take({ONE: GIB}, pods={ONE: POD})
    bench.take({ONE: GIB}, {ONE: 0})
    assert bench.excess == 0
    bench.take({ONE: GIB}, {ONE: GIB})
    assert bench.excess == 0


@given(
    st.lists(st.sampled_from(["take", "free", "measure"]), min_size=50, max_size=80),
    st.sampled_from([0, 100 * MIB]),
)
def test_no_order_of_calls_and_measurements_charges_more_than_is_there(steps: list[str], hidden: int) -> None:
    """A program takes and frees 1 GiB between NVML's request, its answer, and the reading of words.

    No order of these steps charges more than the program holds without counting it.
    """
    program = Program(hidden)
    for step in steps:
        program.do(step)
        assert program.bench.excess <= hidden
    program.finish()
    for _ in range(2 * 3):
        program.do("measure")
    assert program.bench.excess == hidden


class Program:
    """A program under the library that also holds uncounted memory, and a measurement of it, step by step."""

    def __init__(self, hidden: int) -> None:
        self.bench = Bench()
        self.hidden = hidden
        self.now_ns = BEGAN_NS
        self.word = self.held = self.changed_ns = 0
        self.call: Iterator[str] = iter(())
        self.measurement: Iterator[str] = iter(())

    def do(self, step: str) -> None:
        """Take the next step of the call or measurement under way, or begin the next one."""
        self.now_ns += 1
        if step == "measure":
            if next(self.measurement, None) is None:
                self.measurement = self._measured()
                next(self.measurement)
        elif next(self.call, None) is None:
            self.call = self._taken() if step == "take" else self._freed()
            next(self.call, None)

    def finish(self) -> None:
        """End the call and the measurement that are under way."""
        self.now_ns += 1
        list(self.call)
        list(self.measurement)

    def _taken(self) -> Iterator[str]:
        """Reserve first: the word with its time of change, then the driver's call."""
        self.changed_ns, self.word = self.now_ns, self.word + GIB
        yield "reserved"
        self.held += GIB

    def _freed(self) -> Iterator[str]:
        """Free first: the driver's call, then the word."""
        if not self.held:
            return
        self.held -= GIB
        yield "freed"
        self.changed_ns, self.word = self.now_ns, self.word - GIB

    def _measured(self) -> Iterator[str]:
        began_ns = self.now_ns
        yield "NVML is asked"
        shown = self.hidden + self.held
        yield "NVML has answered"
        self.bench.take({ONE: shown}, {ONE: self.word}, began_ns=began_ns, changed_ns=self.changed_ns)


def test_who_fills_its_line_while_it_is_measured_stays_charged() -> None:
    """A word that grew before the memory did does not lower the excess; a word that stands still does."""
    overhead = Overhead()
    overhead.add(MeasuredUse(300 * MIB, 100 * MIB))
    overhead.add(MeasuredUse(400 * MIB, 700 * MIB))
    assert overhead.excess_bytes == 200 * MIB
    overhead.add(MeasuredUse(900 * MIB, 700 * MIB))
    assert overhead.excess_bytes == 200 * MIB
    overhead.add(MeasuredUse(750 * MIB, 700 * MIB))
    assert overhead.excess_bytes == 50 * MIB


def test_a_dead_process_takes_its_excess_with_it() -> None:
    """A dead process's excess ends at its death, not at the next measurement. The other process keeps its excess."""
    bench = Bench()
    for _ in range(RUN + 1):
        bench.take({ONE: 300 * MIB, TWO: 200 * MIB}, {ONE: 0, TWO: 0})
    assert bench.excess == 500 * MIB
    assert bench.audit.forget(ONE) == {MAIN: (0,)}, "with the slot whose figures end"
    assert bench.excess == 200 * MIB
    assert bench.audit.forget(ONE) == {}


def test_who_leaves_the_gpu_begins_anew() -> None:
    """A process that NVML does not list has no excess, and after its return none until the second measurement."""
    bench = Bench()
    bench.run(700 * MIB, 500 * MIB)
    assert bench.take({}, {ONE: 0}).stale == {MAIN}
    assert bench.excess == 0
    bench.run(700 * MIB, 500 * MIB, times=1)
    assert bench.excess == 0


def test_a_context_is_learned_from_the_first_process() -> None:
    """The cost of a context is NVML's figure less a word that holds no context.

    Every container on that GPU gets it.
    """
    bench = Bench()
    bench.names = ("main", "side")
    verdict = bench.run(CONTEXT + 500 * MIB, 500 * MIB)
    assert verdict.has_learned
    assert verdict.stale == {MAIN, ContainerKey(POD, ContainerName("side"))}
    assert bench.audit.contexts == {GPU: CONTEXT}
    assert bench.excess == CONTEXT, "no word holds the context"


def test_a_later_context_is_in_its_word_and_teaches_nothing_too_small() -> None:
    """With the context in the word, NVML's figure less the word is next to nothing, and teaches nothing."""
    bench = Bench({GPU: CONTEXT})
    bench.run(CONTEXT + 30 * MIB, CONTEXT)
    assert bench.audit.contexts == {GPU: CONTEXT}
    assert bench.excess == 30 * MIB


def test_no_process_with_a_context_holds_less_than_one() -> None:
    """If a process with a context holds less than the known cost in all, the cost sinks to that."""
    bench = Bench({GPU: CONTEXT})
    assert bench.run(200 * MIB, CONTEXT).has_learned
    assert bench.audit.contexts == {GPU: 200 * MIB}
    assert bench.excess == 0


@pytest.mark.parametrize("used", [lambda n: CONTEXT + 10 * n * MIB, lambda n: 20 * n * MIB])
def test_a_context_is_not_learned_while_memory_moves(used: Callable[[int], int]) -> None:
    """The cost is not learned while memory moves, as NVML and words are not read at the same moment."""
    bench = Bench()
    for step in range(3 * RUN):
        bench.take({ONE: used(step)}, {ONE: 5 * MIB * step})
    assert bench.audit.contexts == {}


def test_a_context_is_not_learned_while_it_is_being_made() -> None:
    """The cost is not learned before the process has announced its context, as NVML may show a part of it."""
    bench = Bench()
    for _ in range(2 * RUN):
        bench.take({ONE: 2 * MIB}, {ONE: 0}, with_context=False)
    bench.take({ONE: 3 * MIB}, {ONE: 0})
    assert bench.audit.contexts == {}


def test_a_context_that_a_process_counts_itself_is_not_learned_as_nothing() -> None:
    """A figure a few kilobytes past the word is no context."""
    bench = Bench()
    bench.run(CONTEXT, CONTEXT - 4096)
    assert bench.audit.contexts == {}


def test_a_violation_is_told_once_until_it_has_ended() -> None:
    """A violation needs two measurements in a row past line and last block.

    It is reported again only after a measurement within the line.
    """
    bench = Bench()
    over = GIB + 2 * MIB + 1
    told = [
        bench.run(each, GIB, 1).findings for each in (over, GIB + 2 * MIB, over, over, over, GIB, over, over)
    ]
    assert [len(findings) for findings in told] == [0, 0, 0, 1, 0, 0, 0, 1]
    finding = told[3][0]
    assert isinstance(finding, Violated)
    assert (finding.pod, finding.container, finding.pid) == (POD, MAIN.container, 0)
    assert (finding.gpu, finding.used_bytes, finding.line_bytes) == (GPU, over, GIB)


@pytest.mark.parametrize("kind", ["whole", "best_effort"])
def test_who_declared_no_line_cannot_violate_it(kind: str) -> None:
    """Whole GPUs have no line. A best-effort line may sink below the memory held, which is nobody's fault."""
    bench = Bench()
    setattr(bench, kind, True)
    assert [bench.run(8 * GIB, GIB, 1).findings for _ in range(3)] == [()] * 3


def test_a_process_that_never_said_hello_is_told_once_and_counts() -> None:
    """A process in a registered pod that never greeted is reported once it was measured for `UNHOOKED_NS`.

    It has no word, so all its memory is excess. Two quick measurements report nothing: its hello may be under way.
    """
    bench = Bench()
    times_ns = [BEGAN_NS, BEGAN_NS + 1, *(BEGAN_NS + UNHOOKED_NS + each for each in range(RUN))]
    verdicts, excess = [], []
    for time_ns in times_ns:
        verdicts.append(bench.take({ONE: 100 * MIB}, pods={ONE: POD}, began_ns=time_ns))
        excess.append(bench.excess)
    assert excess == [0, 0, *[100 * MIB] * RUN]
    assert [len(verdict.findings) for verdict in verdicts] == [0, 0, 1] + [0] * (RUN - 1)
    assert bench.audit.unheld_pids(MAIN) == (ONE.pid,)
    (finding,) = verdicts[2].findings
    assert isinstance(finding, Unenforced)
    assert (finding.pod, finding.container, finding.process) == (POD, MAIN.container, ONE)
    assert (finding.used_bytes, finding.line_bytes) == (100 * MIB, GIB)
    assert bench.excess == 100 * MIB
    again = [bench.take({TWO: 1}, pods={TWO: POD}, began_ns=time_ns) for time_ns in times_ns]
    assert [len(verdict.findings) for verdict in again] == [0, 0, 1] + [0] * (RUN - 1)


def test_of_several_containers_the_pod_alone_is_named() -> None:
    """In a pod of several containers the report names the pod alone, and no container is charged.

    The kernel does not name the container.
    """
    bench = Bench()
    bench.names = ("main", "side")
    times_ns = range(BEGAN_NS, BEGAN_NS + 2 * UNHOOKED_NS, UNHOOKED_NS // 2)
    verdicts = [bench.take({ONE: 8 * GIB}, pods={ONE: POD}, began_ns=time_ns) for time_ns in times_ns]
    assert [(each.pod, each.container) for verdict in verdicts for each in verdict.findings] == [
        (POD, UNKNOWN_CONTAINER)
    ]
    assert bench.excess == 0
    assert bench.audit.capacity == {GPU: USABLE - 8 * GIB}


def test_strangers_take_from_what_is_usable_and_from_nothing_else() -> None:
    """A process outside registered pods causes no finding. Its memory reduces the usable bytes."""
    bench = Bench()
    verdict = bench.take({ONE: GIB, TWO: 3 * GIB}, {ONE: GIB}, pods={TWO: PodUid("pod-of-others")})
    assert verdict.findings == ()
    assert bench.audit.capacity == {GPU: USABLE - 3 * GIB}
    bench.take({ONE: GIB}, {ONE: GIB})
    assert bench.audit.capacity == {GPU: USABLE}


def test_a_process_whose_slot_is_not_known_is_not_judged() -> None:
    """An adopted process whose slot is not found yet is not charged as one without counts."""
    audit = Audit({})
    lines = ContainerLines(name=MAIN.container, lines=(Line(gpu=GPU, line_bytes=GIB),))
    container = Audited(MAIN, lines, {ONE: Hooked(None, frozenset({GPU}))})
    process = MeasuredProcess(pid=1, start_ticks=11, gpu=GPU, used_bytes=GIB)
    for _ in range(2 * RUN):
        measured = Measured(began_ns=BEGAN_NS, gpus=(), processes=(process,))
        assert audit.take(measured, [container]).findings == ()
    assert audit.excess_bytes(MAIN, GPU) == 0
