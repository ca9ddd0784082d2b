"""`python -m simulator convgpu`: the options, and the output."""

import argparse
import json
import sys
from pathlib import Path
from typing import Final

from rich.console import Console

from plimsoll.part.errors import InputError
from plimsoll.quantity import parse_whole
from simulator.convgpu import experiment, paper, report
from simulator.convgpu.workload import DURATIONS, USABLE_BYTES

WIDTH: Final = 110


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the experiment."""
    parser.add_argument(
        "--containers", default="", help="the numbers of containers, such as 4,16,38 (default: the paper's)"
    )
    parser.add_argument("--draws", type=int, default=100, help="draws per number of containers (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="the first draw (%(default)s)")
    parser.add_argument(
        "--rule", choices=list(experiment.RULES), default="plimsoll", help="the rule by which memory is given"
    )
    parser.add_argument(
        "--durations", choices=list(DURATIONS), default="by-type", help="the running times of the types"
    )
    parser.add_argument("--memory", default=str(USABLE_BYTES), help="the card's memory, such as 4800Mi")
    parser.add_argument("--charts", type=Path, help="a folder for two SVG pictures")


def run(given: argparse.Namespace) -> int:
    """Replay the experiment, print the tables and, last, one line of JSON.

    Raises:
        InputError: an option cannot work.
        OSError: the folder of the charts cannot be made.
    """
    if given.charts is not None:
        given.charts.mkdir(parents=True, exist_ok=True)  # before the replays, which take long
    plan = experiment.ReplayPlan(
        counts=_counts(given.containers),
        seeds=tuple(range(given.seed, given.seed + _draws(given.draws))),
        durations=given.durations,
        usable_bytes=_memory(given.memory),
    )
    cells = experiment.run(experiment.RULES[given.rule], plan)
    console = Console(width=WIDTH)
    for what in report.FIGURES:
        console.print(report.table(what, given.rule, cells))
    if given.charts is not None:
        for path in report.write_charts(given.charts, cells):
            console.print(f"wrote {path}")
    result = {f"{what}_s": report.as_json(what, cells) for what in report.FIGURES}
    sys.stdout.write(json.dumps(result) + "\n")
    return 0


def _counts(text: str) -> tuple[int, ...]:
    if not text:
        return paper.COUNTS
    try:
        counts = tuple(int(word) for word in text.split(","))
    except ValueError:
        counts = ()
    if not counts or min(counts) < 1:
        raise InputError(
            "--containers", text, "is not a list of numbers above 0", "write for example 4,16,38"
        )
    return counts


def _draws(count: int) -> int:
    if count < 1:
        raise InputError("--draws", count, "is below 1", "ask for one draw or more")
    return count


def _memory(text: str) -> int:
    usable_bytes = parse_whole(text, "--memory", "bytes")
    if usable_bytes < (largest := experiment.LARGEST_BYTES):
        raise InputError("--memory", text, "cannot hold the largest type", f"give {largest} bytes or more")
    return usable_bytes
