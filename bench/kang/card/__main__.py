"""Kang et al. 2024, Table I and Figures 1 and 2, on an emulated card: one task too many makes several fail.

23, 24 and 25 tasks with 60,000 data start at once on one card, with ten seeds. First they are plain processes, as in
the paper. Then they are pods that declare the memory of Table III to a whole Plimsoll, with the first seed. Only the
card is emulated: each task is a process that calls the driver, and the driver grants and refuses.

The clock is the experiment's own (`bench.kang.card.schedule`), so neither the machine's speed nor its load changes
the order of the calls, and a seed has one outcome. The first seed runs twice, and `repeats_alike` says whether both
runs were the same to the call. The script of a task is an assumption, made of the paper's figures;
`bench.kang.card.script` says which figures are put in and which come out. The times of Figures 1 and 2 are the
script's: the paper's text names their shapes, and their values only for a task that is alone and for 24 and 25 tasks.

Source: J. Kang, H. Lee, D. Lee, IJASEIT 2024, §II.A, Tables I and III, Figures 1 and 2.
"""

import argparse
import asyncio
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from bench.kang.card import paper, pictures
from bench.kang.card.claims import claims
from bench.kang.card.experiment import CardRun, run
from bench.kang.card.ways import declared, plain
from plimsoll.native import ROOT

COUNTS: Final = tuple(paper.FAILED)
SEEDS: Final = tuple(range(42, 52))
FIGURE_1: Final = (1, 5, 10, 15, 20)
"""Numbers of tasks in Figure 1, beside those of Table I."""
CHARTS: Final = ROOT / "build" / "bench"
TABLE_WIDTH: Final = 120


async def without(count: int, seed: int, *, watched: bool = False) -> CardRun:
    """A run of plain processes on a card of their own."""
    async with plain() as way:
        return await run(way, count, seed, watched=watched)


async def under_plimsoll(count: int, seed: int) -> CardRun:
    """A run of pods on a card of their own, with its memory watched."""
    async with declared() as way:
        return await run(way, count, seed, watched=True)


def write_pictures(
    folder: Path, shown: Mapping[int, CardRun], pods: Mapping[int, CardRun], figure_1: Mapping[int, CardRun]
) -> list[Path]:
    """Write the pictures into a folder, and make it if it is missing; returns the paths."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn = {f"kang-card-{count}": pictures.memory(count, shown[count], pods[count]) for count in (24, 25)}
    drawn["kang-card-figure-1"] = pictures.figure_1(figure_1)
    drawn["kang-card-figure-2"] = pictures.figure_2(figure_1[paper.FITTING])
    paths = [folder / f"{name}.svg" for name in drawn]
    for path, text in zip(paths, drawn.values(), strict=True):
        path.write_text(text)
    return paths


def table(
    failed: Mapping[int, Sequence[int]], shown: Mapping[int, CardRun], pods: Mapping[int, CardRun]
) -> Table:
    """Table I beside our runs."""
    made = Table(title="Tasks at once on one card (Kang et al., Table I)", title_justify="left")
    columns = ("tasks", "paper: failed", "plain: failed", "least to most", "paper: s", "plain: s")
    for column in (*columns, "Plimsoll: failed", "at once", "s, last"):
        made.add_column(column, justify="right")
    for count in COUNTS:
        paper_s = paper.COMPLETED_MEDIAN_S.get(count)
        made.add_row(
            str(count),
            str(paper.FAILED[count]),
            f"{median(failed[count]):g}",
            f"{min(failed[count])} to {max(failed[count])}",
            "–" if paper_s is None else f"{paper_s:.1f}",
            f"{median(shown[count].completed_s.values()):.1f}",
            str(len(pods[count].failed_s)),
            str(pods[count].at_once),
            f"{max(pods[count].completed_s.values()):.1f}",
        )
    return made


def as_json(
    failed: Mapping[int, Sequence[int]], shown: Mapping[int, CardRun], pods: Mapping[int, CardRun]
) -> dict[str, Any]:
    """The figures by key; see `bench/results/README.md`."""
    made: dict[str, Any] = {}
    for count in COUNTS:
        made[f"failed_tasks.{count}"] = median(failed[count])
        made[f"failed_by_seed.{count}"] = list(failed[count])
        made[f"completed_s_p50.{count}"] = round(median(shown[count].completed_s.values()), 1)
        made[f"plimsoll_failed_tasks.{count}"] = len(pods[count].failed_s)
        made[f"plimsoll_at_once.{count}"] = pods[count].at_once
        made[f"plimsoll_last_s.{count}"] = round(max(pods[count].completed_s.values()), 1)
    return made


async def main() -> int:
    """Run all; the exit code is 1 if a seed had two outcomes, or a pod of Plimsoll failed."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.kang.card",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seeds", type=int, default=len(SEEDS), help="the number of seeds (%(default)s)")
    seeds = SEEDS[: max(1, parser.parse_args().seeds)]
    console = Console(width=TABLE_WIDTH)
    shown = {count: await without(count, seeds[0], watched=True) for count in COUNTS}
    again = {count: await without(count, seeds[0], watched=True) for count in COUNTS}
    others = {count: [await without(count, seed) for seed in seeds[1:]] for count in COUNTS}
    failed = {count: [len(one.failed_s) for one in (shown[count], *others[count])] for count in COUNTS}
    pods = {count: await under_plimsoll(count, seeds[0]) for count in COUNTS}
    figure_1 = {count: await without(count, seeds[0]) for count in FIGURE_1} | shown
    console.print(table(failed, shown, pods))
    verdicts = claims(failed, figure_1)
    for claim in verdicts:
        console.print(claim.verdict)
    for path in write_pictures(CHARTS, shown, pods, figure_1):
        console.print(f"wrote {path}")
    result = as_json(failed, shown, pods)
    result["repeats_alike"] = shown == again
    result["claims"] = {claim.text: claim.is_met for claim in verdicts}
    print(json.dumps(result))
    return int(not result["repeats_alike"] or any(one.failed_s for one in pods.values()))


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
