"""How well compute shares hold, and what they cost: `make bench-hook-share`.

A real broker, hooked programs and the emulator; shares come from the emulator's own book, not from the library. See
`share_figures` for what share, target, error and ripple mean, and the other `share_` modules for the cases. Half an
hour; `--quick` runs a few cases of each sort, `--case` those whose name begins so, such as `cap/30/async`.

Every case is appended as one JSON line to `build/bench/hook-share.jsonl`, with the machine's load average beside it,
and at last the largest figures; the plots lie there too. The last line printed has the largest figures and all cases.

With `--gpu` the same on this machine's first GPU, where the tenants' own kernels tell what the book would: see
`share_place`.
"""

import argparse
import asyncio
import contextlib
import datetime
import json
import os
import platform
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from bench import share_alone, share_beside, share_gang, share_kubeshare
from bench.gpu_node import GpuNode
from bench.share_cases import Case, Demands, caps, is_quick, measure, pairs, triples
from bench.share_place import Json, NoAnswerError, Place, compiled, place
from plimsoll.brokerclient import BrokerAwayError, RefusedError

FOLDER: Final = Path(__file__).resolve().parent.parent / "build" / "bench"
RAW: Final = FOLDER / "hook-share.jsonl"
QUICK_QUOTAS_MS: Final = (5, 40, 160)
QUICK_CLIENTS: Final = (2, 8)
SHOWN: Final = ("target_pct", "share_pct", "work_pct", "error_pts", "ripple_pts", "bound_pts")

Measure = Callable[[Place], Awaitable[Json]]


@dataclass(frozen=True, slots=True)
class Step:
    """One case of any sort, measured at a place with a broker of its own.

    Attributes:
        is_quick: one of the few that say most.
        is_emulated: it takes two GPUs, so it is measured on emulated ones only.
    """

    name: str
    measure: Measure
    is_quick: bool = False
    is_emulated: bool = False


@dataclass(slots=True)
class Bench:
    """What is measured, where, and what came of it."""

    folder: Path
    program: Path
    gpu: GpuNode | None
    rows: list[Json] = field(default_factory=list)

    async def step(self, step: Step) -> None:
        """Measure one case."""
        with self.kept(step.name):
            async with place(self.program, self.folder, self.gpu) as here:
                self.keep(await step.measure(here))

    @contextlib.contextmanager
    def kept(self, name: str) -> Iterator[None]:
        """What fails in the block stands in the table as failed."""
        try:
            yield
        except* (NoAnswerError, TimeoutError, BrokerAwayError, RefusedError) as group:
            self.keep({"case": name, "failed": repr(group.exceptions[0])})

    def keep(self, row: Json) -> None:
        """Show a row, and write it down."""
        self.rows.append(row)
        print(_words(row), flush=True)
        _append(row)


def _append(row: Json) -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    with RAW.open("a") as raw:
        print(json.dumps(row), file=raw)


def _words(row: Json) -> str:
    if "failed" in row:
        return f"  FAILED: {row['failed']}"
    shown = SHOWN if "target_pct" in row and "error_pts" in row else tuple(row)[1:]
    parts = [f"{name} {_figures(row[name])}" for name in shown if name in row and name != "load"]
    return "  " + ", ".join([*parts, f"load {row['load']}"])


