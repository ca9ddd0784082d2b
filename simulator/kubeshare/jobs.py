"""The jobs of the experiments, and the settings in which they run.

The paper gives no running time and no demand as a number. It gives 32 GPUs, and a throughput of Kubernetes that ends
at 50 jobs a minute, at three times the first frequency. So a job that is alone runs for 32 ÷ 50 minutes, and 50 ÷ 3
jobs a minute come at frequency 1.
"""

import random
from dataclasses import dataclass
from typing import Final

from plimsoll.locality import NO_LABELS, Locality

NODES: Final = 8
GPUS_PER_NODE: Final = 4
GPUS: Final = NODES * GPUS_PER_NODE
GPU_BYTES: Final = 16 * 1024**3
"""The paper's testbed: 8 nodes with 4 V100 of 16 GB (§5.1)."""

MOST_BY_KUBERNETES: Final = 50.0
"""Jobs a minute that Kubernetes finishes at most (§5.3, Figure 8a)."""
RUNS_S: Final = GPUS / MOST_BY_KUBERNETES * 60
FIRST_FREQUENCY: Final = MOST_BY_KUBERNETES / 3
"""Jobs a minute that come at frequency 1."""

STEP_PCT: Final = 10
"""Demands are multiples of this."""
SPREAD_PCT: Final = 5.0
"""The standard deviation of demands is the level of variance times this. The paper's levels have no unit."""


@dataclass(frozen=True, slots=True)
class Job:
    """A job.

    Attributes:
        arrives_s: the time of its arrival, in seconds.
        runs_s: the time that it runs when it is alone on a GPU.
        request_pct: the share, and the part of a GPU's memory, that it requests.
        demand_pct: the part of a GPU's time that it uses when it is alone.
        locality: its labels.
    """

    name: str
    arrives_s: float
    runs_s: float
    request_pct: int
    demand_pct: int
    locality: Locality = NO_LABELS


def arriving(count: int, frequency: float, mean_pct: float, variance: float, seed: int) -> list[Job]:
    """Inference jobs that come by a Poisson process, with normal demands; each requests what it uses (§5.3)."""
    chance = random.Random(seed)
    jobs, now_s = [], 0.0
    for number in range(count):
        now_s += chance.expovariate(frequency * FIRST_FREQUENCY / 60)
        drawn = chance.gauss(mean_pct, variance * SPREAD_PCT)
        demand_pct = min(max(round(drawn / STEP_PCT), 1), 100 // STEP_PCT) * STEP_PCT
        jobs.append(Job(f"job-{number}", now_s, RUNS_S, demand_pct, demand_pct))
    return jobs


A_REQUEST_PCT, A_DEMAND_PCT = 30, 20
B_REQUEST_PCT, B_DEMAND_PCT = 45, 75
"""Jobs A request more than they need, and jobs B less than they use alone; both below half of a GPU (§5.5)."""
B_LABEL: Final = Locality(anti_affinity="default/b")


def interfering(count: int, a_ratio: float, seed: int, b_label: Locality = NO_LABELS) -> list[Job]:
    """Jobs A and B, all there at the beginning in a drawn order.

    Args:
        count: the number of jobs.
        a_ratio: the part of jobs A, 0 to 1.
        seed: the seed of the order.
        b_label: the labels of jobs B.
    """
    kinds = ["a"] * round(count * a_ratio)
    kinds += ["b"] * (count - len(kinds))
    random.Random(seed).shuffle(kinds)
    return [
        Job(f"{kind}-{number}", 0.0, RUNS_S, A_REQUEST_PCT, A_DEMAND_PCT)
        if kind == "a"
        else Job(f"{kind}-{number}", 0.0, RUNS_S, B_REQUEST_PCT, B_DEMAND_PCT, b_label)
        for number, kind in enumerate(kinds)
    ]
