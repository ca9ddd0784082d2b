"""How exactly compute shares hold, how programs progress under them, and their cost: `make bench-hook-share`.

Broker and hooked programs are real; shares come from the emulator's own book, not from the library. `figures` defines
share, target, error, ripple and progress, and the other modules hold the cases. A run takes half an
hour. `--quick` (`QUICK=1 make bench-hook-share`) shows the same figures from fewer and shorter cases in less than
five minutes. `--case` runs the cases whose names begin with its value, such as `cap/30/async`.

Every case becomes one JSON line in `build/bench/hook-share.jsonl`, with the machine's load average, followed by the
worst figures; the plots lie there too. The last line of the output has the worst figures and all cases.

With `--gpu` the same on this machine's first GPU, where the tenants' own kernels give the figures that the
book gives otherwise: see `shared_node`.
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
import time
import traceback
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from bench.hook.gpu_node import GpuNode
from bench.hook.share import (
    alone,
    arrival,
    broker,
    cases,
    coupled,
    idle_time,
    kubeshare,
    latency,
    pauses,
    short,
)
from bench.hook.share.keys import summary
from bench.hook.share.shared_node import SharedNode, shared_node
from bench.hook.share.tenants import Json, kernel_name
from hook.broker.core.shares.settings import ShareSettings
from plimsoll.native import ROOT

FOLDER: Final = ROOT / "build" / "bench"
RAW: Final = FOLDER / "hook-share.jsonl"
SHOWN: Final = ("target_pct", "share_pct", "error_pts", "ripple_pts", "bound_pts")

Measure = Callable[[SharedNode], Awaitable[Json]]


@dataclass(frozen=True, slots=True)
class MeasuredCase:
    """One case of any sort, measured on a node with a broker of its own.

    Attributes:
        is_quick: whether it is one of the few cases of the quick run.
        is_emulated: whether it needs two GPUs, or kernels that were tried on the emulator alone.
    """

    name: str
    measure: Measure
    is_quick: bool = True
    is_emulated: bool = False


@dataclass(slots=True)
class CaseRunner:
    """Runs the cases, and keeps their results."""

    folder: Path
    gpu: GpuNode | None
    rows: list[Json] = field(default_factory=list)

    async def step(self, step: MeasuredCase) -> None:
        """Measure one case."""
        with self.kept(step.name):
            async with shared_node(self.folder, self.gpu) as here:
                self.keep(await step.measure(here))

    @contextlib.contextmanager
    def kept(self, name: str) -> Iterator[None]:
        """Keep any failure in the block as a row of the table, and go on with the other cases."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - see above; the benchmark's exit status shows it
            traceback.print_exc()
            self.keep({"case": name, "failed": repr(error)})

    def keep(self, row: Json) -> None:
        """Print a row, and append it to the file."""
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
    match value:
        case list():
            return " ".join(_figures(one) for one in value)
        case dict():
            return "(" + ", ".join(f"{name} {_figures(one)}" for name, one in value.items()) + ")"
        case float():
            return f"{value:g}"
    return str(value)


def steps(*, quick: bool) -> Iterator[MeasuredCase]:
    """All cases but KubeShare's figures; fewer and shorter ones if quick."""
    yield from _alone(quick=quick)
    yield from _coupled(quick=quick)
    yield from _judged(quick=quick)
    yield from _served(quick=quick)
    for kernel_ns in arrival.KERNELS:
        measure = partial(arrival.measure, kernel_ns=kernel_ns)
        yield MeasuredCase(f"arrival/{kernel_name(kernel_ns)}", measure, kernel_ns in arrival.QUICK_KERNELS)
    yield MeasuredCase("sequential", partial(short.measure, quick=quick), is_emulated=True)
    yield MeasuredCase("broker/8gpus", partial(broker.measure, quick=quick), is_emulated=True)


def _alone(*, quick: bool) -> Iterator[MeasuredCase]:
    for work in alone.works():
        yield MeasuredCase(f"alone/{work.name}", partial(alone.measure, work), work.name == "sync/1ms")
    yield MeasuredCase("alone/launch", partial(alone.measure_launch, quick=quick))


def _coupled(*, quick: bool) -> Iterator[MeasuredCase]:
    for program in coupled.PROGRAMS:
        measure = partial(coupled.measure, program, quick=quick)
        yield MeasuredCase(f"coupled/{program.name}", measure, program.is_quick, is_emulated=True)


