"""ConVGPU's Tables IV and V: 4 to 38 containers on one 5 GB GPU, replayed and, in small, run for real.

The simulator replays the whole experiment by the broker's own core ("plimsoll") and by the paper's rule ("convgpu"),
over many draws where the paper seems to have one per count; `simulator.convgpu.workload` lists the points that the
paper leaves open. Then 14 containers run under a real broker and the real library on an emulated card, and are
compared with the simulator's forecast for the same draw.

The figures differ from the paper's for these reasons:

* Draws. The paper's figure at a count is one draw; ours are means over many. `paper_pct` is the place of the
  paper's figure among our draws.
* Level. The running times of the types are not in the paper; see `simulator.convgpu.workload`.
* Time of the grant. ConVGPU gives the free memory to a new container at once, and parts to containers that cannot run
  on them. Here memory is granted on request, and in full, so no container holds memory that it cannot use. Therefore
  best-fit and recent-use suspend less here than there, and best-fit is not the slowest to let containers start.
* The paper's text says that best-fit is "average 30 seconds faster" from 18 containers on. By its Table IV it is
  15 s against fifo, 20 s against recent-use, 22 s against random.
* Deadlock. By the text of §III.D, recent-use and random leave parts with several waiting containers, until none can
  run: see the shares of draws that got stuck. The paper has figures for both, so its program must differ from
  its text there. Here no draw gets stuck.
* Other delays. The start of a Docker container (0.47 s, Figure 5), the making of contexts, and the sharing of card
  and bus are not simulated.

Source: D. Kang et al., "ConVGPU", IEEE CLUSTER 2017, §IV, Tables III to V.
"""

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from statistics import fmean, pstdev
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from bench.convgpu.emulator import SPEED, measure
from plimsoll.native import ROOT
from simulator.convgpu import paper, report
from simulator.convgpu.experiment import (
    HEAVY,
    RULES,
    ReplayPlan,
    against_fifo,
    level,
    on_demand,
    paper_against_fifo,
    run,
    run_cell,
)
from simulator.convgpu.workload import DURATIONS, USABLE_BYTES, draw
from simulator.core.replay import WorkloadReplay, replay

DRAWS: Final = 30
EMULATED_COUNT: Final = 14
EMULATED_SEED: Final = 0
SURE: Final = ("fifo", "best-fit")
"""The policies under which ConVGPU's own rule lets every draw end."""
LOTS: Final = 40
"""The number of forecasts for `random`, whose draws the broker makes by itself."""
CHARTS: Final = ROOT / "build" / "bench"
TABLE_WIDTH: Final = 120

Json = dict[str, Any]


def replayed(console: Console, rule: str, draws: int) -> Json:
    """Replay every count under every policy by one rule, and print the results."""
    plan = ReplayPlan(seeds=tuple(range(draws)))
    with ProcessPoolExecutor() as pool:
        cells = list(pool.map(partial(run_cell, RULES[rule], plan), *zip(*plan.cells(), strict=True)))
    for what in report.FIGURES:
        console.print(report.table(what, rule, cells))
    if rule == "plimsoll":
        for path in report.write_charts(CHARTS, cells):
            console.print(f"wrote {path}")
    return {
        **{f"{what}_s": report.as_json(what, cells) for what in report.FIGURES},
        "level": {policy: level(cells, policy) for policy in paper.POLICIES},
        "against_fifo": {policy: against_fifo(cells, policy) for policy in paper.POLICIES[1:]},
    }


def readings(console: Console, draws: int) -> Json:
    """Evidence for each reading of the running times: our figures ÷ the paper's, by the paper's own rule."""
    table = Table(title="how long types run, by the paper's rule: ours / paper, finished | suspended")
    for column in ("reading", *SURE):
        table.add_column(column, justify="right")
    result: Json = {}
    for reading in DURATIONS:
        cells = run(RULES["convgpu"], ReplayPlan(policies=SURE, seeds=tuple(range(draws)), durations=reading))
        result[reading] = {policy: level(cells, policy) for policy in SURE}
        table.add_row(
            reading,
            *(
                "–" if found is None else f"{found[0]:.2f} | {found[1]:.2f}"
                for found in result[reading].values()
            ),
        )
    console.print(table)
    return result


