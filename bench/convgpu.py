"""ConVGPU's Tables IV and V: 4 to 38 containers on one 5 GB GPU, replayed.

The simulator replays the whole experiment by the broker's own core ("plimsoll") and by the paper's rule ("convgpu"),
over many draws where the paper seems to have one a count; `simulator.convgpu.workload` says what the paper leaves
open.

Why figures differ from the paper's:

* Draws. The paper's figure at a count is one draw; ours are means over many. `paper_pct` says where among our draws
  it lies.
* Level. The running times of the types are not in the paper; see `simulator.convgpu.workload`.
* When memory is given. ConVGPU gives what is left to a new container at once, and parts to containers that cannot run
  on them. Here memory is given when it is asked for, and whole: nobody holds what it cannot use. That is why
  best-fit and recent-use suspend less here than there, and why best-fit is not the slowest to let containers start.
* The paper's text says that best-fit is "average 30 seconds faster" from 18 containers on. By its Table IV it is
  15 s against fifo, 20 s against recent-use, 22 s against random.
* Deadlock. By the letter of §III.D, recent-use and random leave parts with several waiting containers, until nobody
  can run: see the shares of draws that got stuck. The paper has figures for both, so its program must differ from
  its text there. Here no draw gets stuck.
* Everything that takes time besides running: starting a Docker container (0.47 s, Figure 5), making contexts, a card
  and a bus that programs share. None of it is simulated.

Source: D. Kang et al., "ConVGPU", IEEE CLUSTER 2017, §IV, Tables III to V.
"""

import argparse
import json
import sys
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from simulator.convgpu import paper, report
from simulator.convgpu.experiment import (
    HEAVY,
    RULES,
    Plan,
    against_fifo,
    level,
    paper_against_fifo,
    run,
    run_cell,
)
from simulator.convgpu.workload import DURATIONS

DRAWS: Final = 30
SURE: Final = ("fifo", "best-fit")
"""The policies under which ConVGPU's own rule lets every draw end."""
CHARTS: Final = Path(__file__).resolve().parent.parent / "build" / "bench"
TABLE_WIDTH: Final = 120

Json = dict[str, Any]


def replayed(console: Console, rule: str, draws: int) -> Json:
    """Replay every count under every policy by one rule, and show it."""
    plan = Plan(seeds=tuple(range(draws)))
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
    """What speaks for which reading of the running times: ours over the paper's, by the paper's own rule."""
    table = Table(title="how long types run, by the paper's rule: ours / paper, finished | suspended")
    for column in ("reading", *SURE):
        table.add_column(column, justify="right")
    result: Json = {}
    for reading in DURATIONS:
        cells = run(RULES["convgpu"], Plan(policies=SURE, seeds=tuple(range(draws)), durations=reading))
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
    """How the other policies differ from fifo where the GPU is crowded: the paper's claim, and both rules."""
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


def main() -> int:
    """Replay, show, and print one JSON line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--draws", type=int, default=DRAWS, help="draws per number of containers (%(default)s)"
    )
    draws = max(1, parser.parse_args().draws)
    console = Console(width=TABLE_WIDTH)
    found = readings(console, draws)
    by_rule = {rule: replayed(console, rule, draws) for rule in RULES}
    papers = show_against_fifo(console, by_rule)
    result = {
        **by_rule["plimsoll"],
        "by_the_papers_rule": by_rule["convgpu"],
        "paper": {"against_fifo": papers},
        "readings": found,
        "draws": draws,
    }
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
