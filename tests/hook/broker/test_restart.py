"""After a broker is killed, its successor loses nothing and announces nothing twice."""

import asyncio
import contextlib
import os
import signal

import pytest

from plimsoll.broker.announcements import Announcement
from plimsoll.broker.client import RefusedError
from plimsoll.broker.subscription import subscribed
from plimsoll.broker.wire import Subscribe
from plimsoll.ids import PodUid
from tests.hook.broker.conftest import (
    GIB,
    GPUS,
    POD,
    Broker,
    gpu_of,
    registration,
)
from tests.servers.waiting import PATIENCE_S


async def test_a_new_broker_adopts_the_living_and_buries_the_dead(broker: Broker) -> None:
    """A process that died between the brokers exits once, and the two living ones stay watched."""
    await broker.client.register(registration())
    lives, dies, dies_later = [await broker.spawn() for _ in range(3)]
    for process in (lives, dies, dies_later):
        await process.begin(GIB)
    before = await broker.announced(3, contexts=False)
    await broker.kill()
    await dies.kill()
    await lives.do("use 1 4096")
    await broker.start()
    entries = await broker.announced(4, contexts=False)
    assert entries[:3] == before
    assert (entries[3].what, entries[3].pid) == ("exited", dies.pid)
    seen = {(entry.pid, gpu_of(entry)) for entry in broker.journaled() if entry.what == "context"}
    assert seen >= {(lives.pid, GPUS[0]), (lives.pid, GPUS[1]), (dies_later.pid, GPUS[0])}
    assert len(broker.owners()) == 2
    await dies_later.kill()
    last = (await broker.announced(5, contexts=False))[-1]
    assert (last.what, last.pid) == ("exited", dies_later.pid)
    assert [process.pid for process in (await broker.client.describe()).containers[0].processes] == [
        lives.pid
    ]


async def test_an_acknowledged_process_still_exits_after_a_restart(broker: Broker) -> None:
    """A process's death while no broker ran is announced, though its greeting is acknowledged and forgotten."""
    await broker.client.register(registration())
    process = await broker.spawn()
    await process.begin()
    hello = (await broker.announced(1))[0]
    await broker.client.acknowledge(hello.seq)
    await broker.kill()
    await process.kill()
    for _ in range(2):
        await broker.start()
        exited = (await broker.announced(1))[0]
        assert (exited.what, exited.pid, exited.seq) == ("exited", process.pid, hello.seq + 1)
        assert broker.journaled() == [exited]
        await broker.kill()


async def test_the_journal_is_told_again_until_acknowledged(broker: Broker) -> None:
    """Over restarts every subscription gets the same entries under the same numbers, and no acknowledged one."""
    await broker.client.register(registration())
    process = await broker.spawn()
    await process.begin()
    await process.do(f"send context {GPUS[0]}")
    first = await broker.announced(2)
    assert await broker.announced(2) == first
    await broker.kill()
    await broker.start()
    assert await broker.announced(2) == first
    await broker.client.acknowledge(first[0].seq)
    assert await broker.announced(1) == first[1:]
    await broker.client.acknowledge(first[1].seq)
    await broker.kill()
    await broker.start()
    await process.kill()
    last = (await broker.announced(1))[0]
    assert (last.what, last.seq) == ("exited", first[1].seq + 1)


async def test_a_subscription_survives_restarts_without_gaps(broker: Broker) -> None:
    """An iterator goes on over a kill of the broker: no entry is missing, and repeated ones are equal."""
    await broker.client.register(registration())
    seen: dict[int, Announcement] = {}

    async def listen() -> None:
        async with contextlib.aclosing(subscribed(broker.root, Subscribe())) as stream:
            async for entry in stream:
                assert isinstance(entry, Announcement)
                assert seen.setdefault(entry.seq, entry) == entry
                if len(seen) == 6:
                    return

    listening = asyncio.create_task(listen())
    for _ in range(3):
        process = await broker.spawn()
        await process.begin()
        await broker.kill()
        await broker.start()
        await process.kill()
    async with asyncio.timeout(PATIENCE_S):
        await listening
    assert sorted(seen) == list(range(1, 7))
    assert sorted(entry.what for entry in seen.values()) == ["exited"] * 3 + ["hello"] * 3


async def test_a_request_waits_for_a_broker_that_is_restarting(broker: Broker) -> None:
    """A request made while the broker is away is answered when a broker is back."""
    await broker.kill()
    waiting = asyncio.create_task(broker.client.register(registration()))
    await asyncio.sleep(0)
    await broker.start()
    async with asyncio.timeout(PATIENCE_S):
        answer = await waiting
    assert answer.containers[0].limits_dir == str(broker.limits_dir())


