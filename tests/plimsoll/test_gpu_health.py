"""Health of GPUs: which conditions come, when they end, and that each change is reported once."""

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.gpu_events import HealthClass
from plimsoll.gpu_health import (
    DriverView,
    GpuRecords,
    HealthTransition,
    after_boot,
    restored,
    unhealthy,
    update,
)
from plimsoll.ids import GpuUuid
from plimsoll.nvml.readings import FailingGpu, GpuReading, HealthReading, XidSeen
from plimsoll.xids import CATALOGUE, xid

A, B = GpuUuid("GPU-a"), GpuUuid("GPU-b")
HOLD_S = 60.0
WELL = HealthReading(energy_mj=1000)


def reading(uuid: GpuUuid) -> GpuReading:
    """A GPU that answered."""
    return GpuReading(uuid, [A, B].index(uuid), "L4", total_bytes=24, reserved_bytes=0, used_bytes=0)


class Node:
    """The records of a node of two GPUs, and the changes so far as (GPU, class, texts)."""

    def __init__(self) -> None:
        self.records: GpuRecords = {}
        self.now_s = 0.0
        self.changes: list[HealthTransition] = []
        self.see()

    def see(
        self,
        *xids: XidSeen,
        figures: HealthReading | None = None,
        lost: FailingGpu | None = None,
        listed: tuple[GpuUuid, ...] = (A, B),
        session: int = 1,
        is_away: bool = False,
    ) -> HealthClass:
        """A second later, one round; `figures` are those of A. Returns the class of A."""
        self.now_s += 1
        failing = (lost,) if lost is not None else ()
        present = tuple(reading(one) for one in listed if lost is None or one != lost.uuid)
        read = {} if figures is None else {A: figures}
        seen = DriverView(self.now_s, f"t{self.now_s:g}", present, failing, read, xids, session)
        if is_away:
            seen = DriverView(self.now_s, f"t{self.now_s:g}")
        self.records, changes = update(self.records, seen, HOLD_S)
        self.changes += changes
        return self.records[A].health.health if A in self.records else HealthClass.HEALTHY

    @property
    def kinds(self) -> list[str]:
        """The faults of GPU A."""
        return [one.what for one in self.records[A].conditions]


def test_a_fatal_error_stays_until_the_gpu_was_reset() -> None:
    """Time heals no fatal XID; a lower energy counter shows a reset, and then the GPU is healthy."""
    node = Node()
    assert node.see(XidSeen(A, 48), figures=WELL) is HealthClass.FATAL
    node.now_s += 100 * HOLD_S
    assert node.see(figures=replace(WELL, energy_mj=2000)) is HealthClass.FATAL
    assert node.see(figures=replace(WELL, energy_mj=5)) is HealthClass.HEALTHY
    assert [(one.before, one.health.health) for one in node.changes] == [
        (HealthClass.HEALTHY, HealthClass.FATAL),
        (HealthClass.FATAL, HealthClass.HEALTHY),
    ]
    assert unhealthy(node.records) == ()


def test_a_driver_that_was_loaded_anew_has_reset_its_gpus() -> None:
    """A card without an energy counter is healthy again in the next session with the driver."""
    node = Node()
    node.see(XidSeen(A, 119), figures=HealthReading())
    assert node.see(is_away=True) is HealthClass.FATAL
    assert node.see(figures=HealthReading(), session=2) is HealthClass.HEALTHY


def test_a_lost_gpu_is_fatal_until_it_answers() -> None:
    """A GPU off the bus is lost, with or without an entry in the driver's list.

    A card without an energy counter is healthy once it answers.
    """
    node = Node()
    node.see(XidSeen(A, 79))
    for seen in ({"lost": FailingGpu(A, 0, "L4", "GPU is lost")}, {"listed": (B,)}):
        assert node.see(**seen) is HealthClass.FATAL
        assert sorted(node.kinds) == ["lost", "xid"]
    assert node.see(is_away=True) is HealthClass.FATAL
    assert node.see() is HealthClass.HEALTHY
    assert [one.health.health for one in node.changes][-1] is HealthClass.HEALTHY
    assert len(node.changes) == 3  # the XID, the loss, the return


