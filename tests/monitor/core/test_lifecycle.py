"""A task's life, from samples."""

from collections import Counter
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from monitor.core import tasks as table
from monitor.core.lifecycle import Fact, LoadingRules, Owner, TaskKey
from monitor.core.tasks import ListedProcess, Listing, Tasks
from plimsoll.events import Phase
from plimsoll.ids import ContainerName, GpuUuid, PodUid, ProcessKey

MIB = 1024 * 1024
RULES = LoadingRules(settle_s=1.0, tolerance_bytes=8 * MIB, reload_bytes=64 * MIB)
GPU, OTHER = GpuUuid("GPU-a"), GpuUuid("GPU-b")
ONE, TWO = ProcessKey(10, 100), ProcessKey(11, 110)
KEY = TaskKey(ONE, GPU)
OWNER = Owner(PodUid("pod"), ContainerName("main"))


def facts_of(*samples: tuple[float, int | None]) -> list[tuple[Phase, int]]:
    """The facts of one task on one GPU after (seconds, MiB) samples; None: NVML does not list the task."""
    tasks, facts = Tasks(), list[Fact]()
    for at_s, used_mib in samples:
        seen = () if used_mib is None else (ListedProcess(KEY, used_mib * MIB),)
        tasks, new = table.take_listing(tasks, Listing(frozenset({GPU}), seen), at_s, RULES)
        facts += new
    return [(fact.phase, fact.ordinal) for fact in facts]


def test_a_task_that_rises_and_stands_still_is_started_then_loaded_then_exited() -> None:
    """Kang's three events come in order, and `loaded` only after memory stood still for the settle time."""
    rising = ((0, 300), (0.1, 600), (0.2, 900), (0.3, 905), (1.1, 905))
    assert facts_of(*rising) == [(Phase.STARTED, 1)]
    assert facts_of(*rising, (1.2, 905)) == [(Phase.STARTED, 1), (Phase.LOADED, 1)]
    assert facts_of(*rising, (1.2, 905), (9, None)) == [
        (Phase.STARTED, 1),
        (Phase.LOADED, 1),
        (Phase.EXITED, 1),
    ]


def test_a_context_without_growth_is_loaded_after_settling() -> None:
    """A task that never grows counts as loaded after the settle time, as its input may be empty."""
    assert facts_of((0, 300), (1, 300)) == [(Phase.STARTED, 1), (Phase.LOADED, 1)]


def test_a_slow_rise_is_not_standing_still() -> None:
    """Steps below the tolerance add up: memory that keeps creeping is not loaded."""
    creeping = [(0.5 * step, 300 + 6 * step) for step in range(40)]
    assert facts_of(*creeping) == [(Phase.STARTED, 1)]


def test_a_reload_is_loaded_again_with_the_next_ordinal() -> None:
    """A loaded task that rises by more than the reload mark is `loaded` once more when it rests."""
    loaded = ((0, 300), (1, 300))
    assert facts_of(*loaded, (2, 360), (9, 360))[2:] == []
    assert facts_of(*loaded, (2, 400), (3, 400))[2:] == [(Phase.LOADED, 2)]


def test_a_fall_lowers_the_mark_of_the_next_reload() -> None:
    """Memory given back and loaded again is a reload, although it does not exceed the old peak."""
    assert facts_of((0, 900), (1, 900), (2, 300), (3, 500), (4, 500))[2:] == [(Phase.LOADED, 2)]


def test_an_unknown_amount_is_no_movement() -> None:
    """A task that NVML lists without its bytes keeps its last known amount."""
    tasks, _ = table.take_listing(
        Tasks(), Listing(frozenset({GPU}), (ListedProcess(KEY, 300 * MIB),)), 0, RULES
    )
    tasks, facts = table.take_listing(tasks, Listing(frozenset({GPU}), (ListedProcess(KEY, None),)), 1, RULES)
    assert [fact.phase for fact in facts] == [Phase.LOADED]
    assert tasks.lives[KEY].used_bytes == 300 * MIB


