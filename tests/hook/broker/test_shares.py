"""Compute shares under a real broker, with stand-ins that behave as hooked programs with endless work do."""

import asyncio
import os
import signal
import time

import pytest

from plimsoll.brokerclient import RefusedError
from plimsoll.brokerwire import ContainerLines, Line, Register
from plimsoll.layout import (
    GATE_MAGIC,
    GATE_METERED,
    GATE_OPEN,
    GATE_SHUT,
    SHARE_UNFINISHED,
    SHARE_WANTS,
    VERSION,
)
from plimsoll.names import GpuUuid, PodUid
from plimsoll.processes import read_stat
from tests.hook.broker.conftest import GIB, GPUS, MAIN, POD, Broker, Process, until
from tests.hook.broker.gateview import GateView

OTHER = PodUid("other")
THIRD = PodUid("third")


def sharing(
    pod: PodUid,
    share_pct: int,
    limit_pct: int = 100,
    gpus: tuple[GpuUuid, ...] = GPUS[:1],
    *,
    whole: bool = False,
) -> Register:
    """A pod of one container with the same share of these GPUs."""
    lines = tuple(Line(gpu=gpu, line_bytes=GIB, share_pct=share_pct, limit_pct=limit_pct) for gpu in gpus)
    container = ContainerLines(name=MAIN, lines=lines, whole=whole)
    return Register(pod=pod, namespace="default", name="train", containers=(container,))


async def begun(broker: Broker, registration: Register) -> Process:
    """A stand-in in a container that is registered so."""
    await broker.client.register(registration)
    process = await broker.spawn(pod=registration.pod)
    await process.begin()
    return process


async def until_state(gate: GateView, state: int) -> None:
    """Wait until a gate is in this state."""

    async def is_so() -> bool:
        return gate.state == state

    await until(is_so, f"the gate is {state}")


async def until_let(gate: GateView) -> None:
    """Wait until a gate lets launches pass."""

    async def is_so() -> bool:
        return gate.state != GATE_SHUT

    await until(is_so, "the gate lets pass")


async def shares_pct(seconds: float, *processes: Process) -> list[float]:
    """Let all of them work at once for so long; how much of that time each was at work."""
    busy_ns = await asyncio.gather(*(process.do(f"work {seconds}") for process in processes))
    return [int(each) / seconds / 1e7 for each in busy_ns]


async def test_two_that_want_all_have_what_they_requested(broker: Broker) -> None:
    """Each of two containers is let through for its request's part of the time."""
    small, big = await begun(broker, sharing(POD, 30)), await begun(broker, sharing(OTHER, 70))
    used = await shares_pct(4, small, big)
    assert used == pytest.approx([30, 70], abs=6)


async def test_a_limit_holds_one_that_is_alone(broker: Broker) -> None:
    """Nobody else wants the GPU, and yet the container has no more of it than its limit."""
    alone = await begun(broker, sharing(POD, 20, 40))
    assert await shares_pct(3, alone) == pytest.approx([40], abs=6)


async def test_changed_terms_hold_at_once(broker: Broker) -> None:
    """A container registered anew with another limit is held to that, on the page and at its gate."""
    alone = await begun(broker, sharing(POD, 20, 40))
    await broker.client.register(sharing(POD, 50, 70))
    line = broker.limits().gpus[0]
    assert (line.share_pct, line.limit_pct) == (50, 70)
    assert await shares_pct(3, alone) == pytest.approx([70], abs=6)


async def test_two_processes_of_one_container_have_one_budget(broker: Broker) -> None:
    """What two processes of a container use at the same time counts once, and is held to the one limit."""
    one = await begun(broker, sharing(POD, 20, 40))
    other = await broker.spawn()
    await other.begin()
    used = await shares_pct(3, one, other)
    assert used == pytest.approx([40, 40], abs=8)


async def test_one_that_holds_two_gpus_has_both_or_none(broker: Broker) -> None:
    """A container of two GPUs and one on each of them share time: the pair runs when neither of the others does."""
    pair = await begun(broker, sharing(POD, 40, gpus=GPUS))
    left = await begun(broker, sharing(OTHER, 60, gpus=GPUS[:1]))
    right = await begun(broker, sharing(THIRD, 60, gpus=GPUS[1:]))
    used = await shares_pct(4, pair, left, right)
    assert used[0] == pytest.approx(40, abs=8)
    for beside in used[1:]:
        assert (
            75 < used[0] + beside < 108
        )  # less than all of it where the machine is busy and programs wake late


