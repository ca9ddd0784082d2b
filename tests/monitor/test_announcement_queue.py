"""The broker's announcements between the socket and the disk."""

from monitor.announcement_queue import AnnouncementQueue
from plimsoll.broker.announcements import Hello
from plimsoll.ids import ContainerName, PodUid


async def filled(count: int) -> AnnouncementQueue:
    """An intake with this many announcements, numbered from 1."""
    queue = AnnouncementQueue()
    for seq in range(1, count + 1):
        pod, container = PodUid("pod"), ContainerName("main")
        await queue.put(Hello(seq=seq, pod=pod, container=container, pid=seq, start_ticks=1, time=""))
    return queue


async def test_announcements_wait_until_they_are_stored() -> None:
    """A round that could not be stored gets the same announcements again, and then those after them."""
    queue = await filled(3)
    assert [each.seq for each in queue.next()] == [1, 2, 3]
    assert [each.seq for each in queue.next()] == [1, 2, 3]
    queue.stored(2)
    assert [each.seq for each in queue.next()] == [3]
    queue.stored(1)
    assert queue.next() == ()
