"""What the broker makes of NVML's figures: excess, the cost of a context, and findings."""

from collections.abc import Callable, Mapping, Sequence

import hypothesis.strategies as st
import pytest
from hypothesis import given

from hook.broker.core.attribution import UNKNOWN_CONTAINER, Audited, Hooked
from hook.broker.core.audit import Audit, Verdict
from hook.broker.core.facts import ContainerKey, ProcessKey
from hook.broker.core.overheads import EAGER_RUN, RUN, Overhead, Sample
from plimsoll.brokerwire import ContainerLines, Line, Measured, MeasuredGpu, MeasuredProcess
from plimsoll.names import ContainerName, GpuUuid, PodUid
from plimsoll.quantity import GIB, MIB

GPU = GpuUuid("GPU-a")
POD = PodUid("pod-a")
MAIN = ContainerKey(POD, ContainerName("main"))
ONE, TWO = ProcessKey(1, 11), ProcessKey(2, 22)
USABLE = 16 * GIB
CONTEXT = 300 * MIB


class Bench:
    """An audit of one GPU, told what NVML shows and what words say."""

    def __init__(self, contexts: Mapping[GpuUuid, int] | None = None, *, is_first: bool = False) -> None:
        self.audit = Audit(contexts or {})
        self.names: tuple[str, ...] = ("main",)
        self.line = Line(gpu=GPU, line_bytes=GIB)
        self.whole = self.best_effort = False
        if not is_first:
            self.take({})

    def take(
        self,
        used: Mapping[ProcessKey, int],
        words: Mapping[ProcessKey, int] | None = None,
        *,
        pods: Mapping[ProcessKey, PodUid] | None = None,
        with_context: bool = True,
    ) -> Verdict:
        """One measurement; who has a word is hooked, in the container `main`."""
        contexts = frozenset({GPU} if with_context else ())
        hooked = {key: Hooked((word,), contexts) for key, word in (words or {}).items()}
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
        return self.audit.take(Measured(gpus=(gpu,), processes=processes), self._containers(hooked))

    def run(self, used_bytes: int, word_bytes: int, times: int = RUN + 1) -> Verdict:
        """The same of one process, until it is believed; the last verdict."""
        return [self.take({ONE: used_bytes}, {ONE: word_bytes}) for _ in range(times)][-1]

    @property
    def excess(self) -> int:
        """Of the container `main`."""
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


def test_excess_is_believed_after_a_run_and_falls_at_once() -> None:
    """One measurement short of a run shows nothing, the next all of it; less is believed when it is seen."""
    bench = Bench()
    assert not bench.run(700 * MIB, 500 * MIB, times=RUN).stale
    assert bench.excess == 0
    assert bench.run(700 * MIB, 500 * MIB, times=1).stale == {MAIN}
    assert bench.excess == 200 * MIB
    assert not bench.run(700 * MIB, 500 * MIB, times=1).stale
    assert bench.run(600 * MIB, 500 * MIB, times=1).stale == {MAIN}
    assert bench.excess == 100 * MIB
    bench.run(700 * MIB, 650 * MIB, times=1)
    assert bench.excess == 100 * MIB, "while its word moves, nobody knows"
    bench.run(700 * MIB, 650 * MIB, times=1)
    assert bench.excess == 50 * MIB


@given(st.lists(st.booleans(), min_size=RUN + 1, max_size=40), st.integers(0, RUN))
def test_a_measurement_taken_between_a_free_and_its_word_is_no_excess(caught: list[bool], place: int) -> None:
    """NVML still shows what the word no longer does, any number of times but all of a run: nothing is charged."""
    caught[place::RUN] = [False] * len(caught[place::RUN])
    overhead = Overhead()
    for is_caught in caught:
        overhead.add(Sample(GIB, 0 if is_caught else GIB))
        assert overhead.excess_bytes == 0


def test_the_higher_of_two_words_counts() -> None:
    """A word that rose after NVML was read, or fell before, is not held against its process."""
    overhead = Overhead()
    overhead.add(Sample(GIB, GIB))
    for _ in range(RUN):
        overhead.add(Sample(GIB, 0))
    assert overhead.excess_bytes == 0
    overhead.add(Sample(GIB, 0))
    assert overhead.excess_bytes == GIB