def show_against_fifo(console: Console, by_rule: dict[str, Json]) -> Json:
    """Print how the other policies differ from fifo where the GPU is crowded: the paper's claim, and both rules."""
    papers = {policy: paper_against_fifo(policy) for policy in paper.POLICIES[1:]}
    table = Table(title=f"against fifo, from {HEAVY} containers on: finished | suspended")
    for column in ("policy", "paper", *by_rule):
        table.add_column(column, justify="right")
    for policy, found in papers.items():
        ours = [result["against_fifo"][policy] for result in by_rule.values()]
        table.add_row(policy, *(_against(one) for one in (found, *ours)))
    console.print(table)
    return papers


def _against(found: Json | None) -> str:
    return "stuck" if found is None else f"{found['finished_s']:+.0f} s | × {found['suspended_ratio']:.2f}"


def forecast(policy: str) -> list[WorkloadReplay]:
    """The simulator's forecast for the draw that runs on the emulator; several forecasts for `random`."""
    containers = draw(EMULATED_COUNT, EMULATED_SEED)
    seeds = range(LOTS if policy == "random" else 1)
    return [replay(containers, on_demand(policy, USABLE_BYTES, seed)) for seed in seeds]


async def emulated(console: Console) -> Json:
    """Run one draw for real under every policy, beside the forecast."""
    containers = draw(EMULATED_COUNT, EMULATED_SEED)
    table = Table(
        title=f"{EMULATED_COUNT} containers on the emulator, {SPEED:.0f} × as fast, s of the paper's clock"
    )
    for column in ("policy", "finished", "forecast", "suspended", "forecast", "starts apart, most"):
        table.add_column(column, justify="right")
    result: Json = {}
    for policy in paper.POLICIES:
        measured = await measure(policy, containers)
        found = result[policy] = compare(measured, forecast(policy))
        if measured.refused:
            table.add_row(policy, f"refused: {', '.join(measured.refused)}")
        else:
            table.add_row(policy, *(_words(figure) for figure in found.values()))
    console.print(table)
    return {"containers": EMULATED_COUNT, "seed": EMULATED_SEED, "speed": SPEED, **result}


def compare(measured: WorkloadReplay, forecasts: Sequence[WorkloadReplay]) -> Json:
    """Compare measurement and forecast, in seconds; or list the `refused` containers if there are any.

    `starts_apart_s` is the largest difference of any container's start; None where the forecast is a mean of random
    draws.
    """
    if measured.refused:
        return {"refused": list(measured.refused)}
    pairs = zip(measured.stays, forecasts[0].stays, strict=True)
    apart = max(abs((one.started_s or 0.0) - (other.started_s or 0.0)) for one, other in pairs)
    return {
        "finished_s": round(measured.finished_s, 1),
        "forecast_finished_s": _mean_and_spread([one.finished_s for one in forecasts]),
        "suspended_s": round(measured.suspended_s, 1),
        "forecast_suspended_s": _mean_and_spread([one.suspended_s for one in forecasts]),
        "starts_apart_s": round(apart, 1) if len(forecasts) == 1 else None,
    }


def _mean_and_spread(figures: Sequence[float]) -> float | list[float]:
    mean = round(fmean(figures), 1)
    return mean if len(figures) == 1 else [mean, round(pstdev(figures), 1)]


def _words(figure: float | list[float] | None) -> str:
    if isinstance(figure, list):
        return " ± ".join(map(str, figure))
    return "–" if figure is None else str(figure)


async def main() -> int:
    """Replay, run, print, and end with one JSON line; the exit code is 1 if a container was refused its memory."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.convgpu",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--draws", type=int, default=DRAWS, help="draws per number of containers (%(default)s)"
    )
    draws = max(1, parser.parse_args().draws)
    console = Console(width=TABLE_WIDTH)
    found = readings(console, draws)
    by_rule = {rule: replayed(console, rule, draws) for rule in RULES}
    papers = show_against_fifo(console, by_rule)
    in_small = await emulated(console)
    result = {
        **by_rule["plimsoll"],
        "by_the_papers_rule": by_rule["convgpu"],
        "paper": {"against_fifo": papers},
        "readings": found,
        "draws": draws,
        "emulator": in_small,
    }
    print(json.dumps(result))
    return int(any("refused" in in_small[policy] for policy in paper.POLICIES))


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
