"""The broker frees what processes held, for every way of dying."""

import asyncio
import os
import signal
from collections import Counter
from itertools import pairwise

import pytest

from plimsoll.broker.announcements import Context, Denied, Exited, Hello, Unknown
from tests.hook.broker.conftest import GIB, GPUS, POD, Broker, gpu_of, registration, until

LIFE = ["hello", *["unknown"] * 8, "denied", "exited"]
"""The announcements of a stand-in that denies and dies on command."""

SENT_S = 0.1
"""The seconds after which a request is in a stopped broker's socket."""


async def test_kill_9_gives_everything_back(broker: Broker) -> None:
    """A killed process's words and slot become zero, its neighbour's stay, and its exit is announced."""
    await broker.client.register(registration())
    victim, neighbour = await broker.spawn(), await broker.spawn()
    await victim.begin(5 * GIB)
    await neighbour.begin(7 * GIB)
    await broker.announced(2, contexts=False)
    assert await broker.process_count() == 2
    await victim.kill()
    entries = await broker.announced(3, contexts=False)
    assert [(entry.what, entry.pid) for entry in entries] == [
        ("hello", victim.pid),
        ("hello", neighbour.pid),
        ("exited", victim.pid),
    ]
    assert entries[2].start_ticks == entries[0].start_ticks
    await until(lambda: _holds(broker, 7 * GIB), "only the neighbour's bytes are left")
    assert len(broker.owners()) == 1


async def test_a_forked_child_does_not_keep_its_dead_parent_alive(broker: Broker) -> None:
    """A child with every descriptor of its dead parent, the socket included, delays the burial only by a moment."""
    await broker.client.register(registration())
    parent = await broker.spawn()
    await parent.do("hold")
    await parent.begin(GIB)
    child = int(await parent.do("fork"))
    try:
        await parent.kill()
        assert (await broker.announced(2, contexts=False))[1].what == "exited"
        await broker.until_vacant()
        os.kill(child, 0)  # the child lives
    finally:
        os.kill(child, signal.SIGKILL)


async def test_two_hundred_processes(broker: Broker) -> None:
    """Two hundred processes of one container are told apart, described, and buried."""
    await broker.client.register(registration())
    parent = await broker.spawn()
    children = [int(pid) for pid in (await parent.do("family 200")).split()]
    try:
        hellos = await broker.announced(200, contexts=False)
        assert Counter(entry.pid for entry in hellos) == Counter(children)
        container = (await broker.client.describe()).containers[0]
        held = {process.pid: process.used_bytes for process in container.processes}
        assert held == {pid: (n + 1, 0) for n, pid in enumerate(children)}
    finally:
        for pid in children:
            os.kill(pid, signal.SIGKILL)
    entries = await broker.announced(400, contexts=False)
    assert Counter(entry.pid for entry in entries if entry.what == "exited") == Counter(children)
    assert all(one.seq < other.seq for one, other in pairwise(entries))
    await broker.until_vacant()


async def test_last_words_come_before_the_exit(broker: Broker) -> None:
    """A denial that arrives with its process's death is announced before the exit."""
    await broker.client.register(registration())
    for turn in range(1, 6):
        process = await broker.spawn()
        await process.begin()
        await broker.announced((turn - 1) * len(LIFE) + 1)
        with pytest.raises(AssertionError):
            await process.do(f"deny-and-die {GPUS[0]}")
        await process.kill()
        entries = await broker.announced(turn * len(LIFE))
        assert [entry.what for entry in entries] == LIFE * turn
    await broker.until_vacant()


async def test_last_words_come_before_the_pod_is_removed(broker: Broker) -> None:
    """A denial, its process's death and the pod's removal arrive together, and all are announced."""
    for turn in range(1, 6):
        await broker.client.register(registration())
        process = await broker.spawn()
        await process.begin()
        await broker.announced((turn - 1) * len(LIFE) + 1)
        os.kill(broker.pid, signal.SIGSTOP)
        with pytest.raises(AssertionError):
            await process.do(f"deny-and-die {GPUS[0]}")
        await process.kill()
        removal = asyncio.create_task(broker.client.unregister(POD))
        await asyncio.sleep(SENT_S)  # A stopped broker gives no sign that the request has arrived.
        os.kill(broker.pid, signal.SIGCONT)
        await removal
        await until(lambda: _is_gone(broker), "the pod is removed")
        assert [entry.what for entry in broker.journaled()] == LIFE * turn


