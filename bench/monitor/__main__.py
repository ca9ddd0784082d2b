"""`python -m bench.monitor [--quick] [--part NAME …] [--traffic-s S]`: the monitor's costs, delays, savings, truth.

Progress goes to standard error. Standard output gets one JSON line a part, and at last one line with every figure;
see bench/results/README.md.
"""

import argparse
import asyncio
import json
import os
import sys
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from bench.measures.progress import say
from bench.monitor import costs, fleet, latency, traffic, truth
from bench.monitor.monitored_node import Json, monitored_node

CHART: Final = Path("bench/results/monitor-traffic.svg")


@dataclass(frozen=True, slots=True)
class BenchPlan:
    """The measurements of a run.

    Attributes:
        scene_s: length of each scene of the costs, in seconds.
        hooked, unhooked: programs whose delays are measured.
        at_once: how many of them run at a time.
        traffic_s: length of the realistic mix, in seconds.
        chart: whether to write the picture of the traffic.
    """

    scene_s: float
    hooked: int
    unhooked: int
    at_once: int
    traffic_s: float
    fleet: fleet.Scale
    truth: truth.TruthPlan
    chart: bool = False


FULL: Final = BenchPlan(60.0, 100, 40, 4, traffic.WINDOW_S, fleet.FULL, truth.FULL, chart=True)
QUICK: Final = BenchPlan(10.0, 16, 8, 4, 40.0, fleet.QUICK, truth.QUICK)


async def measure_costs(plan: BenchPlan, folder: Path) -> Json:
    """CPU time and memory."""
    async with monitored_node(folder) as here:
        return await costs.measure(here, plan.scene_s)


async def measure_latency(plan: BenchPlan, folder: Path) -> Json:
    """Delays."""
    async with monitored_node(folder) as here, costs.residents(here, costs.IDLE):
        return await latency.measure(here, plan.hooked, plan.unhooked, at_once=plan.at_once)


async def measure_traffic(plan: BenchPlan, folder: Path) -> Json:
    """Messages and bytes."""
    async with monitored_node(folder) as here:
        found, picture = await traffic.measure(here, plan.traffic_s)
    if plan.chart:
        await asyncio.to_thread(CHART.write_text, picture)
        say(f"wrote {CHART}")
    print(traffic.table(found), file=sys.stderr)
    return found


async def measure_fleet(plan: BenchPlan, folder: Path) -> Json:
    """A thousand monitors."""
    return await fleet.measure(folder, plan.fleet)


async def measure_truth(plan: BenchPlan, folder: Path) -> Json:
    """The truth run."""
    return await truth.measure(folder, plan.truth)


PARTS: Final[dict[str, Callable[[BenchPlan, Path], Awaitable[Json]]]] = {
    "costs": measure_costs,
    "latency": measure_latency,
    "traffic": measure_traffic,
    "fleet": measure_fleet,
    "truth": measure_truth,
}


async def measure(plan: BenchPlan, folder: Path, parts: list[str]) -> Json:
    """Run these parts; returns every figure under its key."""
    found: Json = {}
    for name in parts:
        say(name)
        figures = await PARTS[name](plan, folder / name) | {f"load_{name}": round(os.getloadavg()[0], 2)}
        print(json.dumps({"case": name, **figures}), flush=True)
        found |= figures
    return found


def main() -> int:
    """Measure, and end with one JSON line."""
    parser = argparse.ArgumentParser(prog="python -m bench.monitor", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="shorter scenes: under five minutes")
    parser.add_argument("--part", action="append", choices=PARTS, help="this part alone; may be repeated")
    parser.add_argument(
        "--traffic-s", type=float, help="length of the realistic mix, in seconds; draws it too"
    )
    options = parser.parse_args()
    plan = QUICK if options.quick else FULL
    if options.traffic_s is not None:
        plan = replace(plan, traffic_s=options.traffic_s, chart=True)
    with tempfile.TemporaryDirectory(prefix="plimsoll-monitor-") as folder:
        found = asyncio.run(measure(plan, Path(folder), options.part or list(PARTS)))
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
