"""A case that no Lease prevents: the network delivers a bind after its sender died and another placer took over."""

import contextlib
import random
from pathlib import Path

from tests.chaos.journal import Journal
from tests.chaos.pods import COUNT
from tests.chaos.proxy import Weather
from tests.chaos.world import PODS, Placer, World, world
from tests.servers.objects import pod_manifest
from tests.servers.waiting import until

LATE_S = 600.0  # longer than the test: the bind arrives when the test hurries it
NODE = "node-08.chaos"  # it has one GPU


class _Slowest(random.Random):
    """Makes each late write as late as can be."""

    def uniform(self, a: float, b: float) -> float:  # noqa: ARG002 - see the base class
        return b


async def _leader(here: World) -> Placer:
    async def look() -> Placer | None:
        holder = here.leases.holders[-1] if here.leases.holders else ""
        return next((one for one in here.placers if holder.startswith(one.name)), None)

    found = await until(look)
    assert found is not None
    return found


async def _create(here: World, name: str, priority: str) -> None:
    pod = pod_manifest(name, {COUNT: "1"})
    pod["spec"] |= {"priorityClassName": priority, "nodeSelector": {"kubernetes.io/hostname": NODE}}
    assert (await here.insist("POST", PODS, pod)).status == 201


async def test_a_bind_of_a_dead_leader_that_arrives_late_takes_no_room_twice(tmp_path: Path) -> None:
    """A bind that is under way when its leader dies does not take a GPU that the next leader gave away."""
    journal = Journal(tmp_path / "journal.jsonl", seed=0)
    with contextlib.closing(journal):
        await _die_while_binding(tmp_path, journal)
    assert journal.findings == []


async def _die_while_binding(directory: Path, journal: Journal) -> None:
    async with world(directory, journal, seed=0, placers=2, settings={}) as here:
        here.monitors.quiet = True
        first = await _leader(here)
        first.proxy.rng = _Slowest()
        first.proxy.weather = Weather(late=1.0, late_s=LATE_S, late_to="/binding")
        await _create(here, "early", "chaos-low")

        async def sent() -> bool:
            return bool(first.proxy.under_way)

        await until(sent)
        await _create(here, "urgent", "chaos-high")
        here.down.add(first.name)
        await first.server.kill()

        async def given() -> bool:
            return any(bound.name == "urgent" for bound in here.witness.bound.values())

        await until(given)
        first.proxy.hurry.set()

        async def arrived() -> bool:
            return not first.proxy.under_way and here.witness.bound.keys() >= set(first.proxy.binds)

        await until(arrived)
