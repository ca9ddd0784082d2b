"""`make bench-policies`: placement policies on Alibaba's openb traces, beside the figures that FGD's authors give.

The protocol is that of `simulator.trace`. The traces and the published figures are read from a folder that is named,
and never copied. The last line is one line of JSON.
"""

import argparse
import csv
import json
import os
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from statistics import fmean
from typing import Final

from rich.console import Console
from rich.table import Table

from simulator.trace.experiment import policy_for
from simulator.trace.lists import read_trace
from simulator.trace.replay import Replay, replay

LISTS: Final = ("default", "gpushare40", "gpushare100", "multigpu20", "gpuspec33")
POLICIES: Final = ("random", "bestfit", "fragmentation", "plimsoll", "headroom", "binpack")
PUBLISHED: Final = {"random": "Random", "bestfit": "BestFit", "fragmentation": "FGD"}
PUBLISHED_CSV: Final = "fgd_published_summary.csv"
SEEDS: Final = tuple(range(42, 52))
QUICK_SEEDS: Final = SEEDS[:3]
TOLERANCE_PCT: Final = 0.5
"""The most by which means may differ from the published ones, in percent of all GPUs."""

Key = tuple[str, str]
"""List and policy."""


def main(words: Sequence[str] | None = None) -> int:
    """Run the benchmark; 1 if a published mean is missed, or `plimsoll` loses to FGD on a list."""
    parser = argparse.ArgumentParser(prog="python -m bench.policies", description=__doc__)
    parser.add_argument("traces", type=Path, help="the folder with the openb lists")
    parser.add_argument("--quick", action="store_true", help="three seeds instead of ten")
    parser.add_argument("--policy", action="append", choices=POLICIES, help="only these")
    parser.add_argument(
        "--processes", type=int, default=os.cpu_count(), help="replays at a time (%(default)s)"
    )
    given = parser.parse_args(words)
    seeds = QUICK_SEEDS if given.quick else SEEDS
    found = _replays(given.traces, given.policy or POLICIES, seeds, given.processes)
    published = _published(given.traces / PUBLISHED_CSV)
    Console(width=120).print(_table(found, published))
    result = _result(found, published)
    print(json.dumps(result))
    return 0 if result["published_met"] and result["beats_fgd_everywhere"] is not False else 1


def _replays(
    folder: Path, policies: Sequence[str], seeds: Sequence[int], processes: int
) -> dict[Key, list[Replay]]:
    tasks = [(folder, name, policy, seed) for name in LISTS for policy in policies for seed in seeds]
    found: dict[Key, list[Replay]] = {}
    with ProcessPoolExecutor(processes) as pool:
        for (_, name, policy, seed), one in zip(tasks, pool.map(_replay, tasks), strict=True):
            found.setdefault((name, policy), []).append(one)
            at = one.points[100].unallocated_pct
            print(f"{name} {policy} seed {seed}: {at:.2f} % at 100 %, {one.failed} failed", file=sys.stderr)
    return found


def _replay(task: tuple[Path, str, str, int]) -> Replay:
    folder, name, policy, seed = task
    return replay(read_trace(folder / f"openb_pod_list_{name}.csv"), policy_for(policy, seed), seed)


def _published(path: Path) -> dict[Key, float]:
    """The published unallocated percentages at 100 % arrival."""
    means = {}
    with path.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["arrived_pct"] == "100":
                name = row["workload"].removeprefix("openb_pod_list_")
                means[name, row["policy"]] = float(row["unalloc_pct_mean"])
    return means


def _mean_pct(replays: Sequence[Replay], pct: int = 100) -> float:
    return fmean(one.points[pct].unallocated_pct for one in replays)


def _result(found: dict[Key, list[Replay]], published: dict[Key, float]) -> dict[str, object]:
    result: dict[str, object] = {}
    for (name, policy), replays in found.items():
        result[f"unallocated_pct.{name}.{policy}"] = round(_mean_pct(replays), 3)
        result[f"failed_pods.{name}.{policy}"] = round(fmean(one.failed for one in replays), 1)
    for policy in dict.fromkeys(policy for _, policy in found):
        times = [one.decision_ms for (_, of), replays in found.items() if of == policy for one in replays]
        result[f"decision_ms.{policy}"] = round(fmean(times), 3)
    result["published_met"] = all(
        abs(_mean_pct(replays) - published[name, PUBLISHED[policy]]) <= TOLERANCE_PCT
        for (name, policy), replays in found.items()
        if policy in PUBLISHED
    )
    result["beats_fgd_everywhere"] = _beats(found, "fragmentation", _mean_pct)
    result["fails_less_than_headroom_everywhere"] = _beats(
        found, "headroom", lambda replays: fmean(one.failed for one in replays)
    )
    return result


def _beats(
    found: dict[Key, list[Replay]], other: str, figure: Callable[[Sequence[Replay]], float]
) -> bool | None:
    """Whether `plimsoll` has the lower figure on each list; None if either policy was left out."""
    if any((name, policy) not in found for name in LISTS for policy in ("plimsoll", other)):
        return None
    return all(figure(found[name, "plimsoll"]) < figure(found[name, other]) for name in LISTS)


def _table(found: dict[Key, list[Replay]], published: dict[Key, float]) -> Table:
    table = Table(title="GPUs without a pod at 100 % arrival, in percent (published); failed pods at 130 %")
    policies = list(dict.fromkeys(policy for _, policy in found))
    for column in ("list", *policies):
        table.add_column(column, justify="left" if column == "list" else "right")
    for name in LISTS:
        cells = []
        for policy in policies:
            replays = found[name, policy]
            known = published.get((name, PUBLISHED.get(policy, "")))
            note = f" ({known:.2f})" if known is not None else ""
            cells.append(f"{_mean_pct(replays):.2f}{note}\n{fmean(one.failed for one in replays):.0f}")
        table.add_row(name, *cells)
    return table


if __name__ == "__main__":
    sys.exit(main())
