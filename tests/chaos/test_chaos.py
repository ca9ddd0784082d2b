"""Promises hold through every kind of fault: the short form of `make chaos`."""

import contextlib
from pathlib import Path

import pytest

from tests.chaos.journal import Journal
from tests.chaos.plan import FAULTS, draw_plan, kinds
from tests.chaos.pods import MEMORY, SHARE
from tests.chaos.run import Options, run
from tests.chaos.verdict import settle
from tests.chaos.world import PODS, World, world
from tests.servers.objects import pod_manifest
from tests.servers.tickets import answer_in, ticket, ticketing
from tests.servers.waiting import until

SECONDS = 24.0
SEED = 11


def test_a_plan_is_a_function_of_its_seed() -> None:
    """Equal seeds give equal plans, and another seed gives another plan. A short plan has every fault."""
    assert draw_plan(SEED, SECONDS) == draw_plan(SEED, SECONDS)
    assert draw_plan(SEED, SECONDS) != draw_plan(SEED + 1, SECONDS)
    assert kinds(draw_plan(SEED, SECONDS)) == FAULTS.keys()


@pytest.mark.slow
@pytest.mark.timeout(1200)
async def test_promises_hold_through_every_fault(tmp_path: Path) -> None:
    """While everything breaks no GPU is promised beyond its size, and afterwards every copy of the truth is right."""
    summary = await run(Options(SEED, SECONDS), tmp_path)
    assert summary["findings"] == []
    assert summary["faults"].keys() == FAULTS.keys()
    assert summary["bound"] > 0


async def _resize(here: World, **change: str) -> None:
    """Have a placer change the pod `p`."""
    text = ticket(container="main", **change)
    await here.insist("PATCH", f"{PODS}/p", ticketing(text))

    async def resized() -> bool:
        pod = await here.insist("GET", f"{PODS}/p")
        return answer_in(pod.body, text).get("type") == "resizing"

    await until(resized)


@pytest.mark.slow
async def test_every_placer_counts_what_one_of_them_resized(tmp_path: Path) -> None:
    """After a lowering all placers show the freed room, not only the placer that wrote it."""
    with contextlib.closing(Journal(tmp_path / "journal.jsonl", SEED)) as journal:
        async with world(tmp_path, journal, seed=SEED, placers=2, settings={}) as here:
            here.monitors.quiet = True
            await here.insist("POST", PODS, pod_manifest("p", {MEMORY: "8Gi", SHARE: "50"}))

            async def bound() -> bool:
                return len(here.witness.bound) == 1

            await until(bound)
            await settle(here)
            await _resize(here, gpu_memory="2Gi", gpu_share="10")
            await settle(here, calm_s=60)
        assert journal.findings == []