def test_who_fills_its_line_while_it_is_measured_stays_charged() -> None:
    """A word that grew after NVML was read is no sign that what is past it was freed; one that stands still is."""
    overhead = Overhead()
    for _ in range(RUN + 1):
        overhead.add(Sample(300 * MIB, 100 * MIB))
    overhead.add(Sample(400 * MIB, 700 * MIB))
    assert overhead.excess_bytes == 200 * MIB
    overhead.add(Sample(900 * MIB, 700 * MIB))
    assert overhead.excess_bytes == 200 * MIB
    overhead.add(Sample(750 * MIB, 700 * MIB))
    assert overhead.excess_bytes == 50 * MIB


def test_who_was_there_before_the_first_measurement_is_believed_sooner() -> None:
    """After a restart a program at rest is charged its excess again within a few measurements."""
    bench = Bench(is_first=True)
    bench.run(700 * MIB, 500 * MIB, times=EAGER_RUN)
    assert bench.excess == 0
    bench.run(700 * MIB, 500 * MIB, times=1)
    assert bench.excess == 200 * MIB
    bench.take({ONE: 700 * MIB, TWO: 700 * MIB}, {ONE: 500 * MIB, TWO: 0})
    bench.take({ONE: 700 * MIB, TWO: 700 * MIB}, {ONE: 500 * MIB, TWO: 0})
    bench.take({ONE: 700 * MIB, TWO: 700 * MIB}, {ONE: 500 * MIB, TWO: 0})
    assert bench.excess == 200 * MIB, "who came later is not"


def test_a_dead_process_takes_its_excess_with_it() -> None:
    """At its death, not at the next measurement; the other's stays."""
    bench = Bench()
    for _ in range(RUN + 1):
        bench.take({ONE: 300 * MIB, TWO: 200 * MIB}, {ONE: 0, TWO: 0})
    assert bench.excess == 500 * MIB
    assert bench.audit.forget(ONE) == {MAIN}
    assert bench.excess == 200 * MIB
    assert bench.audit.forget(ONE) == frozenset()


def test_who_leaves_the_gpu_begins_anew() -> None:
    """A process that NVML does not list has no excess, and on its return none until a run shows it."""
    bench = Bench()
    bench.run(700 * MIB, 500 * MIB)
    assert bench.take({}, {ONE: 0}).stale == {MAIN}
    assert bench.excess == 0
    bench.run(700 * MIB, 500 * MIB, times=RUN)
    assert bench.excess == 0


def test_a_context_is_learned_from_the_first_process() -> None:
    """What NVML shows past a word that holds no context; every container on that GPU is to be told."""
    bench = Bench()
    bench.names = ("main", "side")
    verdict = bench.run(CONTEXT + 500 * MIB, 500 * MIB)
    assert verdict.has_learned
    assert verdict.stale == {MAIN, ContainerKey(POD, ContainerName("side"))}
    assert bench.audit.contexts == {GPU: CONTEXT}
    assert bench.excess == CONTEXT, "it is in no word"


def test_a_later_context_is_in_its_word_and_teaches_nothing_too_small() -> None:
    """NVML less the word is then next to nothing, which is no context."""
    bench = Bench({GPU: CONTEXT})
    bench.run(CONTEXT + 30 * MIB, CONTEXT)
    assert bench.audit.contexts == {GPU: CONTEXT}
    assert bench.excess == 30 * MIB


def test_no_process_with_a_context_holds_less_than_one() -> None:
    """Where a process holds less in all, what was known was too much."""
    bench = Bench({GPU: CONTEXT})
    assert bench.run(200 * MIB, CONTEXT).has_learned
    assert bench.audit.contexts == {GPU: 200 * MIB}
    assert bench.excess == 0


@pytest.mark.parametrize("used", [lambda n: CONTEXT + 10 * n * MIB, lambda n: 20 * n * MIB])
def test_a_context_is_not_learned_while_memory_moves(used: Callable[[int], int]) -> None:
    """NVML and words are read one after the other: between them, movement looks like overhead."""
    bench = Bench()
    for step in range(3 * RUN):
        bench.take({ONE: used(step)}, {ONE: 5 * MIB * step})
    assert bench.audit.contexts == {}


