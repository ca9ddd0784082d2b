"""The broker's announcements between the socket and the disk."""

from monitor.intake import QUEUE_MAX, Intake
from monitor.outbox.transaction import COVERED_BYTES
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
    assert not intake.stored(3, None)
    assert intake.next() == ()


async def test_a_disk_that_refused_a_round_gets_the_backlog_in_small_ones() -> None:
    """No round has more events than the room for removing them allows, and all announcements are stored in order."""
    intake = await filled(QUEUE_MAX)
    assert len(intake.next()) == QUEUE_MAX
    intake.refused()
    event_bytes, stored = COVERED_BYTES // 100, list[int]()
    has_more = True
    while has_more:
        taken = intake.next()
        stored += [each.seq for each in taken]
        has_more = intake.stored(len(taken), event_bytes)
        assert 0 < len(taken) * event_bytes <= COVERED_BYTES
    assert stored == list(range(1, QUEUE_MAX + 1))
