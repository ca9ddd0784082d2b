"""A run: build the world, break it for a while, let it calm down, judge it, and sum up."""

import asyncio
import contextlib
import random
import shutil
from collections.abc import AsyncIterator, Coroutine, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.chaos.faults import Breaker
from tests.chaos.fleet import FLEET
from tests.chaos.journal import Journal
from tests.chaos.plan import FAULTS, Step, draw_plan
from tests.chaos.proxy import Weather
from tests.chaos.tenants import Tenants
from tests.chaos.verdict import settle, waiting
from tests.chaos.world import World, create_machine, world

PROGRESS_S: Final = 5.0
"""The pause between two lines of progress."""


@dataclass(frozen=True, slots=True)
class Options:
    """A run's options: the same ones draw the same pods and the same plan.

    Attributes:
        seconds: how long things break; the end takes up to some minutes more.
        placers: placers that run at the same time.
        without: faults that are left out; `edits` leaves the tenants' edits out.
        settings: further settings of the placers, in lower case.
        pods_per_s: pods created in a second, on the mean.
        only: the faults that come; none for all of them.
        labels: pods have locality labels and policies.
    """

    seed: int
    seconds: float
    placers: int = 2
    without: frozenset[str] = frozenset()
    settings: Mapping[str, str] = field(default_factory=dict)
    pods_per_s: float = 8.0
    only: frozenset[str] = frozenset()
    labels: bool = False

    def plan(self) -> list[Step]:
        """The faults of the run, in their order."""
        drawn = draw_plan(self.seed, self.seconds, self.only or FAULTS)
        return [step for step in drawn if step.fault not in self.without]

    def replay(self) -> str:
        """The command that runs the same again."""
        without = f" WITHOUT='{','.join(sorted(self.without))}'" if self.without else ""
        only = f" ONLY='{','.join(sorted(self.only))}'" if self.only else ""
        labels = " LABELS=1" if self.labels else ""
        return f"make chaos SECONDS={self.seconds:g} SEED={self.seed} PLACERS={self.placers}{without}{only}{labels}"


async def run(options: Options, directory: Path) -> dict[str, Any]:
    """Run, and return the summary; its `findings` are what must never happen.

    Args:
        options: see there.
        directory: absolute; for the files of servers and placers, and the journal; emptied first.
    """
    await asyncio.to_thread(shutil.rmtree, directory, ignore_errors=True)
    journal = Journal(directory / "journal.jsonl", options.seed)
    journal.note("options", replay=options.replay())
    try:
        async with world(
            directory, journal, seed=options.seed, placers=options.placers, settings=options.settings
        ) as here:
            plan = options.plan()
            journal.note("plan", steps=[[step.at_s, step.fault, step.which, step.for_s] for step in plan])
            breaker = Breaker(here)
            tenants = Tenants(
                here,
                random.Random(f"{options.seed}/tenants"),
                pods_per_s=options.pods_per_s,
                edits="edits" not in options.without,
                labels=options.labels,
            )
            async with _beside(_report(here, breaker)):
                async with _beside(tenants.run()):
                    started_s = journal.elapsed_s
                    await breaker.run(plan)
                    # The faults may end early; the tenants go on for the time that was asked for.
                    await asyncio.sleep(max(0.0, started_s + options.seconds - journal.elapsed_s))
                await calm(here)
                await settle(here)
            summary = _summary(here, options, breaker, tenants)
            journal.note("summary", **summary)
            return summary
    finally:
        journal.close()


async def calm(here: World) -> None:
    """End all faults for good: every server runs, every node is fit, every monitor reports idle GPUs."""
    here.journal.note("calm")
    for placer in here.placers:
        placer.proxy.weather = Weather()
    for machine in FLEET:
        await create_machine(here, machine)
    here.monitors.quiet = True
    for voice in here.monitors.voices.values():
        voice.silent = False
    await here.pods.listed.wait()


@contextlib.asynccontextmanager
async def _beside(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run a coroutine until the context ends; its failure ends the context."""
    async with asyncio.TaskGroup() as group:
        task = group.create_task(work)
        yield
        task.cancel()


async def _report(here: World, breaker: Breaker) -> None:
    while True:
        await asyncio.sleep(PROGRESS_S)
        findings = len(here.journal.findings)
        print(
            f"{here.journal.elapsed_s:6.0f} s  bound {len(here.witness.bound):5}  waiting {len(waiting(here)):3}"
            f"  checked {here.witness.sums.checks:6}  findings {findings}"
            f"  broken now: {', '.join(breaker.active) or 'nothing'}",
            flush=True,
        )


def _after_takeover(here: World) -> int:
    """The number of binds that were written when another placer already held the Lease."""
    binder = {uid: placer.name for placer in here.placers for uid in placer.proxy.binds}
    found = 0
    for uid, bound in here.witness.bound.items():
        holder = here.leases.holder_at(bound.version)
        if uid in binder and holder and not holder.startswith(binder[uid] + "-"):
            here.journal.note("bound after takeover", pod=bound.name, by=binder[uid], holder=holder)
            found += 1
    return found


def _summary(here: World, options: Options, breaker: Breaker, tenants: Tenants) -> dict[str, Any]:
    return {
        "chaos": "passed" if not here.journal.findings else "failed",
        "seed": options.seed,
        "seconds": options.seconds,
        "placers": options.placers,
        "created": tenants.counts.get("created", 0),
        "bound": len(here.witness.bound),
        "waiting_explained": len(waiting(here)),
        "checks": here.witness.sums.checks,
        "lists": here.pods.lists,
        "faults": dict(sorted(breaker.done.items())),
        "requests_broken": {placer.name: placer.proxy.done for placer in here.placers},
        "reborn": dict(here.restarts),
        "leaders": len(here.leases.versions),
        "binds_after_takeover": _after_takeover(here),
        "binds": {placer.name: len(placer.proxy.binds) for placer in here.placers},
        "tenants": dict(sorted(tenants.counts.items())),
        "findings": here.journal.findings,
        "replay": options.replay(),
        "journal": str(here.journal.path),
    }
