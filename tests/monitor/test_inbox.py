"""The news between the sockets and the disk."""

from monitor.core.observation import JOURNAL_START, Findings, Observation
from monitor.core.tasks import Tasks
from monitor.inbox import Inbox
from plimsoll.broker.announcements import Hello
from plimsoll.ids import ContainerName, PodUid


async def filled(count: int) -> Inbox:
    """An inbox with this many announcements, numbered from 1."""
    inbox = Inbox()
    for seq in range(1, count + 1):
        pod, container = PodUid("pod"), ContainerName("main")
        await inbox.put(Hello(seq=seq, pod=pod, container=container, pid=seq, start_ticks=1, time=""))
    return inbox


async def test_announcements_wait_until_they_are_stored() -> None:
    """A round that could not be stored gets the same announcements again, and then those after them."""
    inbox = await filled(3)
    assert [each.seq for each in inbox.announcements()] == [1, 2, 3]
    assert [each.seq for each in inbox.announcements()] == [1, 2, 3]
    inbox.stored(Observation(), Findings(Tasks(), JOURNAL_START, taken=2), 0)
    assert [each.seq for each in inbox.announcements()] == [3]
    inbox.stored(Observation(), Findings(Tasks(), JOURNAL_START, taken=1), 0)
    assert inbox.announcements() == ()