def test_a_gpu_that_could_not_be_read_ends_nothing() -> None:
    """An NVML error is no proof of death: tasks on an unread GPU live on."""
    tasks, _ = table.take_listing(Tasks(), Listing(frozenset({GPU}), (ListedProcess(KEY, 1),)), 0, RULES)
    tasks, facts = table.take_listing(tasks, Listing(frozenset({OTHER}), ()), 1, RULES)
    assert facts == ()
    assert KEY in tasks.lives


def test_an_announced_task_starts_once_and_waits_to_be_listed() -> None:
    """The announcement starts the task.

    A process list without the task ends nothing, and one with it starts nothing.
    """
    tasks, facts = table.announce(Tasks(), KEY, OWNER, 0)
    assert [(fact.phase, fact.life.owner) for fact in facts] == [(Phase.STARTED, OWNER)]
    for seen in ((), (ListedProcess(KEY, 300 * MIB),)):
        tasks, facts = table.take_listing(tasks, Listing(frozenset({GPU}), seen), 0.1, RULES)
        assert facts == ()
    assert table.announce(tasks, KEY, OWNER, 0.2)[1] == ()


def test_a_process_that_returns_to_a_gpu_starts_with_the_next_ordinal() -> None:
    """A second context of a living process is a second fact, so its id differs from the first one's."""
    assert facts_of((0, 300), (1, None), (2, 300), (3, 300), (4, None)) == [
        (Phase.STARTED, 1),
        (Phase.EXITED, 1),
        (Phase.STARTED, 2),
        (Phase.LOADED, 1),
        (Phase.EXITED, 2),
    ]


def test_the_announced_owner_outranks_the_kernels_and_fills_what_it_lacks() -> None:
    """A cgroup gives the pod, and the hook gives pod and container. A later announcement is applied too."""
    by_cgroup = ListedProcess(KEY, 1, Owner(PodUid("pod")))
    tasks, _ = table.take_listing(Tasks(), Listing(frozenset({GPU}), (by_cgroup,)), 0, RULES)
    assert tasks.lives[KEY].owner == Owner(PodUid("pod"))
    assert table.own(tasks, ONE, OWNER).lives[KEY].owner == OWNER


def test_a_restored_table_repeats_no_fact_and_counts_on() -> None:
    """After a restart a known task does not start or load again, and its exit has an event."""
    tasks, _ = table.take_listing(
        Tasks(), Listing(frozenset({GPU}), (ListedProcess(KEY, 300 * MIB),)), 0, RULES
    )
    tasks, _ = table.take_listing(
        tasks, Listing(frozenset({GPU}), (ListedProcess(KEY, 300 * MIB),)), 1, RULES
    )
    again = table.restored(tasks.lives.values(), (), now_s=0)
    again, facts = table.take_listing(
        again, Listing(frozenset({GPU}), (ListedProcess(KEY, 300 * MIB),)), 5, RULES
    )
    assert facts == ()
    assert [fact.phase for fact in table.end(again, ONE, 6)[1]] == [Phase.EXITED]


def test_a_reload_rises_by_a_tenth_of_the_peak() -> None:
    """A large task that rises by less than a tenth of its peak stays loaded; from a tenth on it loads again."""
    large = ((0, 10_000), (1, 10_000), (2, 8_000))
    assert facts_of(*large, (3, 8_900), (9, 8_900))[2:] == []
    assert facts_of(*large, (3, 9_100), (4, 9_100))[2:] == [(Phase.LOADED, 2)]


def test_a_counted_peak_raises_the_peak_alone() -> None:
    """The peak that a program counted stands in its task, and changes neither memory nor phase."""
    tasks, _ = table.take_listing(Tasks(), Listing(frozenset({GPU}), (ListedProcess(KEY, 5),)), 0, RULES)
    higher = table.count(tasks, KEY, 9)
    assert higher.lives[KEY] == structs.replace(tasks.lives[KEY], peak_bytes=9)
    assert table.count(higher, KEY, 7) == higher
    assert table.count(tasks, TaskKey(TWO, GPU), 9) == tasks