async def test_each_step_of_a_life_is_announced_once(broker: Broker) -> None:
    """A repeated greeting or context is announced once, and an unknown function once by its name."""
    await broker.client.register(registration())
    process = await broker.spawn()
    await process.begin()
    for command in ("send hello", f"send context {GPUS[1]}", "unknown cuFoo"):
        await process.do(command)
        await process.do(command)
    await process.do("unknown cuBar")
    await process.do(f"deny {GPUS[0]} 4096")
    await process.do(f"deny {GPUS[0]} 4097")
    await process.kill()
    entries = await broker.announced(6)
    assert [type(entry) for entry in entries] == [Hello, Context, Unknown, Unknown, Denied, Exited]
    _, context, foo, bar, denied, _ = entries
    assert gpu_of(context) == GPUS[1]
    assert [entry.text for entry in (foo, bar) if isinstance(entry, Unknown)] == ["cuFoo", "cuBar"]
    assert isinstance(denied, Denied)
    assert (denied.gpu, denied.text, denied.requested_bytes) == (GPUS[0], "", 4096)


async def test_the_audit_finds_whom_no_event_told_of(broker: Broker) -> None:
    """The audit announces a process that claimed a slot without a greeting, and clears the slot of a dead one."""
    await broker.client.register(registration())
    alive, dead = await broker.spawn(), await broker.spawn()
    for process in (alive, dead):
        await process.do("claim")
    await dead.do(f"use 0 {GIB}")
    await alive.do("use 1 4096")
    await dead.kill()
    assert len(broker.owners()) == 2
    await broker.stop()
    await broker.start(audit_s="0.05")
    late = await broker.spawn()
    await late.do("claim")
    entries = await broker.announced(3)
    assert [(entry.what, entry.pid, gpu_of(entry)) for entry in entries] == [
        ("hello", alive.pid, None),
        ("context", alive.pid, GPUS[1]),
        ("hello", late.pid, None),
    ]
    await until(lambda: _owner_count(broker, 2), "the dead one's slot is swept")


async def test_a_process_in_its_own_pid_namespace_is_known_by_its_host_pid(broker: Broker) -> None:
    """A process that is pid 1 in its container is announced, adopted and buried by its host pid."""
    if os.geteuid() != 0:
        pytest.skip("making a pid namespace needs root")
    await broker.client.register(registration())
    process = await broker.spawn("unshare", "--pid", "--fork", "--kill-child")
    await process.begin(GIB)
    assert broker.owners()[0] % 2**32 == 1
    hello = (await broker.announced(1))[0]
    assert hello.pid not in {1, process.pid}
    os.kill(hello.pid, 0)  # the process exists
    await broker.kill()
    await broker.start()
    assert (await broker.client.describe()).containers[0].processes[0].pid == hello.pid
    await process.kill()
    exited = (await broker.announced(2, contexts=False))[1]
    assert (exited.what, exited.pid) == ("exited", hello.pid)
    await broker.until_vacant()


async def test_a_pid_used_again_is_another_process(broker: Broker) -> None:
    """A recorded process whose pid has another start time now is announced as exited."""
    await broker.client.register(registration())
    process = await broker.spawn()
    await process.begin()
    hello = (await broker.announced(1))[0]
    await broker.kill()
    journal = broker.root / "journal"
    recorded = journal.read_text()
    journal.write_text(recorded.replace(f'"start_ticks":{hello.start_ticks}', '"start_ticks":1'))
    await broker.start()
    entries = await broker.announced(3)
    assert [(entry.what, entry.start_ticks) for entry in entries[1:]] == [
        ("exited", 1),
        ("hello", hello.start_ticks),
    ]
    assert await broker.process_count() == 1


async def _holds(broker: Broker, used_bytes: int) -> bool:
    return bool(sum(slot.used_bytes[0] for slot in broker.counts(POD).slots) == used_bytes)


async def _is_gone(broker: Broker) -> bool:
    return not broker.limits_dir().exists()


async def _owner_count(broker: Broker, count: int) -> bool:
    return len(broker.owners()) == count
