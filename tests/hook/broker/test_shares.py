"""Compute shares under a real broker, with stand-ins that behave like hooked programs with endless work."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence

import pytest

from plimsoll.broker.announcements import ShareUnenforced
from plimsoll.broker.client import RefusedError
from plimsoll.broker.pages import (
    GATE_MAGIC,
    GATE_METERED,
    GATE_OPEN,
    GATE_SHUT,
    LATE_NS,
    VERSION,
)
from plimsoll.broker.wire import ContainerLines, Line, Register
from plimsoll.ids import GpuUuid, PodUid
from tests.hook.broker.conftest import (
    GIB,
    GPUS,
    MAIN,
    POD,
    Broker,
    Process,
    until,
)
from tests.hook.broker.gateview import GateView
from tests.servers.waiting import PATIENCE_S

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
    """Start a stand-in in a container with this registration."""
    await broker.client.register(registration)
    process = await broker.spawn(pod=registration.pod)
    await process.begin()
    return process


async def until_state(gate: GateView, state: int) -> None:
    """Wait until a gate is in this state."""

    async def is_so() -> bool:
        return gate.state == state

    await until(is_so, f"the gate is {state}")


async def bursts_of(seconds: float, *processes: Process) -> list[list[tuple[int, int]]]:
    """Let all stand-ins work for this long; returns begin and end of each one's bursts, in nanoseconds."""
    answers = await asyncio.gather(*(process.do(f"work {seconds}") for process in processes))
    bursts = [[burst.split("-") for burst in answer.split()[1:]] for answer in answers]
    return [[(int(begin), int(end)) for begin, end in each] for each in bursts]


async def at_work_pct(seconds: float, *processes: Process) -> list[float]:
    """Let all stand-ins work for this long; returns the percentage of the time in which each gate let them."""
    bursts = await bursts_of(seconds, *processes)
    return [sum(end - begin for begin, end in each) / seconds / 1e7 for each in bursts]


async def until_pct(
    measured: Callable[[], Awaitable[list[float]]], holds: Callable[[Sequence[float]], bool]
) -> None:
    """Measure until a span meets a condition: a span in which the machine stood still shows nothing."""
    seen: list[list[float]] = []
    try:
        async with asyncio.timeout(PATIENCE_S):
            while not seen or not holds(seen[-1]):
                seen.append(await measured())
    except TimeoutError:
        pytest.fail(f"not reached in {PATIENCE_S} s; seen {seen}")


async def used_pct(seconds: float, one: Process, other: Process) -> list[float]:
    """Let both work for this long; returns how much of the GPU each has, in percent of the time.

    It has all of it where it works alone, and half of it where both do.
    """
    bursts = await bursts_of(seconds, one, other)
    together_ns = sum(
        max(0, min(end, others_end) - max(begin, others_begin))
        for begin, end in bursts[0]
        for others_begin, others_end in bursts[1]
    )
    return [(sum(end - begin for begin, end in each) - together_ns / 2) / seconds / 1e7 for each in bursts]


async def test_two_that_want_all_have_what_they_requested(broker: Broker) -> None:
    """The container of 30 works for 60 % of the time, in which it has half of the GPU; the other works always.

    Programs and gates are slower on a busy machine.
    """
    small, big = await begun(broker, sharing(POD, 30)), await begun(broker, sharing(OTHER, 70))
    await until_pct(lambda: at_work_pct(4, small, big), lambda used: 35 < used[0] < 70 < used[1])


async def test_a_limit_holds_one_that_is_alone(broker: Broker) -> None:
    """A container alone on the GPU gets no more of it than its limit."""
    alone = await begun(broker, sharing(POD, 20, 40))
    await until_pct(lambda: at_work_pct(3, alone), lambda used: used == pytest.approx([40], abs=6))


async def test_changed_terms_hold_at_once(broker: Broker) -> None:
    """A new limit holds at once, on the page and at the gate."""
    alone = await begun(broker, sharing(POD, 20, 40))
    await broker.client.register(sharing(POD, 50, 70))
    line = broker.limits().gpus[0]
    assert (line.share_pct, line.limit_pct) == (50, 70)
    await until_pct(lambda: at_work_pct(3, alone), lambda used: used == pytest.approx([70], abs=6))


async def test_two_processes_of_one_container_have_one_budget(broker: Broker) -> None:
    """Two processes of a container that work at the same time get the limit together, and half of it each.

    On a busy machine one may be woken long after the other, and so get less.
    """
    one = await begun(broker, sharing(POD, 20, 40))
    other = await broker.spawn()
    await other.begin()
    await until_pct(
        lambda: used_pct(3, one, other),
        lambda used: sum(used) == pytest.approx(40, abs=6) and min(used) > 40 / 4,
    )