async def test_registrations_outlive_the_broker(broker: Broker) -> None:
    """A new broker knows the pods and their lines, and listens on every container's socket."""
    await broker.client.register(registration(5 * GIB))
    generation = broker.limits().generation
    await broker.kill()
    await broker.start()
    described = (await broker.client.describe()).containers
    assert [c.container for c in described] == list(registration(5 * GIB).containers)
    assert broker.limits().generation == generation
    process = await broker.spawn()
    await process.begin()
    assert (await broker.announced(1))[0].pid == process.pid


async def test_a_torn_last_line_is_cut(broker: Broker) -> None:
    """A journal torn by a kill in the middle of a write loses that line only."""
    await broker.client.register(registration())
    process = await broker.spawn()
    await process.begin()
    before = await broker.announced(1)
    await broker.kill()
    with (broker.root / "journal").open("ab") as journal:
        journal.write(b'{"type":"announcement","seq":2,"what":"exi')
    await broker.start()
    assert broker.log("journal_torn")
    assert await broker.announced(1) == before
    await process.kill()
    entries = await broker.announced(2)
    assert [(entry.seq, entry.what) for entry in entries] == [(1, "hello"), (2, "exited")]
    await broker.kill()
    await broker.start()
    assert await broker.announced(2) == entries


async def test_a_damaged_line_in_the_middle_costs_only_itself(broker: Broker) -> None:
    """A journal line that is not JSON is logged by number and value, and the lines around it are announced."""
    await broker.client.register(registration())
    one, other = await broker.spawn(), await broker.spawn()
    await one.begin()
    await broker.announced(1)
    await other.begin()
    before = await broker.announced(2)
    await broker.kill()
    lines = (broker.root / "journal").read_bytes().splitlines(keepends=True)
    (broker.root / "journal").write_bytes(b"".join([lines[0], b"\xff\xfe?\n", *lines[1:]]))
    await broker.start()
    assert await broker.announced(2) == before
    assert broker.log("journal_damaged")[0]["line"] == 2


async def test_a_reboot_ends_every_process_and_empties_every_slot(broker: Broker) -> None:
    """Under another boot id no recorded process lives and every slot is empty, though pids may match."""
    await broker.client.register(registration())
    process = await broker.spawn()
    await process.begin(GIB)
    await broker.announced(1)
    await broker.kill()
    await process.kill()
    journal = broker.root / "journal"
    head, *rest = journal.read_text().splitlines(keepends=True)
    boot = head.split('"boot_id":"')[1].split('"')[0]
    journal.write_text("".join([head.replace(boot, "another-boot"), *rest]))
    await broker.start()
    assert [entry.what for entry in await broker.announced(2, contexts=False)] == ["hello", "exited"]
    assert broker.owners() == []


async def test_a_damaged_record_is_left_out_and_the_rest_goes_on(broker: Broker) -> None:
    """A record that is not JSON is logged by its file, and the other pods are adopted."""
    other = PodUid("other")
    await broker.client.register(registration())
    await broker.client.register(registration(pod=other))
    await broker.kill()
    (broker.root / "limits" / POD / "record.json").write_text("{")
    await broker.start()
    assert [c.pod for c in (await broker.client.describe()).containers] == [other]
    assert broker.log("record_damaged")[0]["file"].endswith(f"{POD}/record.json")
    await broker.client.register(registration())


async def test_the_journal_file_shrinks_as_it_is_acknowledged(broker: Broker) -> None:
    """After hundreds of acknowledged lives the journal has a few lines, and its numbers go on."""
    await broker.client.register(registration())
    parent = await broker.spawn()
    for _ in range(3):
        for pid in (await parent.do("family 100")).split():
            os.kill(int(pid), signal.SIGKILL)
        for entry in await broker.announced(200, contexts=False):
            await broker.client.acknowledge(entry.seq)
    assert len((broker.root / "journal").read_bytes().splitlines()) < 600
    assert broker.journaled() == []
    with pytest.raises(RefusedError, match="seq: 100000 was never announced"):
        await broker.client.acknowledge(100_000)


async def test_one_root_has_one_broker(broker: Broker) -> None:
    """A second broker on the same root ends at once with a message, and the first goes on."""
    second = Broker(broker.root, {})
    await second.launch()
    assert await second.wait() == 2
    assert broker.log("refused to start")
    assert await broker.process_count() == 0


async def test_sigterm_ends_it_in_good_order(broker: Broker) -> None:
    """SIGTERM ends the broker with 0. It removes its control socket, and leaves pods and journal to the next one."""
    await broker.client.register(registration())
    process = await broker.spawn()
    await process.begin()
    before = await broker.announced(1)
    assert await broker.stop() == 0
    assert not (broker.root / "broker.sock").exists()
    await broker.start()
    assert await broker.announced(1) == before
    assert await broker.process_count() == 1
