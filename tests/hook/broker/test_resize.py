"""A line that changes under a running container is applied in place and announced, and ends no process."""

import stat

from plimsoll.broker.announcements import Announcement, Resized
from tests.hook.broker.conftest import GIB, GPUS, MAIN, POD, Broker, registration


def _resized(entry: Announcement) -> Resized:
    assert isinstance(entry, Resized)
    assert (entry.what, entry.pod, entry.container, entry.pid) == ("resized", POD, MAIN, 0)
    return entry


async def test_a_new_line_is_in_force_and_announced_for_each_gpu(broker: Broker) -> None:
    """A line raised on both GPUs has one announcement for each, with the bytes that the container holds there."""
    await broker.client.register(registration())
    process = await broker.spawn()
    await process.begin(used_bytes=700)
    await broker.announced(1)
    await broker.client.register(registration(3 * GIB))
    assert [gpu.line_bytes for gpu in broker.limits().gpus[:2]] == [3 * GIB, 3 * GIB]
    _, *resized = await broker.announced(3, contexts=False)  # The first one is its greeting.
    entries = [_resized(entry) for entry in resized]
    told = [(entry.gpu, entry.line_bytes, entry.used_bytes) for entry in entries]
    assert told == [(GPUS[0], 3 * GIB, 700), (GPUS[1], 3 * GIB, 0)]
    assert [entry.text for entry in entries] == ["", ""]


async def test_a_line_below_use_ends_nothing_and_says_so(broker: Broker) -> None:
    """A process past its lowered line lives on with its memory, and the announcement says that growth is refused."""
    await broker.client.register(registration())
    process = await broker.spawn()
    await process.begin(used_bytes=GIB)
    await broker.announced(1)
    await broker.client.register(registration(GIB // 2))
    _, *resized = await broker.announced(3, contexts=False)  # The first one is its greeting.
    entries = [_resized(entry) for entry in resized]
    assert entries[0].text == "holds 1Gi now: growth is refused until it is below"
    assert entries[1].text == ""
    assert await broker.process_count() == 1
    assert broker.counts().slots[0].used_bytes[0] == GIB


async def test_the_same_registration_again_announces_nothing(broker: Broker) -> None:
    """Only a changed line is announced; a repeated registration is not."""
    await broker.client.register(registration())
    await broker.client.register(registration())
    await broker.client.register(registration(2 * GIB))
    assert [entry.what for entry in await broker.announced(2)] == ["resized", "resized"]
    await broker.client.register(registration(2 * GIB))
    assert len(broker.journaled()) == 2


async def test_a_changed_share_is_in_force_and_announced_without_a_new_line(broker: Broker) -> None:
    """A changed share or limit alone is a change, and its announcement has all values in force."""
    await broker.client.register(registration())
    await broker.client.register(registration(share_pct=40))
    await broker.client.register(registration(share_pct=40, limit_pct=60))
    page = broker.limits()
    assert [(gpu.share_pct, gpu.limit_pct) for gpu in page.gpus[:2]] == [(40, 60), (40, 60)]
    entries = [_resized(entry) for entry in await broker.announced(4)]
    assert [(entry.gpu, entry.line_bytes) for entry in entries] == [(gpu, GIB) for gpu in (*GPUS, *GPUS)]
    assert [(e.share_pct, e.limit_pct) for e in entries] == [(40, 100), (40, 100), (40, 60), (40, 60)]
    await broker.client.register(registration(share_pct=40, limit_pct=60))
    assert len(broker.journaled()) == 4


async def test_a_resize_outlives_the_broker(broker: Broker) -> None:
    """After a kill the next broker holds the new line, and announces nothing more about it."""
    await broker.client.register(registration())
    await broker.client.register(registration(2 * GIB, share_pct=40, limit_pct=50))
    await broker.kill()
    await broker.start()
    page = broker.limits().gpus[0]
    assert (page.line_bytes, page.share_pct, page.limit_pct) == (2 * GIB, 40, 50)
    await broker.client.register(registration(2 * GIB, share_pct=40, limit_pct=50))
    assert len(broker.journaled()) == 2


async def test_a_line_that_cannot_be_written_is_not_announced(broker: Broker) -> None:
    """If the page cannot be written nothing is announced.

    A later attempt of the same request applies and announces it.
    """
    await broker.client.register(registration())
    page = broker.limits_dir() / "limits"
    page.unlink()
    page.mkdir()
    refused = await _refusal(broker)
    assert "Is a directory" in refused
    assert broker.journaled() == []
    page.rmdir()
    await broker.client.register(registration(2 * GIB))
    entries = [_resized(entry) for entry in await broker.announced(2)]
    assert [(entry.gpu, entry.line_bytes) for entry in entries] == [(gpu, 2 * GIB) for gpu in GPUS]
    assert stat.S_ISREG(page.stat().st_mode)


async def _refusal(broker: Broker) -> str:
    try:
        await broker.client.register(registration(2 * GIB))
    except Exception as error:  # noqa: BLE001 - whichever it is, its words count
        return str(error)
    return ""
