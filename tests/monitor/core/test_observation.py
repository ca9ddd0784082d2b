"""One turn: announcements, a look, deaths."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from monitor.core.lifecycle import Rules, TaskKey
from monitor.core.observation import START, Heard, Mark, Outcome, is_new, turn
from monitor.core.tasks import Look, Seen, Tasks
from plimsoll.broker.wire import Announcement
from plimsoll.events import Phase
from plimsoll.ids import ContainerName, GpuUuid, PodUid, ProcessKey

RULES = Rules(settle_s=1.0, tolerance_bytes=8, reload_bytes=64)
GPU = GpuUuid("GPU-a")
PROCESS = ProcessKey(10, 100)


def announced(seq: int, what: str, pid: int = 10, *, day: int = 1) -> Announcement:
    """What the broker says of a process."""
    return Announcement(
        seq=seq,
        what=what,
        pod=PodUid("pod"),
        container=ContainerName("main"),
        pid=pid,
        start_ticks=100,
        time=f"2026-01-{day:02d}T00:00:00.{seq:06d}Z",
        gpu=None if what in ("hello", "exited") else GPU,
    )


def taken(*announcements: Announcement, before: Outcome | None = None) -> Outcome:
    """The outcome of a turn with only announcements."""
    before = before or Outcome(Tasks(), START)
    return turn(before.tasks, before.mark, Heard(announcements), 0, RULES)


def test_a_process_that_came_and_went_between_two_turns_is_told_whole() -> None:
    """Start and end in one turn, in their order, although no look ever saw it."""
    outcome = taken(announced(1, "hello"), announced(2, "context"), announced(3, "exited"))
    assert [fact.phase for fact in outcome.facts] == [Phase.STARTED, Phase.EXITED]
    assert outcome.tasks == Tasks()


def test_a_replayed_journal_tells_nothing() -> None:
    """The broker sends again what it did not hear acknowledged, also of processes long forgotten."""
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
    assert again.mark == first.mark == Mark(4, journal[-1].time)


def test_a_journal_that_begins_anew_is_heard() -> None:
    """Numbers from 1 again, later than the mark: the broker's directory was emptied, its word still counts."""
    mark = Mark(900, announced(900, "hello").time)
    assert not is_new(announced(899, "hello"), mark)
    assert is_new(announced(1, "hello", day=2), mark)


def test_a_look_and_a_death_in_one_turn_end_with_the_death() -> None:
    """A look just before the death shows a living process: it is told loaded, if it was, and then exited."""
    seen = Seen(TaskKey(PROCESS, GPU), 5)
    outcome = turn(Tasks(), START, Heard(look=Look(frozenset({GPU}), (seen,)), dead=(PROCESS,)), 0, RULES)
    assert [fact.phase for fact in outcome.facts] == [Phase.STARTED, Phase.EXITED]
    assert outcome.tasks == Tasks()


SPOKEN = st.sampled_from(["hello", "context", "denied", "unknown", "exited"])
JOURNALS = st.lists(st.tuples(SPOKEN, st.integers(10, 12)), max_size=20).map(
    lambda spoken: [announced(seq, what, pid) for seq, (what, pid) in enumerate(spoken, start=1)]
)


@given(JOURNALS, st.data())
def test_delivery_with_repetitions_is_delivery_once(journal: list[Announcement], data: st.DataObject) -> None:
    """However the broker repeats itself after lost acknowledgements, the same is told as by one delivery."""
    once = taken(*journal)
    outcome, facts, limits = Outcome(Tasks(), START), list[object](), list[Announcement]()
    position = 0
    while position < len(journal):
        start = data.draw(st.integers(0, position))
        end = data.draw(st.integers(position + 1, len(journal)))
        outcome = taken(*journal[start:end], before=outcome)
        facts += outcome.facts
        limits += outcome.limits
        position = end
    assert (tuple(facts), tuple(limits)) == (once.facts, once.limits)
    assert replace(outcome, facts=(), limits=(), notes=()) == replace(once, facts=(), limits=(), notes=())
