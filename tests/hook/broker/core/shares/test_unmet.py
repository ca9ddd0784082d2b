"""A request for compute time that could not be met, from the scheduler's word to the journal."""

from hook.broker.core.events import Surveyed
from hook.broker.core.ids import ContainerKey
from hook.broker.core.instructions import Append
from hook.broker.core.journal import Journal
from hook.broker.core.node import Node
from hook.broker.core.shares.events import Unmet
from plimsoll.broker import announcements
from plimsoll.broker.wire import Unregister
from plimsoll.ids import ContainerName
from tests.hook.broker.conftest import GPUS, MAIN, POD, registration

CONTAINER = ContainerKey(POD, MAIN)
UNMET = Unmet(CONTAINER, GPUS[1], used_pct=21.3456, request_pct=30, span_s=10.012)
NOW_S = 1_700_000_000.0


def node(capacity: int = 100) -> Node:
    """A node with one registered container."""
    node = Node(Journal([], capacity), [], "boot")
    node.handle(registration(), NOW_S)
    return node


def test_an_unmet_request_is_announced_of_the_container() -> None:
    """GPU, request and use stand in fields of their own, and the text says them in words; no process is blamed."""
    assert node().handle(UNMET, NOW_S) == [
        Append(
            announcements.Unmet(
                seq=1, pod=POD, container=MAIN, pid=0, start_ticks=0,
                time="2023-11-14T22:13:20.000000Z", gpu=GPUS[1], share_pct=30, used_pct=21.3,
                text="wanted this GPU throughout 10 s, and had it for 21.3 % of that time"
                " instead of the 30 % it requested",
            )
        )
    ]  # fmt: skip


def test_every_span_is_announced_and_counted() -> None:
    """While it lasts it comes again, each time with a number of its own; the count is the container's."""
    one = node()
    one.handle(UNMET, NOW_S)
    one.handle(UNMET, NOW_S + 10)
    assert [(entry.seq, entry.what) for entry in one.after(0)] == [(1, "unmet"), (2, "unmet")]
    assert one.unmet.count(CONTAINER) == 2
    assert one.unmet.count(ContainerKey(POD, ContainerName("other"))) == 0


def test_unmet_requests_leave_half_of_the_journal_to_lives() -> None:
    """Where nobody acknowledges for days they fill no more than half of it; they are counted all the same."""
    one = node(capacity=16)
    for _ in range(20):
        one.handle(UNMET, NOW_S)
    assert one.journal_length == 8
    assert one.unmet.count(CONTAINER) == 20


def test_who_is_not_registered_has_no_unmet_request() -> None:
    """A word about a container that has just gone is dropped; one that comes under its name begins at 0."""
    one = node()
    one.handle(UNMET, NOW_S)
    one.handle(Unregister(pod=POD), NOW_S)
    one.handle(Surveyed(CONTAINER, (), {}), NOW_S)
    assert one.handle(UNMET, NOW_S) == []
    one.handle(registration(), NOW_S)
    assert one.unmet.count(CONTAINER) == 0
