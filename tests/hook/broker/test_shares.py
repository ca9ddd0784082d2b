"""Compute shares under a real broker, with stand-ins that behave like hooked programs with endless work."""

import time

import pytest

from plimsoll.broker.client import RefusedError
from plimsoll.broker.pages import (
    GATE_MAGIC,
    GATE_METERED,
    GATE_OPEN,
    GATE_SHUT,
    VERSION,
)
from plimsoll.broker.wire import ContainerLines, Line, Register
from plimsoll.ids import PodUid
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

OTHER = PodUid("other")
THIRD = PodUid("third")


def sharing(pod: PodUid, share_pct: int, limit_pct: int = 100) -> Register:
    """A pod of one container with this share of a GPU."""
    line = Line(gpu=GPUS[0], line_bytes=GIB, share_pct=share_pct, limit_pct=limit_pct)
    container = ContainerLines(name=MAIN, lines=(line,))
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
