"""`make bench-policies`: placement policies on Alibaba's openb traces, beside the figures that FGD's authors give.

The protocol is that of `simulator.trace`. The traces and the published figures are read from a folder that is named,
and never copied. All 300 replays take half an hour on one core. With `--results FILE` each replay is a line there,
and those that the file has are not repeated: a run that was ended goes on, and parts that ran apart join. The last
line is JSON.
"""

import argparse
import csv
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from time import perf_counter
from typing import Final

from rich.console import Console
from rich.table import Table

from simulator.trace.experiment import policy_for
from simulator.trace.lists import read_trace
from simulator.trace.replay import replay

LISTS: Final = ("default", "gpushare40", "gpushare100", "multigpu20", "gpuspec33")
POLICIES: Final = ("random", "bestfit", "fragmentation", "plimsoll", "headroom", "binpack")
ALSO_TIMED: Final = ("kang-literal", "locality", "topology")
"""The other policies: one replay of each shows how long a decision takes."""
PUBLISHED: Final = {"random": "Random", "bestfit": "BestFit", "fragmentation": "FGD"}
PUBLISHED_CSV: Final = "fgd_published_summary.csv"
SEEDS: Final = tuple(range(42, 52))
QUICK_SEEDS: Final = SEEDS[:3]
TOLERANCE_PCT: Final = 0.5
"""The most by which means may differ from the published ones, in percent of all GPUs."""

Cell = tuple[str, str]
"""List and policy."""


@dataclass(frozen=True, slots=True)
class ReplayKey:
    """A replay to be made."""

    list: str
    policy: str
    seed: int


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """A replay that was made: a line of the file of results.

    Attributes:
        unallocated_pct: the part of all GPUs without a pod, when as much was asked for as there is.
        failed_pods: the pods without a place at 130 %; `pods` arrived.
        decision_ms: the mean time of a decision; `longest_ms` is the 99th percentile.
        took_s: the time of the whole replay.
    """

    list: str
    policy: str
    seed: int
    unallocated_pct: float
    failed_pods: int
    pods: int
    decision_ms: float
    longest_ms: float
    took_s: float

    @property
    def task(self) -> ReplayKey:
        """The replay that this is."""
        return ReplayKey(self.list, self.policy, self.seed)


def main(words: Sequence[str] | None = None) -> int:
    """Run the benchmark; 1 if a published mean is missed, or `plimsoll` loses to FGD on a list."""
    parser = argparse.ArgumentParser(prog="python -m bench.policies", description=__doc__)
    parser.add_argument("traces", type=Path, help="the folder with the openb lists")
    parser.add_argument("--quick", action="store_true", help="three seeds instead of ten")
    parser.add_argument("--policy", action="append", choices=POLICIES, help="only these")
    parser.add_argument("--list", action="append", choices=LISTS, help="only these")
    parser.add_argument("--results", type=Path, help="a file of replays: continue it")
    parser.add_argument(
        "--processes", type=int, default=os.cpu_count(), help="replays at a time (%(default)s)"
    )
    given = parser.parse_args(words)
    seeds = QUICK_SEEDS if given.quick else SEEDS
    tasks = [
        ReplayKey(name, policy, seed)
        for name in given.list or LISTS
        for policy in given.policy or POLICIES
        for seed in seeds
    ]
    if not (given.list or given.policy):
        tasks += [ReplayKey(LISTS[0], policy, seeds[0]) for policy in ALSO_TIMED]
    found = _grouped(tasks, _runs(given.traces, tasks, given.results, given.processes))
    published = _published(given.traces / PUBLISHED_CSV)
    Console(width=120).print(_table(found, published))
    result = _result(found, published)
    print(json.dumps(result))
    return 0 if result["published_met"] and result["beats_fgd_everywhere"] is not False else 1


def _runs(
    folder: Path, tasks: Sequence[ReplayKey], results: Path | None, processes: int
) -> dict[ReplayKey, ReplayResult]:
    """The runs of all tasks: those of the file, and then the others, which are appended to it one by one."""
    known = {run.task: run for run in _read(results)} if results is not None else {}
    for run in _made(folder, [task for task in tasks if task not in known], processes):
        known[run.task] = run
        line = json.dumps(asdict(run))
        print(line, file=sys.stderr)
        if results is not None:
            with results.open("a", encoding="utf-8") as file:
                file.write(line + "\n")
    return known


def _read(results: Path) -> Iterator[ReplayResult]:
    if results.exists():
        for line in results.read_text(encoding="utf-8").splitlines():
            yield ReplayResult(**json.loads(line))