async def test_whole_gpus_are_never_shut(broker: Broker) -> None:
    """Whoever owns its GPUs finds its gate open, whoever else is registered on them, and whatever it reports."""
    whole = await begun(broker, sharing(POD, 0, whole=True))
    gate = GateView(broker.limits_dir())
    assert gate.state == GATE_OPEN
    other = await begun(broker, sharing(OTHER, 20, 90))
    await whole.do(f"share {SHARE_UNFINISHED}")
    await other.do(f"share {SHARE_WANTS}")
    await until_state(GateView(broker.limits_dir(OTHER)), GATE_METERED)
    assert gate.state == GATE_OPEN


async def test_a_killed_holder_gives_way(broker: Broker) -> None:
    """A process is killed at work: another container goes on at once, though a child holds the connection open."""
    await broker.kill()
    await broker.start(share_grace_ms="60000")  # nobody goes on for having waited long enough
    holder, waiter = await begun(broker, sharing(POD, 50)), await begun(broker, sharing(OTHER, 50))
    gates = GateView(broker.limits_dir()), GateView(broker.limits_dir(OTHER))
    await holder.do(f"share {SHARE_WANTS}")
    await until_let(gates[0])
    await holder.do(f"share {SHARE_UNFINISHED} 0 1")
    child = int(await holder.do("fork"))
    try:
        await waiter.do(f"share {SHARE_WANTS}")
        await until_state(gates[0], GATE_SHUT)
        assert gates[1].state == GATE_SHUT
        await holder.kill()
        killed_s = time.monotonic()
        await until_let(gates[1])
        assert time.monotonic() - killed_s < 30
    finally:
        os.kill(child, signal.SIGKILL)


async def test_a_stopped_holder_does_not_stop_others(broker: Broker) -> None:
    """A process is stopped while its container holds the token, and another container works nearly all the time."""
    holder, waiter = await begun(broker, sharing(POD, 50)), await begun(broker, sharing(OTHER, 50))
    await holder.do(f"share {SHARE_WANTS}")
    await until_let(GateView(broker.limits_dir()))
    await holder.do(f"share {SHARE_UNFINISHED} 0 1")
    os.kill(holder.pid, signal.SIGSTOP)
    try:
        used = await shares_pct(4, waiter)
    finally:
        os.kill(holder.pid, signal.SIGCONT)
    assert used[0] > 60


async def test_who_becomes_another_program_is_waited_for_no_more(broker: Broker) -> None:
    """A process hangs up while it waits, and lives on: its container is not given time that nobody would use."""
    leaves, stays = await begun(broker, sharing(POD, 50)), await begun(broker, sharing(OTHER, 50))
    await leaves.do(f"share {SHARE_WANTS}")
    await until_let(GateView(broker.limits_dir()))
    await leaves.do(f"share {SHARE_UNFINISHED} 0 1")
    await leaves.do("hang-up")
    used = await shares_pct(3, stays)
    assert used[0] > 85


async def test_more_than_all_of_a_gpu_is_not_promised(broker: Broker) -> None:
    """A share past what is left is refused with field, value and remedy, and nothing has changed."""
    await broker.client.register(sharing(POD, 70))
    with pytest.raises(RefusedError) as caught:
        await broker.client.register(sharing(OTHER, 40))
    said = str(caught.value)
    assert "containers[0].lines[0].share_pct: 40 brings the shares promised of GPU-aaaa to 110" in said
    assert f"give at most 30, or unregister one of {POD} (70)" in said
    assert not broker.limits_dir(OTHER).exists()
    await broker.client.register(sharing(OTHER, 30))
    with pytest.raises(
        RefusedError, match="75 brings the shares promised of GPU-aaaa to 105; give at most 70"
    ):
        await broker.client.register(sharing(POD, 75))
    assert broker.limits().gpus[0].share_pct == 70
    await broker.client.register(sharing(POD, 60))
    await broker.client.register(sharing(OTHER, 40))


async def test_a_restart_refuses_nothing_that_stands(broker: Broker) -> None:
    """Under a new broker the same pods may be registered again, and the same sum holds."""
    for pod in (POD, OTHER):
        await broker.client.register(sharing(pod, 50))
    await broker.kill()
    await broker.start()
    for pod in (POD, OTHER):
        await broker.client.register(sharing(pod, 50))
    with pytest.raises(RefusedError, match="take another GPU, or unregister one of"):
        await broker.client.register(sharing(THIRD, 1))


