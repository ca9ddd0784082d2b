"""`python -m bench.placer [--quick] [--part NAME …]`: the placer beside kube-scheduler, and its decisions in process.

Progress goes to standard error. Standard output gets one JSON line a part, and at last one line with every figure
under a dotted key; see bench/results/README.md.
"""

import argparse
import asyncio
import json
import os
import sys
import tempfile
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from bench.measures.progress import say
from bench.placer.keys import replay_keys, size_keys
from bench.placer.objects import make_nodes, monitors
from bench.placer.rounds import (
    Arriving,
    Before,
    arriving_figures,
    before_figures,
    pods_arriving,
    pods_before,
)
from bench.placer.schedulers import PLACER, SCHEDULERS, Scheduler
from bench.placer.servers import Json, Servers, running_servers
from bench.placer.starved import beside_hopeless_pods, starved_figures
from simulator.charts import ChartLine, line_chart
from tests.cluster import assets
from tests.cluster.build import ensure

CHARTS: Final = Path("bench/results")
BELOW_RATIO: Final = 0.5
"""The highest rate of arrivals, as a part of the slower scheduler's pace in the same round: then no queue grows."""
REPLAY_TIMEOUT_S: Final = 1800.0


@dataclass(frozen=True, slots=True)
class Size:
    """A size of cluster.

    Attributes:
        label: its name in the keys.
        nodes: nodes of eight GPUs.
        pods: pods made before the scheduler starts, in each round.
        rounds: rounds of each scheduler, in turn.
        arriving: pods that arrive while the scheduler runs, in each round.
        arriving_per_s: the highest rate of these arrivals, in pods per second; see `BELOW_RATIO`.
    """

    label: str
    nodes: int
    pods: int
    rounds: int
    arriving: int
    arriving_per_s: float


@dataclass(frozen=True, slots=True)
class BenchPlan:
    """The measurements of a run.

    Attributes:
        sizes: the clusters for both schedulers in turn. The first one is also for the hopeless pods.
        hopeless, placeable: pods of the experiment with hopeless pods.
        replays: label, nodes and pods of each replay in process, by rising size.
        chart: whether to write the picture of the replays.
    """

    sizes: tuple[Size, ...]
    hopeless: int
    placeable: int
    replays: tuple[tuple[str, int, int], ...]
    chart: bool = False
    schedulers: tuple[Scheduler, ...] = field(default=SCHEDULERS)


FULL: Final = BenchPlan(
    sizes=(Size("n1000", 1000, 3000, 3, 1000, 100.0), Size("n5000", 5000, 5000, 3, 500, 50.0)),
    hopeless=2000,
    placeable=20,
    replays=(("1000", 1000, 5000), ("20000", 20_000, 100_000)),
    chart=True,
)
QUICK: Final = BenchPlan(
    sizes=(Size("n1000", 1000, 1000, 1, 300, 100.0), Size("n5000", 5000, 1000, 1, 150, 50.0)),
    hopeless=2000,
    placeable=10,
    replays=(("1000", 1000, 2000), ("20000", 20_000, 5000)),
)


STARVED: Final = "starved"
REPLAY: Final = "replay"
PARTS: Final = (*(size.label for size in FULL.sizes), STARVED, REPLAY)


async def measure(plan: BenchPlan, folder: Path, parts: Collection[str] = PARTS) -> Json:
    """Run these parts; returns every figure under its key."""
    await asyncio.to_thread(ensure, (*assets.NEEDED, "kube-scheduler"))
    keys: Json = {}
    for number, size in enumerate(plan.sizes):
        is_for_starved = number == 0 and STARVED in parts
        if size.label not in parts and not is_for_starved:
            continue
        async with running_servers(folder / size.label) as servers:
            say(f"{size.label}: making {size.nodes} nodes")
            await make_nodes(servers, size.nodes)
            async with monitors(servers, size.nodes):
                if size.label in parts:
                    found = await _schedulers(plan, size, servers)
                    print(json.dumps({"case": size.label, "nodes": size.nodes, "pods": size.pods, **found}))
                    keys |= size_keys(size.label, found)
                if is_for_starved:
                    keys |= await _starved(plan, servers)
    if REPLAY in parts:
        keys |= await _replays(plan)
    return {**keys, "load": round(os.getloadavg()[0], 2)}