def test_a_call_that_failed_once_is_no_reset() -> None:
    """A GPU that answers again keeps its fatal XID while its energy counter goes on, and loses it by a reset."""
    node = Node()
    node.see(XidSeen(A, 48), figures=WELL)
    node.see(lost=FailingGpu(A, 0, "L4", "Timeout"))
    assert node.see() is HealthClass.FATAL
    assert node.kinds == ["xid"]
    assert node.see(figures=replace(WELL, energy_mj=2000)) is HealthClass.FATAL
    node.see(lost=FailingGpu(A, 0, "L4", "GPU is lost"))
    assert node.see(figures=replace(WELL, energy_mj=5)) is HealthClass.HEALTHY


def test_a_fault_of_a_program_passes_when_it_stops_recurring() -> None:
    """An `info` XID is reported once however often it comes, and ends `hold_s` after it came last."""
    node = Node()
    for _ in range(3):
        node.now_s += HOLD_S / 2
        assert node.see(XidSeen(A, 31), XidSeen(A, 31)) is HealthClass.INFO
    assert len(node.changes) == 1
    node.now_s += HOLD_S
    assert node.see() is HealthClass.HEALTHY
    assert len(node.changes) == 2


@pytest.mark.parametrize(
    ("figures", "what", "health"),
    [
        (replace(WELL, uncorrected_ecc=1), "ecc", HealthClass.DEGRADED),
        (replace(WELL, retired_pending=True), "retired-page", HealthClass.DEGRADED),
        (replace(WELL, remap_pending=True), "row-remap", HealthClass.DEGRADED),
        (replace(WELL, remap_failed=True), "row-remap-failure", HealthClass.FATAL),
        (replace(WELL, recovery="reset the GPU"), "recovery", HealthClass.FATAL),
    ],
)
def test_a_figure_is_a_condition_while_the_driver_shows_it(
    figures: HealthReading, what: str, health: HealthClass
) -> None:
    """A round that reads no figures changes nothing; the first that reads good ones ends the condition."""
    node = Node()
    assert node.see(figures=figures) is health
    assert node.see() is health
    assert node.kinds == [what]
    assert node.see(figures=WELL) is HealthClass.HEALTHY


@pytest.mark.parametrize(
    ("figures", "what"), [(replace(WELL, is_hot=True), "thermal"), (replace(WELL, is_braked=True), "power")]
)
def test_clocks_that_flap_are_one_condition(figures: HealthReading, what: str) -> None:
    """Clocks that are lowered now and then are reported once, and end once they have been well for `hold_s`."""
    node = Node()
    for _ in range(10):
        node.see(figures=figures)
        assert node.see(figures=WELL) is HealthClass.DEGRADED
    assert (node.kinds, len(node.changes)) == ([what], 1)
    node.now_s += HOLD_S
    assert node.see(figures=WELL) is HealthClass.HEALTHY


def test_a_restart_keeps_conditions_and_reports_none_again() -> None:
    """A fatal condition outlives the monitor, and the next monitor says nothing about it until it ends."""
    node = Node()
    node.see(XidSeen(A, 95), figures=WELL)
    node.records, node.changes = restored(node.records.values(), 0.0), []
    assert node.see(figures=replace(WELL, energy_mj=1500)) is HealthClass.FATAL
    assert node.changes == []


def test_a_reboot_heals_and_a_card_that_was_taken_out_is_gone() -> None:
    """After a reboot a GPU is healthy, and one that the machine lacks is reported once and forgotten."""
    node = Node()
    node.see(XidSeen(A, 95), figures=WELL)
    former = restored(node.records.values(), 0.0)
    records, changes = after_boot(former, DriverView(1.0, "later", (reading(A),)))
    assert [(one.health.gpu, one.health.health) for one in changes] == [
        (A, HealthClass.HEALTHY),
        (B, HealthClass.INFO),
    ]
    assert changes[1].health.conditions[0].what == "gone"
    assert list(records) == [A]


def test_the_gravest_condition_counts() -> None:
    """A GPU has the class of its gravest condition, and its reason."""
    node = Node()
    node.see(XidSeen(A, 31), XidSeen(A, 79), figures=replace(WELL, is_hot=True))
    assert (node.records[A].health.health, node.records[A].health.reason) == (
        HealthClass.FATAL,
        "XID 79: the GPU has fallen off the bus",
    )
    assert node.kinds == ["xid", "thermal", "xid"]