async def test_the_gate_stays_the_same_file(broker: Broker) -> None:
    """Neither registering anew, nor a restart, nor a damaged page gives waiting processes another file to miss."""
    await broker.client.register(sharing(POD, 50, 60))
    path = broker.limits_dir() / "gate"
    before, gate = path.stat().st_ino, GateView(broker.limits_dir())
    await broker.client.register(sharing(POD, 40, 50))
    await broker.kill()
    with path.open("r+b") as file:
        file.write(b"\xff" * 16)
    word = gate.word
    await broker.start()
    assert path.stat().st_ino == before
    assert (gate.page.magic, gate.page.version) == (GATE_MAGIC, VERSION)
    assert gate.word != word


async def test_a_broker_that_is_killed_is_replaced(broker: Broker) -> None:
    """Two programs go on through it; the new broker holds them to their shares, and tells that nobody had."""
    processes = [await begun(broker, sharing(POD, 30)), await begun(broker, sharing(OTHER, 70))]
    working = asyncio.create_task(shares_pct(8, *processes))
    await until_state(GateView(broker.limits_dir()), GATE_SHUT)
    await broker.kill()
    await broker.start()
    assert await working == pytest.approx([30, 70], abs=15)
    entries = [entry for entry in broker.journaled() if entry.what == "unenforced"]
    assert {entry.pid for entry in entries} == {process.pid for process in processes}
    assert all("nobody held this process to its share" in entry.text for entry in entries)


async def test_a_beat_shows_that_the_broker_lives(broker: Broker) -> None:
    """Where somebody may wait the beat goes on, and stops with the broker."""
    await broker.client.register(sharing(POD, 20, 40))
    gate = GateView(broker.limits_dir())
    first = gate.page.beat

    async def has_beaten() -> bool:
        return bool(gate.page.beat != first)

    await until(has_beaten, "a beat")


async def test_a_flood_of_reports_delays_nobody_else(broker: Broker) -> None:
    """One tenant sends nothing but reports; two others share their GPU as ever, and requests are answered."""
    flooder = await begun(broker, sharing(THIRD, 10, gpus=GPUS[1:]))
    small, big = await begun(broker, sharing(POD, 30)), await begun(broker, sharing(OTHER, 70))
    flood = asyncio.create_task(flooder.do(f"share-for 5 {SHARE_WANTS}"))
    used = await shares_pct(4, small, big)
    assert await broker.process_count() == 3
    await flood
    assert used == pytest.approx([30, 70], abs=10)


async def test_a_report_is_not_believed_for_another(broker: Broker) -> None:
    """A report in another process's name costs a log line, and the connection goes on."""
    process = await begun(broker, sharing(POD, 20, 40))
    await process.do("claim-to-be 12345")
    await process.do(f"share {SHARE_WANTS}")
    await process.do("claim-to-be 0")
    gate = GateView(broker.limits_dir())
    assert gate.state == GATE_SHUT
    await process.do(f"share {SHARE_WANTS}")
    await until_state(gate, GATE_METERED)
    problems = [line["problem"] for line in broker.log("datagram_damaged")]
    assert len(problems) == 1
    assert problems[0].startswith("owner: 12345 is not ")


async def test_one_connection_is_left_to_others(broker: Broker) -> None:
    """Reports over a connection that stays open take nothing of `connections_max`."""
    await broker.kill()
    await broker.start(connections_max="1")
    process = await begun(broker, sharing(POD, 20, 40))
    await broker.announced(1)  # so the greeting's connection is gone
    await process.do(f"share {SHARE_WANTS}")
    await until_state(GateView(broker.limits_dir()), GATE_METERED)
    await process.do("unknown cuFoo")
    assert [entry.what for entry in await broker.announced(2)] == ["hello", "unknown"]


async def test_a_dead_process_leaves_no_connection_to_its_child(broker: Broker) -> None:
    """Who inherited it may say nothing for ever; the broker closes it, and has files left for others."""
    process = await begun(broker, sharing(POD, 20, 40))
    await process.do(f"share {SHARE_WANTS}")
    await until_state(GateView(broker.limits_dir()), GATE_METERED)
    child = int(await process.do("heir"))
    await process.kill()

    async def has_seen_its_end() -> bool:
        stat = await asyncio.to_thread(read_stat, child)
        return stat is None or stat.has_ended

    await until(has_seen_its_end, "the connection is closed")