KEYS = [TaskKey(process, gpu) for process in (ONE, TWO) for gpu in (GPU, OTHER)]
SEEN = st.lists(st.sampled_from(KEYS), unique=True).flatmap(
    lambda keys: st.tuples(
        *(
            st.builds(ListedProcess, st.just(key), st.one_of(st.none(), st.integers(0, 400 * MIB)))
            for key in keys
        )
    )
)
LISTINGS = st.builds(Listing, st.frozensets(st.sampled_from([GPU, OTHER])), SEEN).map(
    lambda listing: replace(
        listing, processes=tuple(each for each in listing.processes if each.key.gpu in listing.gpus)
    )
)
EVENTS = st.one_of(LISTINGS, LISTINGS, st.sampled_from(KEYS), st.sampled_from([ONE, TWO]))
STEPS = st.lists(st.tuples(st.floats(0, 3), EVENTS), max_size=40)


def apply(tasks: Tasks, event: Listing | TaskKey | ProcessKey, now_s: float) -> table.Step:
    """Apply process lists, an announcement, or a death."""
    if isinstance(event, Listing):
        return table.take_listing(tasks, event, now_s, RULES)
    if isinstance(event, TaskKey):
        return table.announce(tasks, event, OWNER, now_s)
    return table.end(tasks, event, now_s)


@given(STEPS)
def test_every_life_is_started_then_loaded_then_exited(steps: list[tuple[float, object]]) -> None:
    """Each life has one `started`, any number of `loaded` with rising ordinals, then at most one `exited`."""
    tasks, now_s = Tasks(), 0.0
    living: dict[TaskKey, int] = {}  # the last ordinal of `loaded`, or -1 before the first
    loads: Counter[TaskKey] = Counter()
    for wait_s, event in steps:
        now_s += wait_s
        assert isinstance(event, Listing | TaskKey | ProcessKey)
        tasks, facts = apply(tasks, event, now_s)
        for fact in facts:
            key = fact.life.key
            match fact.phase:
                case Phase.STARTED:
                    assert key not in living
                    living[key] = -1
                case Phase.LOADED:
                    assert key in living
                    loads[key] += 1
                    assert fact.ordinal == loads[key]
                case Phase.EXITED:
                    del living[key]
                case Phase.LOADING:
                    raise AssertionError("no fact is of the phase loading")
        assert living.keys() == tasks.lives.keys()


@given(STEPS)
def test_the_same_event_again_yields_no_fact(steps: list[tuple[float, object]]) -> None:
    """A replayed process list, announcement of a living process, or death changes nothing at the same moment."""
    tasks, now_s = Tasks(), 0.0
    for wait_s, event in steps:
        now_s += wait_s
        assert isinstance(event, Listing | TaskKey | ProcessKey)
        tasks, _ = apply(tasks, event, now_s)
        again, facts = apply(tasks, event, now_s)
        assert facts == ()
        assert again.lives == tasks.lives


@given(STEPS)
def test_no_memory_is_invented(steps: list[tuple[float, object]]) -> None:
    """A task has the bytes of its last sample, and its peak is at least every sample of its life."""
    tasks, now_s = Tasks(), 0.0
    for wait_s, event in steps:
        now_s += wait_s
        assert isinstance(event, Listing | TaskKey | ProcessKey)
        tasks, _ = apply(tasks, event, now_s)
        for each in event.processes if isinstance(event, Listing) else ():
            if each.key.process in tasks.dead:
                continue  # no process comes back; another one with its pid has another start time
            life = tasks.lives[each.key]
            assert each.used_bytes in (None, life.used_bytes)
            assert life.peak_bytes >= life.used_bytes


def test_a_pid_that_is_used_again_is_another_task() -> None:
    """A new process with the pid of a dead one has a life of its own, also where no death was reported."""
    successor = TaskKey(ProcessKey(ONE.pid, ONE.start_ticks + 1), GPU)
    tasks, _ = table.take_listing(Tasks(), Listing(frozenset({GPU}), (ListedProcess(KEY, 500),)), 0, RULES)
    seen = Listing(frozenset({GPU}), (ListedProcess(successor, 300),))
    tasks, facts = table.take_listing(tasks, seen, 1, RULES)
    assert [(fact.phase, fact.life.key, fact.ordinal) for fact in facts] == [
        (Phase.EXITED, KEY, 1),
        (Phase.STARTED, successor, 1),
    ]
    tasks, facts = table.end(tasks, ONE, 2)  # the death of the first one, reported late
    assert facts == ()
    assert tasks.lives[successor].peak_bytes == 300
