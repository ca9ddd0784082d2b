"""Reports in, and what the ledger expects of best-effort pods out."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from placer.core.booking import Booking
from placer.core.learned import AGAIN_S, Learned
from placer.core.ledger import ASSUMED_BYTES, REMEMBERED_PODS, Ledger
from placer.core.owner_record import FORGET_S, OwnerRecord, PeakSample
from plimsoll.events import Phase, Report, Task
from plimsoll.ids import NodeName, PodUid
from plimsoll.part.times import rfc3339
from plimsoll.quantity import GIB, MIB
from tests.placer.core.worlds import gpu, state, task

NOW_S = 1.8e9
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)


def booked(*pods: str, owner: str = "Job team/train") -> Ledger:
    """A ledger with these pods of one owner."""
    ledger = Ledger()
    for pod in pods:
        ledger.restore(Booking(PodUid(pod), NodeName("n"), (), owner))
    return ledger


def phased(phase: Phase, pod: str, peak_bytes: int, pid: int = 1) -> Task:
    """A task in some phase."""
    return msgspec.structs.replace(task(pod, "g", peak_bytes), phase=phase, pid=pid)


def event(of: Task, *beside: Task, after_s: float = 0.0) -> Report:
    """The event about a task, this long after the beginning."""
    living = beside if of.phase is Phase.EXITED else (*beside, of)
    reported = state("n", gpu("g", *living))
    time = rfc3339(BEGAN + timedelta(seconds=after_s))
    return Report(state=msgspec.structs.replace(reported, time=time), task=of)


def test_a_loaded_pod_teaches_what_its_owners_pods_need() -> None:
    """A measured peak is expected of the owner's next pod, also one below what is assumed of all."""
    ledger = booked("a")
    Learned(ledger).observe(state("n", gpu("g", task("a", "g", 300 * MIB))), NOW_S)
    assert ledger.best_effort_bytes("Job team/train") == 300 * MIB


def test_the_tasks_of_a_pod_count_together() -> None:
    """Two processes of one pod on a GPU hold their memory at the same time."""
    ledger = booked("a")
    Learned(ledger).observe(state("n", gpu("g", task("a", "g", 2 * GIB), task("a", "g", 3 * GIB))), NOW_S)
    assert ledger.learned_bytes("Job team/train") == 5 * GIB


@pytest.mark.parametrize("phase", [Phase.STARTED, Phase.LOADING])
def test_a_pod_that_loads_makes_no_other_seem_small(phase: Phase) -> None:
    """Before its load a pod counts only if it needs more than is expected."""
    ledger = booked("a")
    learned = Learned(ledger)
    learned.observe(state("n", gpu("g", phased(phase, "a", 10 * MIB))), NOW_S)
    assert ledger.best_effort_bytes("Job team/train") == ASSUMED_BYTES
    learned.observe(state("n", gpu("g", phased(phase, "a", 5 * GIB))), NOW_S)
    assert ledger.best_effort_bytes("Job team/train") == 5 * GIB


def test_an_exit_teaches_the_peak_of_a_task_that_no_report_showed() -> None:
    """A task that lives between two reports has its peak in the event of its exit; its neighbour's counts beside."""
    ledger = booked("a")
    Learned(ledger).take(event(phased(Phase.EXITED, "a", 2 * GIB), task("a", "g", 4 * GIB)), NOW_S)
    assert ledger.learned_bytes("Job team/train") == 6 * GIB


def test_an_exit_counts_after_its_pod_is_gone() -> None:
    """The event of an exit may come after the API server forgot the pod."""
    ledger = booked("a")
    ledger.forget(PodUid("a"))
    Learned(ledger).take(event(phased(Phase.EXITED, "a", 2 * GIB)), NOW_S)
    assert ledger.learned_bytes("Job team/train") == 2 * GIB


def test_pods_that_left_are_remembered_up_to_a_bound() -> None:
    """The owners of pods that left are known for a while, and their number is bounded."""
    ledger = booked("first", *(f"pod-{number}" for number in range(REMEMBERED_PODS)))
    assert ledger.owner(PodUid("first")) is None
    assert ledger.owner(PodUid("pod-0")) == "Job team/train"
    assert len(ledger._owners) == REMEMBERED_PODS


def test_tasks_of_nobody_teach_nothing() -> None:
    """A process without a pod, or of a pod that was never booked, has no owner."""
    ledger = booked()
    learned = Learned(ledger)
    learned.observe(state("n", gpu("g", task(None, "g", GIB), task("stranger", "g", GIB))), NOW_S)
    learned.take(event(phased(Phase.EXITED, "stranger", GIB)), NOW_S)
    assert not learned.records
    assert not learned.take_changed()


def test_the_load_time_is_that_from_start_to_loaded() -> None:
    """Both moments are of the node's clock. A reload has no start, and is no load."""
    learned = Learned(booked("a"))
    learned.take(event(phased(Phase.STARTED, "a", 0)), NOW_S)
    learned.take(event(phased(Phase.LOADED, "a", GIB), after_s=42), NOW_S)
    learned.take(event(phased(Phase.LOADED, "a", GIB), after_s=999), NOW_S)
    found = learned.expectation("Job team/train", NOW_S)
    assert found is not None
    assert found.load_s == 42