def _judged(*, quick: bool) -> Iterator[MeasuredCase]:
    demands = cases.Demands(quick=quick)
    for case in pauses.cases():
        measure = partial(pauses.measure, case, demands=demands, quick=quick)
        yield MeasuredCase(case.name, measure, case.is_quick)
    for paused in idle_time.cases():
        measure = partial(idle_time.measure, paused, demands=demands, quick=quick)
        yield MeasuredCase(paused.name, measure, paused.is_quick)
    for judged in (*cases.caps(), *cases.streams(), *cases.pairs(), *cases.triples()):
        measure = partial(cases.measure, judged, demands=demands, quick=quick)
        yield MeasuredCase(judged.name, measure, judged.name in cases.QUICK)


def _served(*, quick: bool) -> Iterator[MeasuredCase]:
    for trainer_ns in latency.TRAINER_KERNELS:
        measure = partial(latency.serving, trainer_ns=trainer_ns, quick=quick)
        name = f"latency/serving/{kernel_name(trainer_ns)}"
        yield MeasuredCase(name, measure, trainer_ns in latency.QUICK_TRAINERS)
    for clients in latency.CLIENTS:
        for demand_pct in latency.DEMANDS:
            measure = partial(latency.light, clients=clients, demand_pct=demand_pct, quick=quick)
            is_quick = (clients, demand_pct) in latency.QUICK_LIGHT
            yield MeasuredCase(f"latency/light/{clients}/{demand_pct}", measure, is_quick)


async def figures(runner: CaseRunner, prefixes: Sequence[str], *, quick: bool) -> None:
    """KubeShare's two figures. The first has no figure for the whole run, and is left out if quick."""
    if _is_wanted("kubeshare-6", prefixes) and not quick:
        print("kubeshare-6", flush=True)
        with runner.kept("kubeshare-6"):
            async with shared_node(runner.folder, runner.gpu) as here:
                row, plot = await kubeshare.figure_6(here)
            runner.keep(row)
            _draw("hook-share-kubeshare-6.svg", plot)
    if _is_wanted("quota", prefixes):
        print("quota", flush=True)
        with runner.kept("quota"):
            rows, curve = await kubeshare.figure_7(runner.folder, runner.gpu, quick=quick)
            for row in rows:
                runner.keep(row)
            if curve:
                _draw("hook-share-kubeshare-7.svg", curve)


def _draw(name: str, plot: str) -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / name).write_text(plot)
    print(f"wrote {FOLDER / name}")


def _is_wanted(name: str, prefixes: Sequence[str]) -> bool:
    return not prefixes or any(
        name.startswith(prefix) or prefix.startswith(f"{name}/") for prefix in prefixes
    )


def result(runner: CaseRunner, *, quick: bool, is_whole: bool, took_s: float) -> Json:
    """The last output line without the cases."""
    where = {"gpu": runner.gpu.name, "driver": runner.gpu.driver} if runner.gpu else {}
    return {
        **summary(runner.rows, is_whole=is_whole),
        "quick": quick,
        "settings": asdict(ShareSettings()),
        "took_s": round(took_s),
        "machine": f"{platform.machine()} {platform.system()} {platform.release()}",
        "cores": len(os.sched_getaffinity(0)),
        **where,
        "date": datetime.datetime.now(tz=datetime.UTC).date().isoformat(),
    }


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.hook.share",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--gpu", action="store_true", help="measure on this machine's first GPU")
    parser.add_argument("--quick", action="store_true", help="fewer and shorter cases of each sort")
    parser.add_argument(
        "--case", action="append", default=[], help="only cases whose name begins so; may be repeated"
    )
    return parser.parse_args()


async def main() -> int:
    """Measure, print the results, and end with one JSON line; the exit code is 1 if a case failed to run."""
    options = _options()
    wanted = [
        step
        for step in steps(quick=options.quick)
        if _is_wanted(step.name, options.case)
        and (step.is_quick or not options.quick)
        and not (step.is_emulated and options.gpu)
    ]
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="plimsoll-hook-share-") as temporary:
        folder = Path(temporary)
        runner = CaseRunner(folder, GpuNode() if options.gpu else None)
        for number, step in enumerate(wanted, 1):
            print(f"[{number}/{len(wanted)}, {time.monotonic() - began_s:.0f} s] {step.name}", flush=True)
            await runner.step(step)
        await figures(runner, options.case, quick=options.quick)
    is_whole = not options.case and not options.gpu
    found = result(runner, quick=options.quick, is_whole=is_whole, took_s=time.monotonic() - began_s)
    _append({**found, "case": "all"})
    print(json.dumps({**found, "cases": runner.rows}))
    return int(bool(found["failed"]))


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
