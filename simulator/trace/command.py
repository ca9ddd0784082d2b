"""`plimsoll simulate`, which is `python -m simulator trace`: replays a trace and shows what each policy leaves."""

import argparse
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from placer.core.relocation.search import MOST_MOVES
from plimsoll.part.errors import InputError
from simulator.trace import report
from simulator.trace.arrivals import ARRIVED
from simulator.trace.experiment import OFFERED, PolicySummary, replay_all
from simulator.trace.lists import NODE_LIST, Trace, read_trace

WIDTH: Final = 110
MOST_SEEDS: Final = 1000
"""A replay takes some seconds, and its points stay in memory."""
_SEEDS: Final = re.compile(r"([0-9]{1,18})(?:\.\.([0-9]{1,18}))?")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument(
        "trace", type=Path, metavar="TRACE", help="a list of pods: openb_pod_list_default.csv"
    )
    parser.add_argument("--nodes", type=Path, help=f"the list of nodes (default: {NODE_LIST} beside TRACE)")
    parser.add_argument(
        "--policy", action="append", help=f"may be given several times; among others {', '.join(OFFERED)}"
    )
    parser.add_argument("--seeds", default="42..51", help="the draws, such as 42 or 42..51 (%(default)s)")
    parser.add_argument(
        "--arrived",
        type=int,
        default=round(100 * ARRIVED),
        help="stop when pods ask for this percentage of all GPUs (%(default)s)",
    )
    parser.add_argument(
        "--relocation",
        type=int,
        choices=range(MOST_MOVES + 1),
        default=0,
        help="the most pods with a part of a GPU that are moved for one that fits nowhere (%(default)s)",
    )
    parser.add_argument("--csv", type=Path, help="write every point of every replay to this file")
    parser.add_argument("--svg", type=Path, help="write a picture to this file")


def run(given: argparse.Namespace) -> int:
    """Run the command.

    Raises:
        InputError: an option cannot work, or a file cannot be read or written.
    """
    seeds = seeds_of(given.seeds)
    if not 1 <= given.arrived <= 1000:
        raise InputError("--arrived", given.arrived, "is no sensible percentage", "give 1 to 1000")
    policies = given.policy or ["fragmentation", "plimsoll"]
    trace = read_trace(given.trace, given.nodes)
    for path in (given.csv, given.svg):
        if path is not None:
            _check_writable(path)
    summaries = _replayed(trace, policies, seeds, given.arrived, given.relocation)
    console = Console(width=WIDTH)
    console.print(report.table(trace.name, given.arrived, summaries))
    for path, text in ((given.csv, report.as_csv), (given.svg, report.as_svg)):
        if path is not None:
            _write(path, text(trace.name, summaries))
            console.print(f"wrote {path}", soft_wrap=True)
    return 0


def _replayed(
    trace: Trace, policies: Sequence[str], seeds: Sequence[int], arrived_pct: int, most_moves: int
) -> list[PolicySummary]:
    """The replays, with a bar on the terminal."""
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=len(policies) * len(seeds) * arrived_pct)

        def note(policy: str, seed: int, pct: int) -> None:
            done = policies.index(policy) * len(seeds) + seeds.index(seed)
            progress.update(task, completed=done * arrived_pct + pct, description=f"{policy}, seed {seed}")

        return replay_all(trace, policies, seeds, arrived_pct / 100, note, most_moves)


def seeds_of(text: str) -> tuple[int, ...]:
    """The seeds that `42` or `42..51` names, the last one included.

    Raises:
        InputError: the text is neither, or names more than `MOST_SEEDS`.
    """
    found = _SEEDS.fullmatch(text)
    if found is None or int(found[2] or found[1]) < int(found[1]):
        raise InputError("--seeds", text, "is no range of seeds", "write 42, or 42..51")
    first, last = int(found[1]), int(found[2] or found[1])
    if last - first >= MOST_SEEDS:
        raise InputError("--seeds", text, f"has more than {MOST_SEEDS} seeds", "replay fewer at a time")
    return tuple(range(first, last + 1))


def _check_writable(path: Path) -> None:
    """Refuse a file that cannot be written before the replays, which take long."""
    folder = path.parent
    if path.is_dir():
        raise InputError(str(path), path.name, "is a folder", "name a file")
    if not folder.is_dir():
        raise InputError(str(path), str(folder), "is no folder", "make it, or name another file")
    if not os.access(path if path.exists() else folder, os.W_OK):
        raise InputError(str(path), path.name, "cannot be written", "name another file")


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(str(path), path.name, f"cannot be written: {error}", "name another file") from error
