"""The progress of programs whose work waits for itself (`task/coupled.c`), under a limit and beside others.

Each program runs alone without the library, alone with a limit, and with a request beside a greedy tenant of its
first GPU. Its progress is counted in its own steps, and by the book in the time in which a GPU executes its work;
the smaller ratio counts. A program of several GPUs also runs between greedy tenants, one on each: their slices
come at different times, and it waits for the later ones.
"""

from dataclasses import dataclass
from typing import Final

from bench.hook.share.cases import MS, US
from bench.hook.share.figures import met_ratio, progress_ratio
from bench.hook.share.shared_node import SharedNode
from bench.hook.share.tenants import Json, RunResult, Tenant, Workload

DUE_PCT: Final = 60
BESIDE_PCT: Final = 40
ALONE_SECONDS, SECONDS = 5.0, 8.0
QUICK_ALONE_SECONDS, QUICK_SECONDS = 2.5, 4.0
LATER: Final = 8


@dataclass(frozen=True, slots=True)
class Coupled:
    """One program on this many GPUs.

    Attributes:
        is_quick: whether it is a case of the quick run.
        is_judged: its ratios are held against the bars; others' stand beside, as `coupled_further_ratio_min`.
    """

    name: str
    work: Workload
    gpus: tuple[int, ...] = (0,)
    is_quick: bool = True
    is_judged: bool = True


PROGRAMS: Final = (
    Coupled("gil", Workload("gil", 200 * US, 1)),
    Coupled("gil-two-threads", Workload("gil", 200 * US, 2), is_quick=False, is_judged=False),
    Coupled("streams", Workload("streams", MS, LATER)),
    Coupled("streams-ahead", Workload("streams-ahead", MS, LATER), is_quick=False, is_judged=False),
    Coupled("events", Workload("events", MS, LATER), is_quick=False, is_judged=False),
    Coupled("collective", Workload("collective", MS), (0, 1)),
    Coupled("ranks", Workload("ranks", MS), (0, 1), is_judged=False),
    Coupled("persistent", Workload("persistent", MS, LATER)),
)


async def measure(program: Coupled, here: SharedNode, *, quick: bool) -> Json:
    """Run one program in its three ways."""
    alone_s, seconds = (QUICK_ALONE_SECONDS, QUICK_SECONDS) if quick else (ALONE_SECONDS, SECONDS)
    tenant = Tenant(program.name, program.work, DUE_PCT, gpus=program.gpus)
    limited = Tenant(program.name, program.work, DUE_PCT, DUE_PCT, gpus=program.gpus)
    greedy = [Tenant(f"greedy {gpu}", Workload("async", MS), BESIDE_PCT, gpus=(gpu,)) for gpu in program.gpus]
    several = len(greedy) > 1
    alone = await here.run([tenant], alone_s, is_hooked=False)
    under_limit = await here.run([limited], seconds)
    beside = await here.run([tenant, greedy[0]], seconds)
    between = await here.run([tenant, *greedy], seconds) if several else beside
    progress, met, further = (min(_ratios(run, alone).values()) for run in (under_limit, beside, between))
    judged = {"coupled_progress_ratio": progress, "coupled_beside_ratio": met}
    return {
        "case": f"coupled/{program.name}",
        "alone": _did(alone),
        "limited": _did(under_limit) | _ratios(under_limit, alone),
        "beside": _did(beside) | _ratios(beside, alone),
        **({"between": _did(between) | _ratios(between, alone)} if several else {}),
        **(judged if program.is_judged else {}),
        "coupled_further_ratio": further if program.is_judged else min(progress, met, further),
        "load": round(beside.load, 2),
    }


def _did(run: RunResult) -> Json:
    first = run.tenants[0]
    return {
        "steps_per_s": round(first.steps_per_s, 2),
        "longest_step_ms": first.answer["longest_step_ms"],
        "share_pct": [round(result.share_pct(run.begin_ns, run.end_ns), 2) for result in run.tenants],
    }


def _ratios(run: RunResult, alone: RunResult) -> dict[str, float]:
    """The ratio by steps, and the ratio by the book."""
    one, other = run.tenants[0], alone.tenants[0]
    alone_pct = other.share_pct(alone.begin_ns, alone.end_ns)
    steps = progress_ratio(one.steps_per_s, other.steps_per_s, alone_pct, DUE_PCT)
    book = met_ratio(one.share_pct(run.begin_ns, run.end_ns), DUE_PCT, alone_pct)
    return {"steps_ratio": round(steps, 4), "book_ratio": round(book, 4)}
