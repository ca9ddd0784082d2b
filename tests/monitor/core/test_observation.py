"""A round takes in announcements, process lists and deaths."""

from hypothesis import given
from hypothesis import strategies as st

from monitor.core.lifecycle import LoadingRules, TaskKey
from monitor.core.observation import (
    JOURNAL_START,
    Findings,
    JournalPosition,
    Observation,
    is_new,
    is_urgent,
    observe,
)
from monitor.core.tasks import ListedProcess, Listing, Tasks
from plimsoll.broker.announcements import Announcement
from plimsoll.events import Phase
from plimsoll.ids import ProcessKey
from tests.announcements import GPU, announcement

RULES = LoadingRules(settle_s=1.0, tolerance_bytes=8, reload_bytes=64)
PROCESS = ProcessKey(10, 100)


def announced(seq: int, what: str, pid: int = 10, *, day: int = 1) -> Announcement:
    """An announcement about a process."""
    time = f"2026-01-{day:02d}T00:00:00.{seq:06d}Z"
    return announcement(what, seq=seq, pid=pid, start_ticks=100, time=time)


def taken(*announcements: Announcement, before: Findings | None = None) -> Findings:
    """The findings of a round with only announcements."""
    before = before or Findings(Tasks(), JOURNAL_START)
    return observe(before.tasks, before.position, Observation(announcements), 0, RULES)


def listed(before: Findings, now_s: float, used_bytes: int, deaths: tuple[ProcessKey, ...] = ()) -> Findings:
    """The findings of a round whose list has the process."""
    listing = Listing(frozenset({GPU}), (ListedProcess(TaskKey(PROCESS, GPU), used_bytes),))
    return observe(before.tasks, before.position, Observation((), listing, deaths), now_s, RULES)


def test_a_process_that_came_and_went_between_two_rounds_has_both_events() -> None:
    """A process that came and went between two rounds has a start and an end, though no process list shows it."""
    findings = taken(announced(1, "hello"), announced(2, "context"), announced(3, "exited"))
    assert [fact.phase for fact in findings.facts] == [Phase.STARTED, Phase.EXITED]
    assert findings.tasks == Tasks(dead={PROCESS: frozenset({GPU})})


def test_news_alone_asks_for_a_round() -> None:
    """A context, a denial, and a death that is not known yet are urgent; a hello and a known death are not."""
    living = taken(announced(1, "context")).tasks
    assert all(is_urgent(announced(2, what), living, ()) for what in ("context", "denied", "exited"))
    assert not is_urgent(announced(2, "hello"), living, ())
    assert not is_urgent(announced(2, "exited"), living, {PROCESS})
    dead = taken(announced(1, "context"), announced(2, "exited")).tasks
    assert not is_urgent(announced(3, "exited"), dead, ())


def test_a_list_says_nothing_of_a_process_that_died_while_it_was_read() -> None:
    """Another process that got its pid and took memory meanwhile raises no peak and loads nothing of the dead one."""
    loading = listed(Findings(Tasks(), JOURNAL_START), 0, 100)
    findings = listed(loading, 2, 100_000, deaths=(PROCESS,))
    assert [(fact.phase, fact.life.peak_bytes) for fact in findings.facts] == [(Phase.EXITED, 100)]
    assert findings.tasks.lives == {}
    assert listed(findings, 3, 100_000).facts == ()


def test_a_replayed_journal_yields_no_facts() -> None:
    """Announcements that the broker sends again cause no second fact, also for processes long forgotten."""
    journal = (
        announced(1, "context"),
        announced(2, "denied"),
        announced(3, "unknown"),
        announced(4, "exited"),
    )
    first = taken(*journal)
    assert [fact.phase for fact in first.facts] == [Phase.STARTED, Phase.EXITED]
    assert (len(first.limits), len(first.notes)) == (1, 1)
    again = taken(*journal, before=first)
    assert (again.facts, again.limits, again.notes) == ((), (), ())
    assert again.position == first.position == JournalPosition(4, journal[-1].time)


def test_a_journal_that_begins_anew_is_taken_in() -> None:
    """Announcements of a new journal count: its numbers begin at 1 again, with later times."""
    position = JournalPosition(900, announced(900, "hello").time)
    assert not is_new(announced(899, "hello"), position)
    assert is_new(announced(1, "hello", day=2), position)


def test_what_a_dead_process_is_said_to_begin_is_no_fact() -> None:
    """Announcements and process lists that name a process after its death change nothing."""
    listed = Observation(listing=Listing(frozenset({GPU}), (ListedProcess(TaskKey(PROCESS, GPU), 5),)))
    begun = observe(Tasks(), JOURNAL_START, listed, 0, RULES)
    ended = observe(begun.tasks, JOURNAL_START, Observation(deaths=(PROCESS,)), 0, RULES)
    assert [fact.phase for fact in (*begun.facts, *ended.facts)] == [Phase.STARTED, Phase.EXITED]
    late = taken(announced(1, "hello"), announced(2, "context"), announced(3, "exited"), before=ended)
    again = observe(late.tasks, late.position, listed, 0, RULES)
    assert (late.facts, again.facts, again.tasks) == ((), (), ended.tasks)


def test_a_task_that_is_announced_after_its_end_is_a_fact_once() -> None:
    """A second GPU of a process that died meanwhile has a start and an end, and a repetition has none."""
    listed = Observation(listing=Listing(frozenset({GPU}), (ListedProcess(TaskKey(PROCESS, GPU), 5),)))
    begun = observe(Tasks(), JOURNAL_START, listed, 0, RULES)
    ended = observe(begun.tasks, JOURNAL_START, Observation(deaths=(PROCESS,)), 0, RULES)
    late = announcement("context", seq=1, pid=PROCESS.pid, start_ticks=PROCESS.start_ticks, gpu="GPU-b")
    found = taken(late, before=ended)
    assert [(fact.phase, fact.life.key.gpu) for fact in found.facts] == [
        (Phase.STARTED, "GPU-b"),
        (Phase.EXITED, "GPU-b"),
    ]
    again = observe(found.tasks, JOURNAL_START, Observation((late,)), 0, RULES)
    assert (again.facts, found.tasks.lives) == ((), {})


SPOKEN = st.sampled_from(["hello", "context", "denied", "unknown", "exited"])
JOURNALS = st.lists(st.tuples(SPOKEN, st.integers(10, 12)), max_size=20).map(
    lambda spoken: [announced(seq, what, pid) for seq, (what, pid) in enumerate(spoken, start=1)]
)


@given(JOURNALS, st.data())
def test_delivery_with_repetitions_is_delivery_once(journal: list[Announcement], data: st.DataObject) -> None:
    """For any repetitions after lost acknowledgements the facts are those of one delivery."""
    once = taken(*journal)
    findings, facts, limits = Findings(Tasks(), JOURNAL_START), list[object](), list[Announcement]()
    position = 0
    while position < len(journal):
        start = data.draw(st.integers(0, position))
        end = data.draw(st.integers(position + 1, len(journal)))
        findings = taken(*journal[start:end], before=findings)
        facts += findings.facts
        limits += findings.limits
        position = end
    assert (tuple(facts), tuple(limits)) == (once.facts, once.limits)
    assert (findings.tasks, findings.position) == (once.tasks, once.position)
