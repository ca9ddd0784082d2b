"""A process whose words claim less compute time than NVML shows is found and announced."""

from dataclasses import replace

from hook.broker.core.datagram import Datagram, DatagramKind
from hook.broker.core.events import Append, DatagramReceived, Died, Surveyed
from hook.broker.core.ids import ContainerKey, Process
from hook.broker.core.journal import Journal
from hook.broker.core.node import Node
from hook.broker.core.shares.events import ShareOveruse
from plimsoll.broker import announcements
from plimsoll.broker.wire import Unregister
from plimsoll.ids import ProcessKey
from tests.hook.broker.conftest import GPUS, MAIN, POD, registration

CONTAINER = ContainerKey(POD, MAIN)
LIAR = Process(ProcessKey(7, 70), owner=700)
FOUND = ShareOveruse(CONTAINER, LIAR.owner, GPUS[1], used_pct=83.0, claimed_pct=12.345)
NOW_S = 1_700_000_000.0


def node() -> Node:
    """A node with one registered container, and a process in it."""
    node = Node(Journal([], 100), [], "boot")
    node.handle(registration(), NOW_S)
    node.handle(DatagramReceived(CONTAINER, LIAR, Datagram(DatagramKind.HELLO, 0, LIAR.owner)), NOW_S)
    return node


def test_a_finding_names_the_process_and_both_figures() -> None:
    """The announcement is a `violated` of the process on that GPU, with NVML's figure and the page's in its text."""
    assert node().handle(FOUND, NOW_S) == [
        Append(
            announcements.ShareViolated(
                seq=2, pod=POD, container=MAIN, pid=7, start_ticks=70,
                time="2023-11-14T22:13:20.000000Z", gpu=GPUS[1], used_pct=83.0,
                text="by NVML the process used 83 % of this GPU's time, while its page says 12.3 %",
            )
        )
    ]  # fmt: skip


def test_a_finding_without_a_known_process_is_about_the_container() -> None:
    """A finding about an unknown process names the container. Each finding is counted."""
    one = node()
    [told] = one.handle(replace(FOUND, owner=701), NOW_S)
    assert isinstance(told, Append)
    assert isinstance(told.line, announcements.ShareViolated)
    assert (told.line.what, told.line.pid) == ("violated", 0)
    one.handle(FOUND, NOW_S)
    assert one.share_findings.overuse[CONTAINER] == 2


def test_what_is_not_registered_has_no_findings() -> None:
    """A finding about a removed pod is dropped, and a pod that comes again begins at 0."""
    one = node()
    one.handle(FOUND, NOW_S)
    one.handle(Died(LIAR.key), NOW_S)
    one.handle(Unregister(pod=POD), NOW_S)
    one.handle(Surveyed(CONTAINER, (), {}), NOW_S)
    assert (one.handle(FOUND, NOW_S), one.share_findings.overuse[CONTAINER]) == ([], 0)
