"""Figures 3, 5 and 11: where containers go, how use follows requests, and how long a decision takes."""

import itertools
import time
from collections.abc import Sequence
from functools import partial
from typing import Final

from placer.core.policies import LOCALITY
from simulator.bars import bar_chart
from simulator.charts import ChartLine, line_chart
from simulator.core.shared_gpu import Load, speeds, used_parts
from simulator.kubeshare.cluster import KUBESHARE, JobPlacer, Setting
from simulator.kubeshare.figure import Figure, PaperClaim
from simulator.kubeshare.jobs import GPUS_PER_NODE, Job

DEMANDS_PCT: Final = {"A": 60, "B": 20, "C": 40, "D": 30, "E": 50, "F": 40}
"""Containers A to F. The paper's sizes are in its drawing alone, so these are ours."""
REQUEST_MS: Final = 4.0
"""The GPU time of a client's request."""
PODS: Final = (10, 25, 50, 100)
"""Numbers of pods with a GPU, as in Figure 11, up to the paper's most."""
_ROUNDS: Final = 50


def figure_3() -> Figure:
    """The GPUs of six containers: in turn, and by the policy `locality`."""
    jobs = [Job(name, 0.0, 1.0, pct, pct) for name, pct in DEMANDS_PCT.items()]
    in_turn: list[list[Job]] = [jobs[gpu::GPUS_PER_NODE] for gpu in range(GPUS_PER_NODE)]
    by_locality = _by_locality(jobs)
    rows = tuple(
        (f"GPU {gpu + 1}", *_described(in_turn[gpu]), *_described(by_locality[gpu]))
        for gpu in range(GPUS_PER_NODE)
    )
    return Figure(
        "3",
        "containers A to F on four GPUs",
        ("GPU", "in turn", "demand %", "slowest", "locality", "demand %", "slowest"),
        rows,
        _claims_3(in_turn, by_locality),
        partial(_chart_3, in_turn, by_locality),
    )


def _by_locality(jobs: Sequence[Job]) -> list[list[Job]]:
    """The jobs on each GPU as the policy places them; the GPUs without one are last."""
    placer = JobPlacer(Setting("locality", policy=LOCALITY), nodes=1)
    placed: dict[str, list[Job]] = {}
    for job in jobs:
        placed.setdefault(str(placer.place(job)), []).append(job)
    return [*placed.values(), *([[]] * (GPUS_PER_NODE - len(placed)))]


def _claims_3(in_turn: list[list[Job]], by_locality: list[list[Job]]) -> tuple[PaperClaim, ...]:
    turn, local = [[_demand_pct(there) for there in gpus] for gpus in (in_turn, by_locality)]
    slowest = min(_slowest(there) for there in by_locality)
    return (
        PaperClaim(
            "in turn, a GPU is overcommitted while another is half empty", max(turn) > 100 and min(turn) <= 50
        ),
        PaperClaim(
            "an overcommitted GPU slows its containers", min(_slowest(there) for there in in_turn) < 0.97
        ),
        PaperClaim(
            "by locality, no GPU is overcommitted, and no container slowed",
            max(local) <= 100 and slowest > 0.97,
        ),
        PaperClaim("by locality, fewer GPUs are active", sum(map(bool, local)) < sum(map(bool, turn))),
    )


def _chart_3(in_turn: list[list[Job]], by_locality: list[list[Job]]) -> str:
    series = {"in turn": [*map(_demand_pct, in_turn)], "locality": [*map(_demand_pct, by_locality)]}
    colours = {"in turn": "#c0392b", "locality": "#1b6ca8"}
    groups = [f"GPU {gpu + 1}" for gpu in range(GPUS_PER_NODE)]
    title = "KubeShare, Figure 3: demand on each GPU"
    return bar_chart(title, "%", groups, series, colours, line_at=100.0)


def _described(there: list[Job]) -> tuple[str, float, float]:
    """The names of the jobs on a GPU, their demand, and the speed of the slowest."""
    return "+".join(one.name for one in there) or "–", _demand_pct(there), _slowest(there)


def _demand_pct(there: list[Job]) -> float:
    return float(sum(one.demand_pct for one in there))


def _slowest(there: list[Job]) -> float:
    """The speed of the slowest container on a GPU, 0 to 1; 1 on an idle one."""
    return min(speeds([Load(min(one.request_pct, 100), one.demand_pct) for one in there]), default=1.0)


def figure_5() -> Figure:
    """The use of a GPU by the requests that clients send each second."""
    rates = list(range(25, 276, 25))
    rows = []
    for rate in rates:
        offered_pct = rate * REQUEST_MS / 10
        (part,) = used_parts([Load(0, round(offered_pct))])
        rows.append((float(rate), offered_pct, 100 * part))
    free = [row for row in rows if row[1] <= 100]
    claims = (
        PaperClaim("use grows with the requests", all(a[2] < b[2] for a, b in itertools.pairwise(free))),
        PaperClaim(
            "use is proportional to them up to the whole GPU", all(abs(row[2] - row[1]) <= 1 for row in free)
        ),
    )

    def svg() -> str:
        line = ChartLine("used", "#1b6ca8", tuple((row[0], row[2]) for row in rows))
        return line_chart("KubeShare, Figure 5: use by requests", "requests/s", "% of the GPU", [line])

    return Figure(
        "5",
        "use of a GPU by client requests",
        ("requests/s", "offered %", "used %"),
        tuple(rows),
        claims,
        svg,
    )


def figure_11() -> Figure:
    """The time of a decision by the number of pods; measured, so it differs from run to run."""
    rows = tuple((float(pods), _decision_ms(pods)) for pods in PODS)
    claims = (
        PaperClaim("below 400 ms with 100 pods", rows[-1][1] < 400),
        PaperClaim(
            "the time grows in proportion to the pods",
            rows[-1][1] > 5 * rows[0][1],
            "a decision reads ranked GPUs, not pods",
        ),
    )

    def svg() -> str:
        return line_chart(
            "KubeShare, Figure 11: a decision", "pods", "ms", [ChartLine("locality", "#1b6ca8", rows)]
        )

    return Figure("11", "time of a decision by number of pods", ("pods", "ms"), rows, claims, svg)


def _decision_ms(pods: int) -> float:
    """The median time of a decision and its booking, on 32 GPUs with this many pods."""
    placer = JobPlacer(KUBESHARE)
    for number in range(pods):
        placer.place(Job(f"p{number}", 0.0, 1.0, 10, 10))
    took_ms, probe = [], Job("probe", 0.0, 1.0, 10, 10)
    for _ in range(_ROUNDS):
        began = time.perf_counter()
        placer.place(probe)
        took_ms.append((time.perf_counter() - began) * 1000)
        placer.end(probe)
    return sorted(took_ms)[_ROUNDS // 2]