def test_the_catalogue_keeps_fatal_errors_until_a_reset() -> None:
    """Each fatal error lasts until a reset, and a number that the catalogue lacks is degraded and names it."""
    assert all(row.until_reset for row in CATALOGUE.values() if row.health is HealthClass.FATAL)
    assert not any(row.until_reset for row in CATALOGUE.values() if row.health is HealthClass.INFO)
    assert (xid(9999).health, "catalogue" in xid(9999).text) == (HealthClass.DEGRADED, True)


ROUNDS = st.lists(
    st.fixed_dictionaries(
        {
            "xids": st.lists(st.sampled_from([31, 48, 79, 9999]), max_size=2),
            "figures": st.sampled_from(
                [None, WELL, replace(WELL, is_hot=True), replace(WELL, remap_pending=True, energy_mj=3)]
            ),
            "listed": st.sampled_from([(A, B), (B,), ()]),
            "is_away": st.booleans(),
            "pause_s": st.sampled_from([0.0, HOLD_S]),
        }
    ),
    max_size=20,
)


@given(ROUNDS)
def test_each_change_is_reported_once_and_the_reports_follow(rounds: list[dict[str, object]]) -> None:
    """Over any rounds, the last change of a GPU is its state, and no change repeats the one before."""
    node = Node()
    for each in rounds:
        node.now_s += each["pause_s"]  # type: ignore[operator]
        errors = [XidSeen(A, number) for number in each["xids"]]  # type: ignore[attr-defined]
        node.see(*errors, **{name: each[name] for name in ("figures", "listed", "is_away")})  # type: ignore[arg-type]
        by_gpu = {one.health.gpu: one.health for one in node.changes}
        for uuid, record in node.records.items():
            known = by_gpu[uuid].conditions if uuid in by_gpu else ()
            assert known == record.conditions
    for uuid in (A, B):
        mine = [one for one in node.changes if one.health.gpu == uuid]
        for last, one in itertools.pairwise(mine):
            assert one.before is last.health.health
            assert one.health.conditions != last.health.conditions


def instance(number: int) -> GpuReading:
    """A MIG instance of card A."""
    return replace(reading(A), uuid=GpuUuid(f"MIG-{number}"), mig_parent=A)


def test_what_mig_divides_anew_is_gone_and_not_lost() -> None:
    """A card that was divided, an ended instance, and the instances of a card that is whole again leave no record."""
    records, changes = update({}, DriverView(1.0, "t1", (reading(A), reading(B))), HOLD_S)
    divided = DriverView(2.0, "t2", (instance(1), instance(2), reading(B)), divided=frozenset({A}))
    records, changes = update(records, divided, HOLD_S)
    assert [(one.health.gpu, one.health.conditions[0].what) for one in changes] == [(A, "gone")]
    assert set(records) == {"MIG-1", "MIG-2", B}
    records, changes = update(records, replace(divided, present=(instance(2), reading(B))), HOLD_S)
    assert [(one.health.gpu, one.health.conditions[0].what) for one in changes] == [("MIG-1", "gone")]
    records, changes = update(records, DriverView(4.0, "t4", (reading(A), reading(B))), HOLD_S)
    assert [(one.health.gpu, one.health.conditions[0].what) for one in changes] == [("MIG-2", "gone")]
    assert set(records) == {A, B}
    assert unhealthy(records) == ()


def test_an_instance_whose_card_is_lost_is_lost() -> None:
    """Without an answer of the card nobody knows that the instance has ended."""
    records, _ = update({}, DriverView(1.0, "t1", (instance(1),), divided=frozenset({A})), HOLD_S)
    failing = FailingGpu(GpuUuid("MIG-1"), 0, "L4", "GPU is lost", A)
    for seen in (
        DriverView(2.0, "t2", (), (failing,), divided=frozenset({A})),
        DriverView(3.0, "t3", (reading(B),)),
    ):
        records, _ = update(records, seen, HOLD_S)
        assert [(one.gpu, one.health) for one in unhealthy(records)] == [("MIG-1", HealthClass.FATAL)]