def test_a_context_is_not_learned_while_it_is_being_made() -> None:
    """Before the process has announced it, NVML may show a part of it."""
    bench = Bench()
    for _ in range(2 * RUN):
        bench.take({ONE: 2 * MIB}, {ONE: 0}, with_context=False)
    bench.take({ONE: 3 * MIB}, {ONE: 0})
    assert bench.audit.contexts == {}


def test_a_context_that_a_process_counts_itself_is_not_learned_as_nothing() -> None:
    """A few kilobytes past the word are no context."""
    bench = Bench()
    bench.run(CONTEXT, CONTEXT - 4096)
    assert bench.audit.contexts == {}


def test_a_violation_is_told_once_until_it_has_ended() -> None:
    """Two measurements past line and last block in a row; again only after one that was not."""
    bench = Bench()
    over = GIB + 2 * MIB + 1
    told = [
        bench.run(each, GIB, 1).findings for each in (over, GIB + 2 * MIB, over, over, over, GIB, over, over)
    ]
    assert [len(findings) for findings in told] == [0, 0, 0, 1, 0, 0, 0, 1]
    finding = told[3][0]
    assert (finding.what, finding.container, finding.process.pid) == ("violated", MAIN, 0)
    assert (finding.told.gpu, finding.told.used_bytes, finding.told.line_bytes) == (GPU, over, GIB)


@pytest.mark.parametrize("kind", ["whole", "best_effort"])
def test_who_declared_no_line_cannot_violate_it(kind: str) -> None:
    """Whole GPUs have none, and a best-effort line sinks below what is held without anybody's fault."""
    bench = Bench()
    setattr(bench, kind, True)
    assert [bench.run(8 * GIB, GIB, 1).findings for _ in range(3)] == [()] * 3


def test_a_process_that_never_said_hello_is_told_once_and_counts() -> None:
    """In a registered pod, in two measurements running; it has no word, so all it holds is excess."""
    bench = Bench()
    verdicts = [bench.take({ONE: 100 * MIB}, pods={ONE: POD}) for _ in range(RUN + 1)]
    assert [len(verdict.findings) for verdict in verdicts] == [0, 1] + [0] * (RUN - 1)
    (finding,) = verdicts[1].findings
    assert (finding.what, finding.container, finding.process) == ("unenforced", MAIN, ONE)
    assert (finding.told.used_bytes, finding.told.line_bytes) == (100 * MIB, GIB)
    assert bench.excess == 100 * MIB
    assert [len(bench.take({TWO: 1}, pods={TWO: POD}).findings) for _ in range(2)] == [0, 1]


def test_of_several_containers_the_pod_alone_is_named() -> None:
    """The kernel tells no container: it is told all the same, and charged to nobody."""
    bench = Bench()
    bench.names = ("main", "side")
    verdicts = [bench.take({ONE: 8 * GIB}, pods={ONE: POD}) for _ in range(RUN + 1)]
    assert [finding.container for verdict in verdicts for finding in verdict.findings] == [
        ContainerKey(POD, UNKNOWN_CONTAINER)
    ]
    assert bench.excess == 0
    assert bench.audit.capacity == {GPU: USABLE - 8 * GIB}


def test_strangers_take_from_what_is_usable_and_from_nothing_else() -> None:
    """A process of no registered pod is nobody's finding; what it holds is not there for others."""
    bench = Bench()
    verdict = bench.take({ONE: GIB, TWO: 3 * GIB}, {ONE: GIB}, pods={TWO: PodUid("pod-of-others")})
    assert verdict.findings == ()
    assert bench.audit.capacity == {GPU: USABLE - 3 * GIB}
    bench.take({ONE: GIB}, {ONE: GIB})
    assert bench.audit.capacity == {GPU: USABLE}


def test_a_process_whose_slot_is_not_known_is_not_judged() -> None:
    """Adopted and not found yet: it must not be charged as one that counts nothing."""
    audit = Audit({})
    lines = ContainerLines(name=MAIN.container, lines=(Line(gpu=GPU, line_bytes=GIB),))
    container = Audited(MAIN, lines, {ONE: Hooked(None, frozenset({GPU}))})
    process = MeasuredProcess(pid=1, start_ticks=11, gpu=GPU, used_bytes=GIB)
    for _ in range(2 * RUN):
        assert audit.take(Measured(gpus=(), processes=(process,)), [container]).findings == ()
    assert audit.excess_bytes(MAIN, GPU) == 0