async def _schedulers(plan: BenchPlan, size: Size, servers: Servers) -> dict[str, Json]:
    before: dict[str, list[Before]] = {scheduler.name: [] for scheduler in plan.schedulers}
    arriving: dict[str, list[Arriving]] = {scheduler.name: [] for scheduler in plan.schedulers}
    for number in range(size.rounds):
        for scheduler in plan.schedulers:
            one = await pods_before(servers, scheduler, size.pods, f"before-{number}")
            say(f"{size.label}: {scheduler.name}: {one}")
            before[scheduler.name].append(one)
        slowest = min(rounds[-1].pods_per_s for rounds in before.values())
        per_s = min(size.arriving_per_s, BELOW_RATIO * slowest)
        for scheduler in plan.schedulers:
            come = await pods_arriving(servers, scheduler, size.arriving, per_s, f"arriving-{number}")
            say(f"{size.label}: {scheduler.name}: arriving: {arriving_figures([come])}")
            arriving[scheduler.name].append(come)
    return {name: before_figures(before[name]) | arriving_figures(arriving[name]) for name in before}


async def _starved(plan: BenchPlan, servers: Servers) -> Json:
    [scheduler] = [scheduler for scheduler in plan.schedulers if scheduler.name == PLACER]
    found = starved_figures(await beside_hopeless_pods(servers, scheduler, plan.hopeless, plan.placeable))
    say(f"beside {plan.hopeless} hopeless pods: {found}")
    print(json.dumps({"case": "starved", "hopeless": plan.hopeless, "placeable": plan.placeable, **found}))
    return found


async def _replays(plan: BenchPlan) -> Json:
    replays: list[tuple[str, Json]] = []
    for label, nodes, pods in plan.replays:
        say(f"replaying {pods} pods on {nodes} nodes")
        found = await _replayed(nodes, pods)
        print(json.dumps({"case": f"replay/{label}", **found}))
        replays.append((label, found))
    if plan.chart:
        path = CHARTS / "placer-decisions.svg"
        await asyncio.to_thread(path.write_text, chart(replays))
        say(f"wrote {path}")
    return replay_keys(replays)


async def _replayed(nodes: int, pods: int) -> Json:
    """The figures of a replay in a process of its own."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.placer.replay", str(nodes), str(pods)),
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(REPLAY_TIMEOUT_S):
            output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, "the replay failed; its reason stands above"
    found: Json = json.loads(output.splitlines()[-1])
    return found


def chart(replays: list[tuple[str, Json]]) -> str:
    """The cost of a decision over the run of each replay, as SVG."""
    lines = []
    for (_, found), colour in zip(replays, ("#888888", "#1f77b4", "#d62728"), strict=False):
        costs = found["stretches_ms"]
        points = tuple((100 * (at + 1) / len(costs), cost) for at, cost in enumerate(costs))
        lines.append(ChartLine(f"{found['nodes']} nodes, {found['pods']} pods", colour, points))
    title = "A decision, while pods are placed one after another"
    return line_chart(title, "% of the pods placed", "ms, median", lines, x_ticks=range(0, 101, 20))


def main() -> int:
    """Measure, and end with one JSON line."""
    parser = argparse.ArgumentParser(prog="python -m bench.placer", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer pods, one round: under five minutes")
    parser.add_argument("--part", action="append", choices=PARTS, help="this part alone; may be repeated")
    options = parser.parse_args()
    plan = QUICK if options.quick else FULL
    with tempfile.TemporaryDirectory(prefix="plimsoll-placer-") as folder:
        found = asyncio.run(measure(plan, Path(folder), options.part or PARTS))
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