def _made(folder: Path, tasks: Sequence[ReplayKey], processes: int) -> Iterator[ReplayResult]:
    if processes == 1:  # in this process, so that whoever ends it ends the replay
        yield from (_run(folder, task) for task in tasks)
        return
    with ProcessPoolExecutor(processes) as pool:
        for done in as_completed([pool.submit(_run, folder, task) for task in tasks]):
            yield done.result()


def _run(folder: Path, task: ReplayKey) -> ReplayResult:
    began_s = perf_counter()
    made = replay(
        read_trace(folder / f"openb_pod_list_{task.list}.csv"), policy_for(task.policy, task.seed), task.seed
    )
    return ReplayResult(
        **asdict(task),
        unallocated_pct=round(made.points[100].unallocated_pct, 4),
        failed_pods=made.failed,
        pods=made.pods,
        decision_ms=round(made.decision_ms, 3),
        longest_ms=round(made.longest_ms, 3),
        took_s=round(perf_counter() - began_s, 1),
    )


def _grouped(
    tasks: Iterable[ReplayKey], runs: dict[ReplayKey, ReplayResult]
) -> dict[Cell, list[ReplayResult]]:
    found: dict[Cell, list[ReplayResult]] = {}
    for task in tasks:
        found.setdefault((task.list, task.policy), []).append(runs[task])
    return found


def _published(path: Path) -> dict[Cell, float]:
    """The published unallocated percentages at 100 % arrival."""
    means = {}
    with path.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["arrived_pct"] == "100":
                name = row["workload"].removeprefix("openb_pod_list_")
                means[name, row["policy"]] = float(row["unalloc_pct_mean"])
    return means


def _mean_pct(runs: Sequence[ReplayResult]) -> float:
    return fmean(one.unallocated_pct for one in runs)


def _mean_failed(runs: Sequence[ReplayResult]) -> float:
    return fmean(one.failed_pods for one in runs)


def _result(found: dict[Cell, list[ReplayResult]], published: dict[Cell, float]) -> dict[str, object]:
    result: dict[str, object] = {}
    for (name, policy), runs in found.items():
        result[f"unallocated_pct.{name}.{policy}"] = round(_mean_pct(runs), 3)
        result[f"failed_pods.{name}.{policy}"] = round(_mean_failed(runs), 1)
    for policy in dict.fromkeys(policy for _, policy in found):
        times = [one.decision_ms for (_, of), runs in found.items() if of == policy for one in runs]
        result[f"decision_ms.{policy}"] = round(fmean(times), 3)
    result["longest_run_s"] = max(one.took_s for runs in found.values() for one in runs)
    result["published_met"] = all(
        abs(_mean_pct(runs) - published[name, PUBLISHED[policy]]) <= TOLERANCE_PCT
        for (name, policy), runs in found.items()
        if policy in PUBLISHED
    )
    result["beats_fgd_everywhere"] = _beats(found, "fragmentation", _mean_pct)
    result["fails_less_than_fgd_everywhere"] = _beats(found, "fragmentation", _mean_failed)
    result["fails_less_than_headroom_everywhere"] = _beats(found, "headroom", _mean_failed)
    return result


def _beats(
    found: dict[Cell, list[ReplayResult]], other: str, figure: Callable[[Sequence[ReplayResult]], float]
) -> bool | None:
    """Whether `plimsoll` has the lower figure on each list; None if either policy was left out."""
    if any((name, policy) not in found for name in LISTS for policy in ("plimsoll", other)):
        return None
    return all(figure(found[name, "plimsoll"]) < figure(found[name, other]) for name in LISTS)


def _table(found: dict[Cell, list[ReplayResult]], published: dict[Cell, float]) -> Table:
    table = Table(title="GPUs without a pod at 100 % arrival, in percent (published); failed pods at 130 %")
    policies = list(dict.fromkeys(policy for _, policy in found))
    for column in ("list", *policies):
        table.add_column(column, justify="left" if column == "list" else "right")
    for name in dict.fromkeys(name for name, _ in found):
        cells = []
        for policy in policies:
            runs = found.get((name, policy), [])
            if not runs:
                cells.append("–")
                continue
            known = published.get((name, PUBLISHED.get(policy, "")))
            note = f" ({known:.2f})" if known is not None else ""
            cells.append(f"{_mean_pct(runs):.2f}{note}\n{_mean_failed(runs):.0f}")
        table.add_row(name, *cells)
    return table


if __name__ == "__main__":
    sys.exit(main())
