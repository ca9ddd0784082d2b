"""`python -m simulator kubeshare`: the options, and the output."""

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final

from rich.console import Console

from plimsoll.part.errors import InputError
from simulator.kubeshare.figure import Figure
from simulator.kubeshare.interference import figure_12, figure_13
from simulator.kubeshare.placement import figure_3, figure_5, figure_11
from simulator.kubeshare.throughput import figure_8a, figure_8b, figure_8c, figure_9

WIDTH: Final = 110

FIGURES: Final[Mapping[str, Callable[[int, Sequence[int]], Figure]]] = MappingProxyType(
    {
        "3": lambda _, __: figure_3(),
        "5": lambda _, __: figure_5(),
        "8a": figure_8a,
        "8b": figure_8b,
        "8c": figure_8c,
        "9": lambda count, seeds: figure_9(count, seeds[0]),
        "11": lambda _, __: figure_11(),
        "12": lambda _, __: figure_12(),
        "13": figure_13,
    }
)
"""Each makes its figure from the number of jobs and the seeds."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the experiment."""
    parser.add_argument("--figures", default="", help="such as 3,8a,13 (default: all)")
    parser.add_argument("--jobs", type=int, default=320, help="jobs of a run (%(default)s)")
    parser.add_argument("--runs", type=int, default=5, help="runs to average, as in the paper (%(default)s)")
    parser.add_argument("--seed", type=int, default=42, help="the seed of the first run (%(default)s)")
    parser.add_argument("--charts", type=Path, help="a folder for an SVG picture of each figure")


def run(given: argparse.Namespace) -> int:
    """Make the figures, print their tables and claims and, last, one line of JSON.

    Raises:
        InputError: an option cannot work.
        OSError: the folder of the charts cannot be made.
    """
    names = given.figures.split(",") if given.figures else list(FIGURES)
    for name in names:
        if name not in FIGURES:
            known = ", ".join(FIGURES)
            raise InputError("--figures", name, "is no figure that the simulator has", f"choose of {known}")
    for field, value in (("--jobs", given.jobs), ("--runs", given.runs)):
        if value < 1:
            raise InputError(field, value, "is below 1", "give 1 or more")
    if given.charts is not None:
        given.charts.mkdir(parents=True, exist_ok=True)  # before the runs, which take long
    seeds = tuple(range(given.seed, given.seed + given.runs))
    figures = [FIGURES[name](given.jobs, seeds) for name in names]
    console = Console(width=WIDTH)
    for figure in figures:
        console.print(figure.table(), *(f"- {claim.verdict}" for claim in figure.claims), sep="\n")
    if given.charts is not None:
        for figure in figures:
            console.print(f"wrote {_write_chart(given.charts, figure)}")
    sys.stdout.write(json.dumps({figure.name: figure.as_json() for figure in figures}) + "\n")
    return 0


def _write_chart(folder: Path, figure: Figure) -> Path:
    path = folder / f"kubeshare-{figure.name}.svg"
    path.write_text(figure.svg())
    return path
