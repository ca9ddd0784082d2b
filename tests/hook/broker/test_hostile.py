"""A container's programs may do anything to their own pages and socket: no other container pays for it."""

import asyncio
import os
import resource
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from plimsoll.broker.announcements import Hello
from plimsoll.broker.pages import COUNTS_MAGIC, COUNTS_NAME, MAX_SLOTS, SOCKET_NAME, Counts
from plimsoll.ids import PodUid
from tests.hook.broker.conftest import POD, Broker, registration, until

NEIGHBOUR = PodUid("7d5c2d1f-1e70-4c8f-8e1d-0b2d3f4e5a6b")
OPEN_AT_ONCE = 1100
"""More connections than a container may hold open."""


def _pipe(path: Path) -> None:
    os.mkfifo(path)


def _socket(path: Path) -> None:
    directory = os.open(path.parent, os.O_PATH)
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(f"/proc/self/fd/{directory}/{path.name}")
    os.close(directory)


def _full_directory(path: Path) -> None:
    path.mkdir()
    (path / "deep").mkdir()
    (path / "deep" / "file").write_bytes(b"x")


def _endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def _hard_link(path: Path) -> None:
    other = path.with_name("other")
    other.write_bytes(bytes(path.parent.stat().st_size))
    path.hardlink_to(other)


def _huge(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


PLACES: tuple[Callable[[Path], None], ...] = (_pipe, _socket, _full_directory, _endless, _hard_link, _huge)


async def greets(broker: Broker, pod: PodUid) -> None:
    """A new process of a pod is announced, so the broker works for that pod."""
    process = await broker.spawn(pod=pod)
    await process.begin(4096)

    async def is_announced() -> bool:
        heard = await broker.client.describe()
        return any(one.pod == pod and one.processes for one in heard.containers)

    await until(is_announced, f"a process of {pod} is known")
    await process.kill()


@pytest.mark.parametrize("put", PLACES)
async def test_what_lies_in_the_place_of_counts_harms_its_own_container(
    broker: Broker, put: Callable[[Path], None]
) -> None:
    """A pipe, socket, directory, device, second link or endless file: the broker goes on, and mends it.

    The tenant's process dies while it lies there, so that the broker wants to clear a slot.
    """
    await broker.client.register(registration(share_pct=10))
    await broker.client.register(registration(pod=NEIGHBOUR, share_pct=10))
    process = await broker.spawn()
    await process.begin(4096)
    await broker.announced(1)
    counts = broker.counts_dir() / COUNTS_NAME
    counts.unlink()
    await asyncio.to_thread(put, counts)
    await process.kill()
    await until(lambda: _is_gone(broker), "the dead process is known no more")
    await greets(broker, NEIGHBOUR)
    await broker.client.register(registration(2 << 30, share_pct=10))
    assert broker.counts().magic == COUNTS_MAGIC
    assert counts.stat().st_size == len(bytes(Counts()))
    assert not broker.log("unforeseen")
    await greets(broker, POD)


async def _is_gone(broker: Broker) -> bool:
    heard = await broker.client.describe()
    return not any(one.pod == POD and one.processes for one in heard.containers)


async def test_connections_that_say_nothing_cost_no_other_container_anything(broker: Broker) -> None:
    """Past the limit connections are closed, and the neighbour's processes are served while they stand."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2 * OPEN_AT_ONCE:
        pytest.skip("this machine lets a process open too few files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2 * OPEN_AT_ONCE), hard))
    await broker.client.register(registration(share_pct=10))
    await broker.client.register(registration(pod=NEIGHBOUR, share_pct=10))
    opened: list[socket.socket] = []
    try:
        await asyncio.to_thread(_crowd, broker.limits_dir(), opened)
        await greets(broker, NEIGHBOUR)

        async def is_refused() -> bool:
            return bool(broker.log("too_many_connections"))

        await until(is_refused, "the limit is told")
    finally:
        for one in opened:
            one.close()
    await until(lambda: _takes(broker), "the container's own processes are heard again")
    await greets(broker, POD)


def _crowd(limits_dir: Path, opened: list[socket.socket]) -> None:
    directory = os.open(limits_dir, os.O_PATH)
    for _ in range(OPEN_AT_ONCE):
        one = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        one.connect(f"/proc/self/fd/{directory}/{SOCKET_NAME}")
        opened.append(one)
    os.close(directory)


async def _takes(broker: Broker) -> bool:
    """Whether the container's socket keeps a new connection open."""

    def keeps() -> bool:
        opened: list[socket.socket] = []
        directory = os.open(broker.limits_dir(), os.O_PATH)
        one = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        opened.append(one)
        try:
            one.settimeout(0.2)
            one.connect(f"/proc/self/fd/{directory}/{SOCKET_NAME}")
            return one.recv(1) != b""
        except TimeoutError:
            return True
        except OSError:
            return False
        finally:
            one.close()
            os.close(directory)

    return await asyncio.to_thread(keeps)


async def test_a_giant_datagram_is_one_line_of_the_log(broker: Broker) -> None:
    """It is cut while it is read, refused by its length, and the connection goes on."""
    await broker.client.register(registration())
    process = await broker.spawn()
    await process.do("hold")
    await process.do("raw " + "5a" * 100_000)
    await process.begin()
    assert [type(one) for one in await broker.announced(1)] == [Hello]
    [line] = broker.log("datagram_damaged")
    assert line["problem"].startswith("length: ")
    assert len(str(line)) < 1000


async def test_forged_owners_are_swept(broker: Broker) -> None:
    """A program that fills all slots with words of others wins nothing: neither pids that are free nor living ones.

    Processes of other containers and of the host do not have this container's `counts` in memory, so none of them is
    announced in its name, or charged to it.
    """
    await broker.client.register(registration())
    tenant = await broker.spawn()
    await tenant.begin(4096)
    await broker.announced(1)
    page = bytearray(bytes(broker.counts()))
    forged = Counts.from_buffer(page)
    forged.slots_touched = MAX_SLOTS
    for number in range(1, MAX_SLOTS):
        forged.slots[number].owner = (
            _word(os.getpid()) if number == 1 else (number << 32) | 4_000_000 + number
        )
        forged.slots[number].used_bytes[0] = 1 << 30
    with (broker.counts_dir() / COUNTS_NAME).open("r+b") as file:
        file.write(page)
    await broker.stop()
    await broker.start(audit_s="0.05")

    async def is_swept() -> bool:
        return len(broker.owners()) == 1

    await until(is_swept, "the slots of others are cleared")
    [container] = (await broker.client.describe()).containers
    assert [one.pid for one in container.processes] == [tenant.pid]


def _word(pid: int) -> int:
    """The owner word of a living process."""
    start_ticks = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    return pid % 2**32 + start_ticks % 2**32 * 2**32