async def test_whole_gpus_are_never_shut(broker: Broker) -> None:
    """A container that owns its GPUs has an open gate for any words and beside any other container."""
    whole = await begun(broker, sharing(POD, 0, whole=True))
    gate = GateView(broker.limits_dir())
    assert gate.state == GATE_OPEN
    other = await begun(broker, sharing(OTHER, 20, 90))
    await whole.do("launch")
    await other.do("launch")
    await until_state(GateView(broker.limits_dir(OTHER)), GATE_METERED)
    assert gate.state == GATE_OPEN


async def test_one_that_is_alone_is_not_metered_until_another_wants_its_gpu(broker: Broker) -> None:
    """A gate is open beside an idle container, metered from that one's first launch on, and later open again."""
    first, second = await begun(broker, sharing(POD, 50)), await begun(broker, sharing(OTHER, 50))
    gates = GateView(broker.limits_dir()), GateView(broker.limits_dir(OTHER))
    await until_state(gates[0], GATE_OPEN)
    await until_state(gates[1], GATE_METERED)
    await first.do("launch")
    await second.do("launch")
    await until_state(gates[0], GATE_METERED)
    await second.do("rest")
    await until_state(gates[0], GATE_OPEN)
    assert gates[1].state == GATE_METERED


async def test_a_killed_process_gives_way(broker: Broker) -> None:
    """After a process is killed at work the other container counts as alone at once, before the slot is cleared."""
    victim, other = await begun(broker, sharing(POD, 50)), await begun(broker, sharing(OTHER, 50))
    gate = GateView(broker.limits_dir(OTHER))
    await victim.do("launch")
    await other.do("launch")
    await until_state(gate, GATE_METERED)
    await victim.kill()
    await until_state(gate, GATE_OPEN)


async def test_a_lost_greeting_is_made_up_for(broker: Broker) -> None:
    """A process that owns a slot and never greeted is held to its share, and the node soon knows it."""
    await broker.client.register(sharing(POD, 20, 40))
    process = await broker.spawn()
    await process.do("claim")
    await process.do("launch")
    await until_state(GateView(broker.limits_dir()), GATE_SHUT)
    assert [entry.what for entry in await broker.announced(1)] == ["hello"]


async def test_more_than_all_of_a_gpu_is_not_promised(broker: Broker) -> None:
    """A share past the free part is refused with field, value and remedy, and nothing changes."""
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
    """Under a new broker the same pods can be registered again, and the same sum holds."""
    for pod in (POD, OTHER):
        await broker.client.register(sharing(pod, 50))
    await broker.kill()
    await broker.start()
    for pod in (POD, OTHER):
        await broker.client.register(sharing(pod, 50))
    with pytest.raises(RefusedError, match="take another GPU, or unregister one of"):
        await broker.client.register(sharing(THIRD, 1))


async def test_the_gate_stays_the_same_file(broker: Broker) -> None:
    """Registrations, a restart and a damaged page leave the gate file in place, as processes wait on it."""
    await broker.client.register(sharing(POD, 50, 60))
    path = broker.limits_dir() / "gate"
    before, gate = path.stat().st_ino, GateView(broker.limits_dir())
    await broker.client.register(sharing(POD, 40, 50))
    await broker.kill()
    with path.open("r+b") as file:
        file.write(b"\xff" * 16)
    await broker.start()
    assert path.stat().st_ino == before
    assert (gate.page.magic, gate.page.version) == (GATE_MAGIC, VERSION)


async def test_a_broker_that_is_killed_is_replaced(broker: Broker) -> None:
    """Two programs go on while the broker is replaced.

    After a long gap the new broker announces that no broker held them.
    """
    processes = [await begun(broker, sharing(POD, 30, 30)), await begun(broker, sharing(OTHER, 70, 70))]
    working = asyncio.create_task(at_work_pct(PATIENCE_S, *processes))
    await until_state(GateView(broker.limits_dir()), GATE_SHUT)
    await broker.kill()
    await asyncio.sleep(LATE_NS / 1e9 + 0.1)  # the next broker announces a gap that was longer than this
    await broker.start()

    async def is_announced() -> bool:
        entries = [entry for entry in broker.journaled() if isinstance(entry, ShareUnenforced)]
        assert all("nobody held this process to its share" in entry.text for entry in entries)
        return {entry.pid for entry in entries} == {process.pid for process in processes}

    await until(is_announced, "the gap is announced for each process")
    working.cancel()
    await asyncio.wait([working])


async def test_a_beat_shows_that_the_broker_lives(broker: Broker) -> None:
    """A beat by the kernel's clock goes on wherever a thread may stand."""
    process = await begun(broker, sharing(POD, 20, 40))
    await process.do("launch")
    gate = GateView(broker.limits_dir())
    first = gate.page.beat_ns

    async def has_beaten() -> bool:
        return bool(gate.page.beat_ns > first)

    await until(has_beaten, "a beat")
    assert gate.page.beat_ns <= time.monotonic_ns()
