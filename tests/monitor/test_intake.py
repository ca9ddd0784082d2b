"""The broker's announcements between the socket and the disk."""

from monitor.intake import Intake
from plimsoll.broker.announcements import Hello
from plimsoll.ids import ContainerName, PodUid


async def filled(count: int) -> Intake:
    """An intake with this many announcements, numbered from 1."""
    intake = Intake()
    for seq in range(1, count + 1):
        pod, container = PodUid("pod"), ContainerName("main")
        await intake.put(Hello(seq=seq, pod=pod, container=container, pid=seq, start_ticks=1, time=""))
    return intake


async def test_announcements_wait_until_they_are_stored() -> None:
    """A round that could not be stored gets the same announcements again, and then those after them."""
    intake = await filled(3)
    assert [each.seq for each in intake.next()] == [1, 2, 3]
    assert [each.seq for each in intake.next()] == [1, 2, 3]
    intake.stored(2)
    assert [each.seq for each in intake.next()] == [3]
    intake.stored(1)
    assert intake.next() == ()
