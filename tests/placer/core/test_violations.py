"""Pods that pass a line: events accuse, and only measurements in a row, for a grace time, confirm."""

import pytest

from placer.core.booking import Booking, Grant
from placer.core.ledger import Ledger
from placer.core.violations import MEASUREMENTS, SLACK_BYTES, SUSPECTS_AT_MOST, Violations
from plimsoll.events import Gpu
from plimsoll.ids import ContainerName, GpuUuid, NodeName, PodUid
from plimsoll.quantity import GIB
from tests.placer.core.worlds import gpu, state, task

GRACE_S = 60.0
POD, NODE, GPU = PodUid("pod"), NodeName("n"), GpuUuid("g")


def grant(memory_bytes: int | None, *, name: str = "main", whole: bool = False) -> Grant:
    """A grant of one container on the GPU."""
    return Grant(ContainerName(name), GPU, memory_bytes, 0, 100, whole, memory_bytes or 8 * GIB)


def ledger_of(*grants: Grant) -> Ledger:
    """A ledger with the pod."""
    ledger = Ledger()
    ledger.restore(Booking(POD, NODE, grants or (grant(4 * GIB),)))
    return ledger


def holds(used_bytes: int) -> Gpu:
    """The GPU with this much memory of the pod, by two processes, and with a neighbour."""
    half = used_bytes // 2
    return gpu("g", task("pod", "g", half), task("pod", "g", used_bytes - half), task("other", "g", 9 * GIB))


def measured(found: Violations, *used_bytes: int, began_s: float = 0.0, every_s: float = 30.0) -> float:
    """Take in reports with these amounts; returns the time of the last one."""
    now_s = began_s
    for number, one in enumerate(used_bytes):
        now_s = began_s + number * every_s
        found.measure(state("n", holds(one)), now_s)
    return now_s


def test_a_suspect_is_confirmed_by_measurements_in_a_row() -> None:
    """Three reports over the grace time show the pod past its line; two do not, nor three within a second."""
    found = Violations(ledger_of(), GRACE_S)
    found.suspect(POD, GPU)
    measured(found, 5 * GIB, 5 * GIB, every_s=60)
    assert not found.confirmed()
    measured(found, 6 * GIB, began_s=61)
    (one,) = found.confirmed()
    assert (one.pod, one.node, one.gpu, one.used_bytes, one.line_bytes) == (POD, NODE, GPU, 6 * GIB, 4 * GIB)
    assert (one.measurements, one.since_s, one.seen_s) == (MEASUREMENTS, 0, 61)
    soon = Violations(ledger_of(), GRACE_S)
    soon.suspect(POD, GPU)
    measured(soon, *[5 * GIB] * 10, every_s=0.1)
    assert not soon.confirmed()


def test_nobody_is_confirmed_who_was_not_accused() -> None:
    """The measurements alone, without the finding of an audit, confirm nothing."""
    found = Violations(ledger_of(), GRACE_S)
    measured(found, *[5 * GIB] * 10)
    assert not found.confirmed()


def test_a_measurement_at_the_line_begins_anew() -> None:
    """A pod that comes back under its line has the whole grace time again."""
    found = Violations(ledger_of(), GRACE_S)
    found.suspect(POD, GPU)
    last_s = measured(found, 5 * GIB, 5 * GIB, 4 * GIB + SLACK_BYTES, 5 * GIB, 5 * GIB)
    assert not found.confirmed()
    measured(found, 5 * GIB, began_s=last_s + 30)
    assert [one.since_s for one in found.confirmed()] == [90]
    measured(found, 4 * GIB, began_s=last_s + 60)
    assert not found.confirmed()


def test_an_accusation_without_a_gpu_is_about_all_of_the_pods() -> None:
    """A process that never came under its hook may be on any of them."""
    found = Violations(ledger_of(), GRACE_S)
    found.suspect(POD, None)
    measured(found, *[5 * GIB] * 3)
    assert len(found.confirmed()) == 1


@pytest.mark.parametrize(
    "grants", [(grant(None),), (grant(8 * GIB, whole=True),), (grant(GIB), grant(None, name="b"))]
)
def test_a_pod_without_a_declared_line_is_no_suspect(grants: tuple[Grant, ...]) -> None:
    """Best-effort and whole-GPU containers declare no memory that they could pass."""
    found = Violations(ledger_of(*grants), GRACE_S)
    found.suspect(POD, GPU)
    measured(found, *[23 * GIB] * 3)
    assert not found.confirmed()
    assert not found._suspects


def test_the_containers_of_a_pod_count_together() -> None:
    """Processes without a hook name no container, so the pod's lines on the GPU add up."""
    found = Violations(ledger_of(grant(2 * GIB), grant(2 * GIB, name="b")), GRACE_S)
    found.suspect(POD, GPU)
    measured(found, *[4 * GIB] * 3)
    assert not found.confirmed()
    measured(found, *[5 * GIB] * 3, began_s=100)
    assert [one.line_bytes for one in found.confirmed()] == [4 * GIB]


def test_a_raised_line_ends_the_violation() -> None:
    """A resize counts from the next report on."""
    ledger = ledger_of()
    found = Violations(ledger, GRACE_S)
    found.suspect(POD, GPU)
    last_s = measured(found, *[5 * GIB] * 3)
    ledger.restore(Booking(POD, NODE, (grant(6 * GIB),)))
    measured(found, 5 * GIB, began_s=last_s + 1)
    assert not found.confirmed()


def test_a_pod_that_left_is_no_suspect() -> None:
    """A pod that is gone is neither confirmed nor kept."""
    ledger = ledger_of()
    found = Violations(ledger, GRACE_S)
    found.suspect(POD, GPU)
    last_s = measured(found, *[5 * GIB] * 3)
    ledger.forget(POD)
    assert not found.confirmed()
    measured(found, 0, began_s=last_s + 1)
    assert not found._suspects


def test_the_number_of_suspects_is_bounded() -> None:
    """Events about pods that nobody knows cost a bounded memory."""
    found = Violations(Ledger(), GRACE_S)
    for number in range(SUSPECTS_AT_MOST + 100):
        found.suspect(PodUid(f"pod-{number}"), GPU)
    assert len(found._suspects) == SUSPECTS_AT_MOST
