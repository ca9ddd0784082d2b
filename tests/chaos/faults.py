"""The faults: each begins, lasts, and undoes itself. Two faults never hold the same process or node at once.

Every pause of `for_s` is the duration of a fault, as the plan has it.
"""

import asyncio
import base64
import contextlib
import os
import signal
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final

import aiohttp

from plimsoll_cli.demo.servers import EmbeddedServer
from tests.chaos.fleet import FLEET, ZONE, Machine
from tests.chaos.plan import Step
from tests.chaos.proxy import Weather
from tests.chaos.world import Placer, World, create_machine, end


@dataclass(slots=True)
class Breaker:
    """Carries a plan out.

    Attributes:
        active: the faults that are under way.
        done: how often each fault was done.
    """

    world: World
    active: list[str] = field(default_factory=list)
    done: dict[str, int] = field(default_factory=dict)
    _locks: defaultdict[str, asyncio.Lock] = field(default_factory=lambda: defaultdict(asyncio.Lock))

    async def run(self, plan: Sequence[Step]) -> None:
        """Do all steps, each in its time; returns once the last has undone itself."""
        started_s = asyncio.get_running_loop().time()
        async with asyncio.TaskGroup() as group:
            for step in plan:
                # The plan says when the step begins.
                await asyncio.sleep(max(0.0, started_s + step.at_s - asyncio.get_running_loop().time()))
                group.create_task(self._do(step), name=f"fault: {step.fault}")

    async def _do(self, step: Step) -> None:
        fault, target = _TABLE[step.fault]
        async with self._locks[target(self.world, step)]:
            label = f"{step.fault} {target(self.world, step)}"
            self.active.append(label)
            self.world.journal.note(
                "fault", fault=step.fault, target=target(self.world, step), for_s=step.for_s
            )
            try:
                await fault(self.world, step)
            finally:
                self.active.remove(label)
            self.done[step.fault] = self.done.get(step.fault, 0) + 1
            self.world.journal.note("over", fault=step.fault)


def _placer_of(world: World, step: Step) -> Placer:
    return world.placers[step.which % len(world.placers)]


def _machine_of(step: Step) -> Machine:
    return FLEET[step.which % len(FLEET)]


async def _kill_placer(world: World, step: Step) -> None:
    placer = _placer_of(world, step)
    world.down.add(placer.name)
    await placer.server.kill()
    await asyncio.sleep(step.for_s)
    await placer.server.start()
    world.down.discard(placer.name)


async def _terminate_placer(world: World, step: Step) -> None:
    placer = _placer_of(world, step)
    world.down.add(placer.name)
    if not await end(placer):
        world.journal.find(f"{placer.name} did not end on SIGTERM")
    await asyncio.sleep(step.for_s)
    await placer.server.start()
    world.down.discard(placer.name)


async def _pause(server: EmbeddedServer, for_s: float) -> None:
    pid = server.pid
    with contextlib.suppress(ProcessLookupError):  # it may end by itself
        os.kill(pid, signal.SIGSTOP)
    try:
        await asyncio.sleep(for_s)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


async def _restart(server: EmbeddedServer, for_s: float) -> None:
    await server.kill()
    await asyncio.sleep(for_s)
    await server.start()


async def _compact(world: World, step: Step) -> None:
    """Have etcd forget all old versions, and the API server its memory of them: the next watches get a real 410."""
    key = base64.b64encode(b"/registry/health").decode()
    async with aiohttp.ClientSession(world.plane.etcd.url) as http:
        async with http.post("/v3/kv/range", json={"key": key}) as answer:
            revision = (await answer.json())["header"]["revision"]
        async with http.post("/v3/kv/compaction", json={"revision": revision, "physical": True}) as answer:
            await answer.read()
    await _restart(world.plane.server, step.for_s)


@asynccontextmanager
async def _weather(placer: Placer, changes: Mapping[str, Any]) -> AsyncIterator[None]:
    """Change a proxy's weather, and change it back."""
    before = {name: getattr(Weather(), name) for name in changes}
    placer.proxy.weather = replace(placer.proxy.weather, **changes)
    try:
        yield
    finally:
        placer.proxy.weather = replace(placer.proxy.weather, **before)


def _bad_weather(**changes: float) -> Callable[[World, Step], Awaitable[None]]:
    async def fault(world: World, step: Step) -> None:
        placer = _placer_of(world, step)
        async with _weather(placer, changes):
            if changes.keys() & {"gone", "cut_off"}:
                placer.proxy.cut_watches()
            await asyncio.sleep(step.for_s)

    return fault