def test_a_clock_that_was_set_teaches_no_load_time() -> None:
    """A load that would have ended before it began, or years later, is not believed."""
    learned = Learned(booked("a"))
    for after_s in (-5.0, 9e7):
        learned.take(event(phased(Phase.STARTED, "a", 0)), NOW_S)
        learned.take(event(phased(Phase.LOADED, "a", GIB), after_s=after_s), NOW_S)
    assert learned.expectation("Job team/train", NOW_S) is None


def test_events_that_come_again_change_nothing() -> None:
    """A placer that starts is given events that it took in before."""
    learned = Learned(booked("a"))
    events = [event(phased(Phase.STARTED, "a", 0)), event(phased(Phase.LOADED, "a", GIB), after_s=7)]
    events += [event(phased(Phase.EXITED, "a", 2 * GIB), after_s=9)]
    for one in events:
        learned.take(one, NOW_S)
    before, _ = dict(learned.records), learned.take_changed()
    for one in events[1:]:
        learned.take(one, NOW_S)
    assert learned.records == before
    assert not learned.take_changed()


def test_a_resting_pod_is_written_once_an_hour() -> None:
    """Each heartbeat shows the same peak, and a store must not be written for each."""
    learned = Learned(booked("a"))
    resting = state("n", gpu("g", task("a", "g", GIB)))
    learned.observe(resting, NOW_S)
    assert learned.take_changed() == {"Job team/train"}
    learned.observe(resting, NOW_S + AGAIN_S / 2)
    assert not learned.take_changed()
    learned.observe(resting, NOW_S + AGAIN_S)
    assert learned.take_changed() == {"Job team/train"}


def test_owners_long_unseen_are_forgotten_before_those_still_seen() -> None:
    """The number of owners is bounded, as every Job is a new one. The most recently seen stay."""
    ledger = Ledger()
    learned = Learned(ledger, owners_at_most=1000)
    ledger.restore(Booking(PodUid("kept"), NodeName("n"), (), "kept"))
    for number in range(3000):
        ledger.restore(Booking(PodUid(f"pod-{number}"), NodeName("n"), (), f"job-{number}"))
        kept = (task("kept", "g", GIB),) if number % 100 == 0 else ()
        learned.observe(state("n", gpu("g", *kept, task(f"pod-{number}", "g", GIB))), NOW_S + number)
    assert len(learned.records) == len(ledger._learned_bytes) == 1000
    assert ledger.learned_bytes("kept") == ledger.learned_bytes("job-2999") == GIB
    assert ledger.learned_bytes("job-0") is None
    assert "job-0" in learned.take_changed()


def test_an_owner_without_pods_is_forgotten_in_the_end() -> None:
    """A sample that is a month old no longer counts, here and in the store."""
    ledger = booked("a")
    learned = Learned(ledger)
    learned.observe(state("n", gpu("g", task("a", "g", 6 * GIB))), NOW_S)
    learned.take_changed()
    learned.forget_old(NOW_S + FORGET_S - 1)
    assert ledger.learned_bytes("Job team/train") == 6 * GIB
    learned.forget_old(NOW_S + FORGET_S)
    assert ledger.learned_bytes("Job team/train") is None
    assert learned.take_changed() == {"Job team/train"}


def test_what_was_stored_counts_beside_what_was_seen() -> None:
    """A placer that starts learns from reports at once, and from the store once that answers; the larger counts."""
    ledger = booked("a")
    learned = Learned(ledger)
    learned.observe(state("n", gpu("g", task("a", "g", 2 * GIB))), NOW_S)
    learned.take_changed()
    stored = {
        "Job team/train": OwnerRecord((PeakSample("k", 6 * GIB, NOW_S),)),
        "Job team/other": OwnerRecord((PeakSample("k", 3 * GIB, NOW_S),)),
        "Job team/gone": OwnerRecord((PeakSample("k", 3 * GIB, NOW_S - FORGET_S),)),
    }
    learned.restore(stored, NOW_S)
    assert ledger.learned_bytes("Job team/train") == 6 * GIB
    assert ledger.learned_bytes("Job team/other") == 3 * GIB
    assert learned.records.keys() == {"Job team/train", "Job team/other"}
    assert learned.take_changed() == {"Job team/train", "Job team/gone"}, "the others are stored as they are"


def test_the_store_is_bounded_too() -> None:
    """The owners that were seen last are kept of too many stored ones, and the others are named for their removal."""
    learned = Learned(Ledger(), owners_at_most=10)
    stored = {f"job-{number}": OwnerRecord((PeakSample("k", GIB, NOW_S - number),)) for number in range(30)}
    learned.restore(stored, NOW_S)
    assert learned.records.keys() == {f"job-{number}" for number in range(10)}
    assert learned.take_changed() == {f"job-{number}" for number in range(10, 30)}