def _figures(value: object) -> str:
    if isinstance(value, list):
        return " ".join(_figures(one) for one in value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def steps() -> Iterator[Step]:
    """Everything but KubeShare's figures."""
    for work in share_alone.works():
        yield Step(f"alone/{work.name}", partial(share_alone.measure, work), work.name == "sync/1ms")
    yield Step("alone/launch", share_alone.measure_launch, is_quick=True)
    demands = Demands()
    for case in (*caps(), *pairs(), *triples()):
        yield Step(case.name, partial(_judged, case, demands), is_quick(case))
    for trainer_ns in share_beside.TRAINER_KERNELS:
        measure_latency = partial(share_beside.latency, trainer_ns=trainer_ns)
        yield Step(f"latency/{trainer_ns}", measure_latency, is_quick=True)
    for gang in share_gang.CASES:
        is_first = gang is share_gang.CASES[0]
        yield Step(gang.name, partial(share_gang.measure, gang), is_first, is_emulated=True)
    for clients in share_beside.CLIENTS:
        measure_broker = partial(share_beside.broker_time, clients=clients)
        yield Step(f"broker/{clients}", measure_broker, clients in QUICK_CLIENTS)


async def _judged(case: Case, demands: Demands, here: Place) -> Json:
    return await measure(case, here, demands)


async def figures(bench: Bench, prefixes: Sequence[str], *, quick: bool) -> None:
    """KubeShare's two."""
    if _is_wanted("kubeshare-6", prefixes):
        print("kubeshare-6", flush=True)
        with bench.kept("kubeshare-6"):
            async with place(bench.program, bench.folder, bench.gpu) as here:
                row, plot = await share_kubeshare.figure_6(here)
            bench.keep(row)
            _draw("hook-share-kubeshare-6.svg", plot)
    if _is_wanted("quota", prefixes):
        print("quota", flush=True)
        quotas = QUICK_QUOTAS_MS if quick else share_kubeshare.QUOTAS_MS
        with bench.kept("quota"):
            rows, plot = await share_kubeshare.figure_7(bench.program, bench.folder, bench.gpu, quotas)
            for row in rows:
                bench.keep(row)
            _draw("hook-share-kubeshare-7.svg", plot)


def _draw(name: str, plot: str) -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / name).write_text(plot)
    print(f"wrote {FOLDER / name}")


def _is_wanted(name: str, prefixes: Sequence[str]) -> bool:
    return not prefixes or any(
        name.startswith(prefix) or prefix.startswith(f"{name}/") for prefix in prefixes
    )


def largest(rows: Sequence[Json], prefix: str, what: str) -> float | None:
    """The largest of a figure by its absolute value, over the judged cases of one sort; None if there are none."""
    found = [
        abs(row[what])
        for row in rows
        if row["case"].startswith(prefix) and what in row and row.get("is_judged", True)
    ]
    return max(found, default=None)


def result(bench: Bench) -> Json:
    """The last line, but for the cases."""
    rows = bench.rows
    where = {"gpu": bench.gpu.name, "driver": bench.gpu.driver} if bench.gpu else {}
    return {
        "alone_loss_pct": share_alone.largest_loss_pct(rows),
        "cap_error_pts_max": largest(rows, "cap/", "error_pts"),
        "cap_ripple_pts_max": largest(rows, "cap/", "ripple_pts"),
        "tenants_error_pts_max": largest(rows, "tenants/", "error_pts"),
        "quota_loss_pct_default": share_kubeshare.default_loss_pct(rows),
        "failed": [row["case"] for row in rows if "failed" in row],
        "machine": f"{platform.machine()} {platform.system()} {platform.release()}",
        "cores": len(os.sched_getaffinity(0)),
        **where,
        "date": datetime.datetime.now(tz=datetime.UTC).date().isoformat(),
    }  # fmt: skip


async def main() -> int:
    """Measure, show, and print one JSON line; the exit code is 1 if a case failed to run."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gpu", action="store_true", help="measure on this machine's first GPU")
    parser.add_argument("--quick", action="store_true", help="a few cases of each sort")
    parser.add_argument(
        "--case", action="append", default=[], help="only cases whose name begins so; may be repeated"
    )
    options = parser.parse_args()
    wanted = [
        step
        for step in steps()
        if _is_wanted(step.name, options.case)
        and (step.is_quick or not options.quick)
        and not (step.is_emulated and options.gpu)
    ]
    with tempfile.TemporaryDirectory(prefix="plimsoll-hook-share-") as temporary:
        folder = Path(temporary)
        bench = Bench(folder, compiled(folder), GpuNode() if options.gpu else None)
        for number, step in enumerate(wanted, 1):
            print(f"[{number}/{len(wanted)}] {step.name}", flush=True)
            await bench.step(step)
        await figures(bench, options.case, quick=options.quick)
    found = result(bench)
    _append({**found, "case": "all"})
    print(json.dumps({**found, "cases": bench.rows}))
    return int(bool(found["failed"]))


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
