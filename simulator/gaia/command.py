"""`python -m simulator gaia`: the options, and the output."""

import argparse
import json
import sys
from pathlib import Path
from typing import Final

from rich.console import Console

from plimsoll.part.errors import InputError
from simulator.gaia import report
from simulator.gaia.experiment import BANDWIDTHS, all_frequencies, all_training, decision_us
from simulator.gaia.paper import CASES, REPETITIONS
from simulator.gaia.schedulers import SCHEDULERS

WIDTH: Final = 130
DRAWS: Final = 10
"""The repetitions of the paper's Experiment 6."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the experiment."""
    parser.add_argument("--repetitions", type=int, default=REPETITIONS, help="per case (%(default)s)")
    parser.add_argument("--draws", type=int, default=DRAWS, help="placements of the two jobs (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="breaks the ties (%(default)s)")
    parser.add_argument("--charts", type=Path, help="a folder for two SVG pictures")


def run(given: argparse.Namespace) -> int:
    """Replay the experiments, print the tables and, last, one line of JSON.

    Raises:
        InputError: an option cannot work.
    """
    for name in ("repetitions", "draws"):
        if getattr(given, name) < 1:
            raise InputError(f"--{name}", getattr(given, name), "is below 1", "give 1 or more")
    found = all_frequencies(given.seed, given.repetitions)
    times = {
        name: {case.table: decision_us(name, case, given.repetitions) for case in CASES}
        for name in SCHEDULERS
    }
    trained = all_training(given.seed, given.draws)
    console = Console(width=WIDTH)
    console.print("\n".join(report.tree_lines()))
    console.print(report.frequency_table(found))
    console.print(report.time_table(times))
    assumed = ", ".join(f"{level} {part:g}" for level, part in BANDWIDTHS.items())
    console.print(f"Bandwidths assumed below: {assumed}; jobs over SOC divide it.")
    console.print(report.training_table(trained))
    if given.charts is not None:
        for path in report.write_charts(given.charts, times, trained):
            console.print(f"wrote {path}")
    sys.stdout.write(json.dumps(report.as_json(found, times, trained)) + "\n")
    return 0
