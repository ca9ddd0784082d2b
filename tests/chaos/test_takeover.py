"""Writes that the network delivers after their sender died and another placer took over: no Lease prevents them."""

import contextlib
import random
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest

from tests.chaos.journal import Journal
from tests.chaos.pods import COUNT, MEMORY
from tests.chaos.proxy import Weather
from tests.chaos.world import PODS, Placer, World, world
from tests.servers.objects import pod_manifest
from tests.servers.tickets import answer_in, ticket, ticketing
from tests.servers.waiting import until

LATE_S = 600.0  # longer than the test: the bind arrives when the test hurries it
LEASE_S = "15"
"""The leader must keep its Lease until the test kills it, also if the machine stands still for some seconds."""
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


async def _create(here: World, name: str, limits: Mapping[str, str], priority: str) -> None:
    pod = pod_manifest(name, limits)
    pod["spec"] |= {"priorityClassName": priority, "nodeSelector": {"kubernetes.io/hostname": NODE}}
    assert (await here.insist("POST", PODS, pod)).status == 201


async def _until_bound(here: World, name: str) -> None:
    async def given() -> bool:
        return any(bound.name == name for bound in here.witness.bound.values())

    await until(given)


async def _kill_while_writing(here: World, first: Placer) -> None:
    """Kill a placer that sent a write, which is still on its way."""

    async def sent() -> bool:
        return bool(first.proxy.under_way)

    await until(sent)
    here.down.add(first.name)
    await first.server.kill()


async def _arrive(first: Placer) -> None:
    """Let the late writes of a placer arrive."""
    first.proxy.hurry.set()

    async def arrived() -> bool:
        return not first.proxy.under_way

    await until(arrived)


async def _version(here: World, name: str) -> str:
    answer = await here.api.must("GET", f"{PODS}/{name}")
    return str(answer["metadata"]["resourceVersion"])


@contextlib.asynccontextmanager
async def _late_writes(directory: Path, path: str) -> AsyncIterator[tuple[World, Placer]]:
    """A world whose leader's writes to this end of a path are late, once the test sets that weather."""
    journal = Journal(directory / "journal.jsonl", seed=0)
    with contextlib.closing(journal):
        async with world(directory, journal, seed=0, placers=2, settings={"lease_s": LEASE_S}) as here:
            here.monitors.quiet = True
            first = await _leader(here)
            first.proxy.rng = _Slowest()
            first.proxy.weather = Weather(late_s=LATE_S, late_to=path)
            yield here, first
    assert journal.findings == []


@pytest.mark.slow
async def test_a_bind_of_a_dead_leader_that_arrives_late_takes_no_room_twice(tmp_path: Path) -> None:
    """A bind that is under way when its leader dies does not take a GPU that the next leader gave away."""
    async with _late_writes(tmp_path, "/binding") as (here, first):
        first.proxy.weather.late = 1.0
        await _create(here, "early", {COUNT: "1"}, "chaos-low")
        await _kill_while_writing(here, first)
        await _create(here, "urgent", {COUNT: "1"}, "chaos-high")
        await _until_bound(here, "urgent")
        await _arrive(first)
        early = await here.api.must("GET", f"{PODS}/early")
        assert "nodeName" not in early["spec"]


@pytest.mark.slow
async def test_a_resize_of_a_dead_leader_that_arrives_late_changes_nothing(tmp_path: Path) -> None:
    """The next leader carries out the ticket of a dead one, and the dead one's late write then fails."""
    async with _late_writes(tmp_path, "/grows") as (here, first):
        await _create(here, "grows", {MEMORY: "8Gi"}, "chaos-low")
        await _until_bound(here, "grows")
        first.proxy.weather.late = 1.0
        text = ticket(container="main", gpu_memory="60Gi")
        await here.insist("PATCH", f"{PODS}/grows", ticketing(text))
        await _kill_while_writing(here, first)

        async def is_answered() -> bool:
            pod = await here.insist("GET", f"{PODS}/grows")
            return bool(answer_in(pod.body, text))

        await until(is_answered)
        version = await _version(here, "grows")
        await _arrive(first)
        assert await _version(here, "grows") == version
