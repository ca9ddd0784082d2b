"""The events of a round, and their numbers."""

from monitor.core.conditions import ConditionChanges
from monitor.core.entries import Entry
from monitor.core.lifecycle import Owner, TaskKey, begin, finish
from monitor.core.node_state import Thresholds
from monitor.core.observation import JOURNAL_START, Findings
from monitor.core.reports import NO_CHANGES, Batch, Identity, Reports
from monitor.core.tasks import Tasks
from plimsoll.envelope import decode_event, decode_report
from plimsoll.ids import ContainerName, GpuUuid, NodeName, PodUid, ProcessKey

NODE = NodeName("node-1")
LIFE = begin(
    TaskKey(ProcessKey(5, 6), GpuUuid("GPU-a")),
    Owner(PodUid("pod"), ContainerName("main")),
    100,
    0.0,
    before=None,
).life
RUNNING = Findings(Tasks(lives={LIFE.key: LIFE}), JOURNAL_START)
IDLE = Findings(Tasks(), JOURNAL_START)


def reports(boot_id: str = "boot") -> Reports:
    """The reports of a run in epoch 3."""
    return Reports(NODE, Identity(boot_id, 3), Thresholds(idle_pct=10, memory_bytes=100, heartbeat_s=60))


def batch(of: Reports, findings: Findings, now_s: float = 100.0) -> Batch:
    """The events of a round on a node without GPUs."""
    return of.batch(findings, (), now_s, "2026-01-01T00:00:00Z")


def orders(entries: tuple[Entry, ...]) -> list[tuple[int, int]]:
    """(`epoch`, `seq`) of each report."""
    return [decode_report(entry.body).state.order for entry in entries if entry.carries_state]


def test_a_round_that_was_not_stored_is_numbered_again_the_same() -> None:
    """Only `stored` advances the numbers, so a disk failure leaves no gap and uses no number twice."""
    ours = reports()
    first = batch(ours, IDLE)
    assert batch(ours, IDLE) == first
    assert orders(first.entries) == [(3, 1)]
    ours.stored(first, {})
    assert batch(ours, IDLE).entries == ()
    assert orders(batch(ours, IDLE, now_s=160.0).entries) == [(3, 2)]


def test_a_report_that_replaces_an_unsent_state_takes_its_number() -> None:
    """A state event that nobody will see leaves no gap, whatever replaces it; a sent one keeps its number."""
    ours = reports()
    ours.stored(batch(ours, IDLE), {})
    due_s, exited = 160.0, Findings(Tasks(), JOURNAL_START, facts=(finish(LIFE, 1.0),))
    again = ours.batch(IDLE, (), due_s, "2026-01-01T00:01:00Z", state_waits=True)
    assert (again.replaces_state, orders(again.entries)) == (True, [(3, 1)])
    again = ours.batch(exited, (), due_s, "2026-01-01T00:01:00Z", state_waits=True)
    assert (again.replaces_state, orders(again.entries)) == (True, [(3, 1)])
    assert orders(batch(ours, IDLE, due_s).entries) == [(3, 2)]
    ours.stored(again, {})
    assert orders(batch(ours, exited, due_s).entries) == [(3, 2)]
    assert not ours.batch(IDLE, (), due_s, "2026-01-01T00:01:00Z", state_waits=True).replaces_state


def test_a_round_that_a_new_epoch_overtakes_leaves_its_numbers_alone() -> None:
    """The first report of a new epoch has the number 1, also where a round was being stored when it began."""
    ours = reports()
    first = batch(ours, IDLE)
    ours.begin_epoch(8)
    ours.stored(first, {})
    assert orders(batch(ours, IDLE).entries) == [(8, 1)]


def test_a_new_epoch_begins_with_a_state() -> None:
    """The first round of an epoch publishes the unchanged state, as readers do not know the new epoch yet."""
    ours = reports()
    ours.stored(batch(ours, IDLE), {})
    ours.begin_epoch(8)
    assert (ours.epoch, orders(batch(ours, IDLE).entries)) == (8, [(8, 1)])


def test_exits_of_a_former_boot_have_the_ids_of_that_boot() -> None:
    """An exit published before and after a reboot has one id, and is published once."""
    exited = finish(LIFE, 1.0)
    before, after = reports("old"), reports("new")
    after.add_former_boot("old", (exited,))
    [ended] = batch(before, Findings(Tasks(), JOURNAL_START, facts=(exited,))).entries
    again = batch(after, IDLE)
    assert [entry.id for entry in again.entries] == [ended.id]
    after.stored(again, {})
    assert batch(after, IDLE).entries == ()


def test_each_outage_of_the_broker_names_each_hooked_task_once() -> None:
    """Each outage of the broker names each hooked task once, under an id of its own."""
    ours = reports()
    ours.stored(batch(ours, RUNNING), RUNNING.tasks.lives)
    ids = []
    for time in ("2026-01-01T00:00:00Z", "2026-01-01T01:00:00Z"):
        ours.broker_away(time)
        outage = batch(ours, RUNNING)
        assert (outage.limit_events, outage.unwatched) == (("unenforced",), (LIFE.key,))
        ids += [decode_event(entry.body).id for entry in outage.entries if entry.limit]
        ours.stored(outage, RUNNING.tasks.lives)
        assert batch(ours, RUNNING).limit_events == ()
        ours.broker_away(None)
        assert batch(ours, RUNNING).limit_events == ()
    assert len(set(ids)) == 2


def test_the_brokers_absence_and_short_memory_are_reported_at_once() -> None:
    """Both are in the state, so a reader needs no other event to know them, and none to know their end."""
    ours = reports()
    ours.stored(batch(ours, IDLE), {})
    short = ConditionChanges(short={LIFE.key.gpu: "2026-01-01T00:00:00Z"})

    def reported(changes: ConditionChanges = NO_CHANGES) -> tuple[object, object]:
        made = ours.batch(IDLE, (), 100.0, "2026-01-01T00:00:00Z", changes=changes)
        [entry] = made.entries
        ours.stored(made, {})
        state = decode_report(entry.body).state
        assert ours.batch(IDLE, (), 100.0, "2026-01-01T00:00:00Z", changes=changes).entries == ()
        return state.broker_away_since, state.short

    ours.broker_away("2026-01-01T00:00:01Z")
    assert reported() == ("2026-01-01T00:00:01Z", {})
    assert reported(short) == ("2026-01-01T00:00:01Z", short.short)
    ours.broker_away(None)
    assert reported(short) == (None, short.short)
    assert reported() == (None, {})


def test_each_report_names_the_heartbeat() -> None:
    """Task and state events carry the longest time until the next report, so that readers know silence from rest."""
    exited = Findings(Tasks(), JOURNAL_START, facts=(finish(LIFE, 1.0),))
    for findings in (exited, IDLE):
        [entry] = batch(reports(), findings).entries
        assert decode_report(entry.body).state.heartbeat_s == 60
