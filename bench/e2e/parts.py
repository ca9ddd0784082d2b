"""The parts of the benchmark, and the choice among them on the command line."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

CREATION: Final = "creation"
NEW_VGPU: Final = "new-vgpu"
PROGRAM: Final = "program"
PARTS: Final = (CREATION, NEW_VGPU, PROGRAM)
COUNTS: Final = (1, 5, 10, 20)
"""Pods that are created at once."""


@dataclass(frozen=True, slots=True)
class Selection:
    """The measurements of one run.

    Attributes:
        parts: some of `PARTS`.
        counts: some of `COUNTS`, for the part `creation`.
        is_quick: fewer rounds.
    """

    parts: frozenset[str]
    counts: frozenset[int]
    is_quick: bool


def selection(arguments: Sequence[str], description: str | None = None) -> Selection:
    """Read the command line; a wrong one ends the process with 2 and the usage."""
    parser = argparse.ArgumentParser(prog="python -m bench.e2e", description=description)
    parser.add_argument("--quick", action="store_true", help="fewer rounds, in under five minutes")
    parser.add_argument("--part", action="append", choices=PARTS, help="only this part; may be repeated")
    parser.add_argument(
        "--count",
        action="append",
        type=int,
        choices=COUNTS,
        help="only this number of pods at once; may be repeated",
    )
    chosen = parser.parse_args(arguments)
    return Selection(
        frozenset(chosen.part or PARTS), frozenset(chosen.count or COUNTS), is_quick=chosen.quick
    )
