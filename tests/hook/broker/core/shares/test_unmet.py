"""An unmet request for compute time goes from the scheduler's finding to the journal."""

from hook.broker.core.events import Append, Surveyed
from hook.broker.core.ids import ContainerKey
from hook.broker.core.journal import Journal
from hook.broker.core.node import Node
from hook.broker.core.shares.events import UnmetSpan
from plimsoll.broker import announcements
from plimsoll.broker.wire import Unregister
from plimsoll.ids import ContainerName
from tests.hook.broker.conftest import GPUS, MAIN, POD, registration

CONTAINER = ContainerKey(POD, MAIN)
UNMET = UnmetSpan(CONTAINER, GPUS[1], used_pct=21.3456, request_pct=30, span_s=10.012)
NOW_S = 1_700_000_000.0


def node(capacity: int = 100) -> Node:
    """A node with one registered container."""
    node = Node(Journal([], capacity), [], "boot")
    node.handle(registration(), NOW_S)
    return node


def test_an_unmet_request_is_announced_of_the_container() -> None:
    """The announcement has GPU, request and use in fields and in its text, and names no process."""
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
    """Each span in which the request is unmet has an announcement with a number of its own.

    The container counts them.
    """
    one = node()
    one.handle(UNMET, NOW_S)
    one.handle(UNMET, NOW_S + 10)
    assert [(entry.seq, entry.what) for entry in one.after(0)] == [(1, "unmet"), (2, "unmet")]
    assert one.share_findings.unmet[CONTAINER] == 2
    assert one.share_findings.unmet[ContainerKey(POD, ContainerName("other"))] == 0


def test_unmet_requests_leave_half_of_the_journal_to_lives() -> None:
    """Without acknowledgements for days, announcements of unmet requests fill at most half of the journal.

    All are counted.
    """
    one = node(capacity=16)
    for _ in range(20):
        one.handle(UNMET, NOW_S)
    assert one.journal_length == 8
    assert one.share_findings.unmet[CONTAINER] == 20


def test_who_is_not_registered_has_no_unmet_request() -> None:
    """A finding about a removed container is dropped, and a new container of that name begins at 0."""
    one = node()
    one.handle(UNMET, NOW_S)
    one.handle(Unregister(pod=POD), NOW_S)
    one.handle(Surveyed(CONTAINER, (), {}), NOW_S)
    assert one.handle(UNMET, NOW_S) == []
    one.handle(registration(), NOW_S)
    assert one.share_findings.unmet[CONTAINER] == 0
