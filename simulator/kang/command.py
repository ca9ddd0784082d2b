"""`python -m simulator kang`: the options, the table, the picture, and one line of JSON."""

import argparse
import json
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from plimsoll.part.errors import InputError
from simulator.charts import ChartLine, line_chart
from simulator.kang.experiment import EXPERIMENTS, NODES, Outcome, run_once
from simulator.kang.placers import PLACERS

WIDTH: Final = 130
COLOURS: Final = {"slots": "#c0392b", "kang": "#1b6ca8", "headroom": "#2e8b57", "plimsoll": "#8e44ad"}

Cell = tuple[str, int, str]
"""Experiment, nodes, placer."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the experiment."""
    parser.add_argument(
        "--nodes", default=",".join(map(str, NODES)), help="numbers of nodes, 2 or more (%(default)s)"
    )
    parser.add_argument("--draws", type=int, default=5, help="runs of each cell (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="the first run (%(default)s)")
    parser.add_argument("--charts", type=Path, help="a folder for an SVG picture")


def run(given: argparse.Namespace) -> int:
    """Run both experiments, print the table and, last, one line of JSON.

    Raises:
        InputError: an option cannot work.
    """
    if given.draws < 1:
        raise InputError("--draws", given.draws, "is below 1", "ask for one run or more")
    found: dict[Cell, list[Outcome]] = {
        (experiment, nodes, placer): [
            run_once(experiment, placer, nodes, given.seed + draw) for draw in range(given.draws)
        ]
        for experiment in EXPERIMENTS
        for nodes in _numbers(given.nodes)
        for placer in PLACERS
    }
    console = Console(width=WIDTH)
    console.print(_table(found))
    if given.charts is not None:
        console.print(f"wrote {_chart(given.charts, found)}")
    sys.stdout.write(json.dumps(_as_json(found)) + "\n")
    return 0


def _numbers(text: str) -> tuple[int, ...]:
    try:
        nodes = tuple(int(word) for word in text.split(","))
    except ValueError:
        nodes = ()
    if not nodes or min(nodes) < 2:  # a pair of the paper's two nodes
        raise InputError("--nodes", text, "is not a list of numbers above 1", "write for example 3,30,300")
    return nodes


def _table(found: dict[Cell, list[Outcome]]) -> Table:
    shown = Table(
        title="Tasks that failed (Kang et al., Tables IV and V, and a burst)",
        caption="mean over draws, least to most; waiting: pods not placed; most: pods on one node",
    )
    for name in ("experiment", "nodes", "pods", *PLACERS):
        shown.add_column(name, justify="right")
    for experiment, nodes in dict.fromkeys((experiment, nodes) for experiment, nodes, _ in found):
        outcomes = [found[experiment, nodes, placer] for placer in PLACERS]
        shown.add_row(experiment, str(nodes), str(outcomes[0][0].pods), *map(_words, outcomes))
    return shown


def _words(outcomes: Sequence[Outcome]) -> str:
    failed = [one.failed for one in outcomes]
    waiting = statistics.fmean(one.waiting for one in outcomes)
    most = max(one.most_on_a_node for one in outcomes)
    return f"{statistics.fmean(failed):g} ({min(failed)}–{max(failed)}), waiting {waiting:g}, most {most}"


def _as_json(found: dict[Cell, list[Outcome]]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for (experiment, nodes, placer), outcomes in found.items():
        made[f"failed_tasks.{experiment}.{nodes}.{placer}"] = round(
            statistics.fmean(one.failed for one in outcomes), 1
        )
        made[f"waiting_pods.{experiment}.{nodes}.{placer}"] = round(
            statistics.fmean(one.waiting for one in outcomes), 1
        )
    made["unfit_residents"] = sum(one.unfit for outcomes in found.values() for one in outcomes)
    return made


def _chart(folder: Path, found: dict[Cell, list[Outcome]]) -> Path:
    """Failed tasks per node over the number of nodes, a line for each experiment and placer."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [
        ChartLine(
            f"{placer}, {experiment}",
            COLOURS[placer],
            tuple(
                (float(nodes), statistics.fmean(one.failed for one in outcomes) / nodes)
                for (each, nodes, by), outcomes in found.items()
                if (each, by) == (experiment, placer)
            ),
            dashed=experiment == "burst",
        )
        for experiment in EXPERIMENTS
        for placer in PLACERS
    ]
    path = folder / "kang-failed.svg"
    path.write_text(line_chart("Failed tasks for each node", "nodes", "tasks", lines))
    return path
