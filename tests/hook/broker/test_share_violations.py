"""A process whose page says less of its compute time than NVML shows, from the finding to the journal."""

from dataclasses import replace

from hook.broker.core.facts import ContainerKey, ProcessKey
from hook.broker.core.journal import Journal
from hook.broker.core.node import Node
from hook.broker.core.turns import Append, Died, ShareViolated, ShareViolationEnded, Surveyed
from plimsoll.brokerwire import Announcement, Unregister
from tests.hook.broker.conftest import GPUS, MAIN, POD, registration

CONTAINER = ContainerKey(POD, MAIN)
LIAR = ProcessKey(7, 70)
FOUND = ShareViolated(CONTAINER, LIAR, GPUS[1], used_pct=83.0, told_pct=12.345)
ENDED = ShareViolationEnded(CONTAINER, LIAR, GPUS[1])
NOW_S = 1_700_000_000.0


def node() -> Node:
    """A node with one registered container."""
    node = Node(Journal([], 100), [], "boot")
    node.handle(registration(), NOW_S)
    return node


def test_a_finding_names_the_process_and_both_figures() -> None:
    """It is a `violated` of the process on that GPU; by NVML's figure, and in words against the page's."""
    assert node().handle(FOUND, NOW_S) == [
        Append(
            Announcement(
                seq=1, what="violated", pod=POD, container=MAIN, pid=7, start_ticks=70,
                time="2023-11-14T22:13:20.000000Z", gpu=GPUS[1], used_pct=83.0,
                text="by NVML the process used 83 % of this GPU's time, while its page says 12.3 %",
            )
        )
    ]  # fmt: skip


def test_a_finding_is_told_once_and_again_only_after_it_had_ended() -> None:
    """Repeated while it lasts it says nothing new; another process, or another GPU, is another finding."""
    one = node()
    others = replace(FOUND, process=ProcessKey(8, 80)), replace(FOUND, gpu=GPUS[0])
    told = [one.handle(event, NOW_S) for event in (FOUND, FOUND, *others, ENDED, ENDED, FOUND, FOUND)]
    assert [len(steps) for steps in told] == [1, 0, 1, 1, 0, 0, 1, 0]
    assert one.share_violations.count(CONTAINER) == 4


def test_a_finding_ends_with_its_process_and_its_container() -> None:
    """A later process is found out anew, and a pod that comes again begins at 0; one that is gone has no findings."""
    one = node()
    one.handle(FOUND, NOW_S)
    one.handle(Died(LIAR), NOW_S)
    assert len(one.handle(FOUND, NOW_S)) == 1
    one.handle(Unregister(pod=POD), NOW_S)
    one.handle(Surveyed(CONTAINER, (), {}), NOW_S)
    assert (one.handle(FOUND, NOW_S), one.share_violations.count(CONTAINER)) == ([], 0)
    one.handle(registration(), NOW_S)
    assert len(one.handle(FOUND, NOW_S)) == 1