async def _cut_watches(world: World, step: Step) -> None:
    for _ in range(3):
        _placer_of(world, step).proxy.cut_watches()
        await asyncio.sleep(step.for_s / 3)


async def _delete_node(world: World, step: Step) -> None:
    machine = _machine_of(step)
    world.missing.add(machine.name)
    await world.insist("DELETE", f"/api/v1/nodes/{machine.name}")
    await asyncio.sleep(step.for_s)
    await create_machine(world, machine)
    world.missing.discard(machine.name)


def _change_node(change: Mapping[str, object]) -> Callable[[World, Step], Awaitable[None]]:
    async def fault(world: World, step: Step) -> None:
        machine = _machine_of(step)
        world.cordoned.add(machine.name)
        await world.insist("PATCH", f"/api/v1/nodes/{machine.name}", change)
        await asyncio.sleep(step.for_s)
        await create_machine(world, machine)
        world.cordoned.discard(machine.name)

    return fault


async def _silent_monitor(world: World, step: Step) -> None:
    voice = world.monitors.voices[_machine_of(step).name]
    voice.silent = True
    await asyncio.sleep(step.for_s)
    voice.silent = False


async def _restart_monitor(world: World, step: Step) -> None:
    voice = world.monitors.voices[_machine_of(step).name]
    voice.silent = True
    await asyncio.sleep(step.for_s)
    voice.epoch, voice.seq, voice.silent = voice.epoch + 1, 0, False


async def _late_report(world: World, step: Step) -> None:
    await world.monitors.repeat_late(world.monitors.voices[_machine_of(step).name])
    await asyncio.sleep(step.for_s)


Fault = Callable[[World, Step], Awaitable[None]]
Target = Callable[[World, Step], str]


def _its_process(world: World, step: Step) -> str:
    return _placer_of(world, step).name


def _its_weather(what: str) -> Target:
    return lambda world, step: f"{what} of {_placer_of(world, step).name}"


def _its_node(_: World, step: Step) -> str:
    return _machine_of(step).name


def _its_monitor(_: World, step: Step) -> str:
    return f"monitor of {_machine_of(step).name}"


def _one(name: str) -> Target:
    return lambda _, __: name


def _on_weather(**changes: float) -> tuple[Fault, Target]:
    return _bad_weather(**changes), _its_weather(" ".join(sorted(changes)))


_TAINT: Final = {"spec": {"taints": [{"key": "chaos", "value": "yes", "effect": "NoSchedule"}]}}

_TABLE: Final[dict[str, tuple[Fault, Target]]] = {
    "kill placer": (_kill_placer, _its_process),
    "terminate placer": (_terminate_placer, _its_process),
    "pause placer": (lambda world, step: _pause(_placer_of(world, step).server, step.for_s), _its_process),
    "kill valkey": (lambda world, step: _restart(world.valkey, step.for_s), _one("valkey")),
    "pause valkey": (lambda world, step: _pause(world.valkey, step.for_s), _one("valkey")),
    "kill nats": (lambda world, step: _restart(world.nats, step.for_s), _one("nats")),
    "pause nats": (lambda world, step: _pause(world.nats, step.for_s), _one("nats")),
    "kill api server": (lambda world, step: _restart(world.plane.server, step.for_s), _one("api server")),
    "pause api server": (lambda world, step: _pause(world.plane.server, step.for_s), _one("api server")),
    "compact etcd": (_compact, _one("api server")),
    "cut watches": (_cut_watches, _its_weather("watches")),
    "stall watches": _on_weather(watches_stalled=True),
    "lag watches": _on_weather(watch_lag_s=2.0),
    "410": _on_weather(gone=True),
    "slow": _on_weather(slow_s=1.5),
    "refuse": _on_weather(refused=0.3),
    "forbid binds": _on_weather(forbidden=0.5),
    "lose answers": _on_weather(answers_lost=0.5),
    "late writes": _on_weather(late=0.5),
    "cut off": _on_weather(cut_off=True),
    "cut off leases": _on_weather(leases_cut_off=True),
    "delete node": (_delete_node, _its_node),
    "cordon node": (_change_node({"spec": {"unschedulable": True}}), _its_node),
    "label node": (_change_node({"metadata": {"labels": {ZONE: "nowhere"}}}), _its_node),
    "taint node": (_change_node(_TAINT), _its_node),
    "silent monitor": (_silent_monitor, _its_monitor),
    "restart monitor": (_restart_monitor, _its_monitor),
    "late report": (_late_report, _its_monitor),
}
