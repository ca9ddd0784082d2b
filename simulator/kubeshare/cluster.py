"""Runs jobs on a cluster: the placer's own core places them, and the share core gives them their speed.

A job that fits nowhere waits, and is tried again whenever a job has ended. A later job may pass it, as in
Kubernetes. What always holds: the same jobs in the same setting have the same outcome.
"""

from dataclasses import dataclass, field
from typing import Final

from placer.core.candidates import Candidates
from placer.core.ledger import Ledger
from placer.core.plan import Plan
from placer.core.planning import plan_on
from placer.core.policies import LOCALITY, Policy
from placer.core.policy_context import Request
from placer.core.view import NodeView, node_view
from plimsoll.demand import ContainerDemand, PodDemand
from plimsoll.events import Gpu, NodeState
from plimsoll.ids import ContainerName, GpuUuid, NodeName, PodUid
from simulator.core.agenda import Agenda
from simulator.core.shared_gpu import Load, speeds, used_parts
from simulator.kubeshare.jobs import GPU_BYTES, GPUS_PER_NODE, NODES, Job

_ARRIVES, _ENDS = 1, 0
"""Ranks of events at one time: a job that ends makes room for one that arrives."""


@dataclass(frozen=True, slots=True)
class Setting:
    """The way in which jobs get GPUs.

    Attributes:
        name: for people.
        shares: jobs share GPUs; False: each has a whole one, as in Kubernetes.
        policy: orders the GPUs that fit.
    """

    name: str
    shares: bool = True
    policy: Policy = LOCALITY


KUBERNETES: Final = Setting("Kubernetes", shares=False)
KUBESHARE: Final = Setting("KubeShare")


@dataclass(frozen=True, slots=True)
class ClusterSample:
    """The cluster from one event to the next.

    Attributes:
        time_s: the beginning.
        active: the number of GPUs with a job.
        used_part: the part of all GPUs' time that jobs use, 0 to 1.
    """

    time_s: float
    active: int
    used_part: float


@dataclass(frozen=True, slots=True)
class Course:
    """The end of a run: when each job ended, in seconds, and the cluster over time."""

    ended_s: dict[str, float]
    samples: tuple[ClusterSample, ...]

    @property
    def makespan_s(self) -> float:
        """The time at which the last job ended."""
        return max(self.ended_s.values())

    @property
    def jobs_per_min(self) -> float:
        """The throughput over the whole run."""
        return len(self.ended_s) / self.makespan_s * 60


class JobPlacer:
    """A cluster of idle nodes, on which the placer's core places jobs."""

    def __init__(self, setting: Setting, nodes: int = NODES, gpus: int = GPUS_PER_NODE) -> None:
        self._setting = setting
        self._ledger = Ledger()
        views = {NodeName(f"n{node:03}"): _view(f"n{node:03}", gpus) for node in range(nodes)}
        self._candidates = Candidates(self._ledger, views.get)
        for node in views:
            self._candidates.note_report(node)

    def place(self, job: Job) -> GpuUuid | None:
        """Book the best GPU for a job; None where none fits."""
        request = Request(PodUid(job.name), _demand(job, shares=self._setting.shares))
        best: Plan | None = None
        for one in self._candidates.best_first(request, self._setting.policy):
            if best is not None and one.score_bound <= best.score:
                break
            tried = plan_on(request, one.node, self._ledger, self._setting.policy, one.rooms)
            if isinstance(tried, Plan) and (best is None or tried.score > best.score):
                best = tried
        if best is None:
            return None
        self._ledger.book(best.booking)
        return best.booking.grants[0].gpu

    def end(self, job: Job) -> None:
        """Free a job's GPU."""
        self._ledger.forget(PodUid(job.name))


@dataclass(eq=False, slots=True)
class _Running:
    """A job on a GPU: the work that is left, in seconds alone, and its speed since `since_s`."""

    job: Job
    gpu: GpuUuid
    left_s: float
    since_s: float
    speed: float = 0.0
    version: int = 0

    def advance(self, now_s: float) -> None:
        self.left_s = max(self.left_s - (now_s - self.since_s) * self.speed, 0.0)
        self.since_s = now_s


@dataclass(slots=True)
class _Simulation:
    """The cluster, the jobs that run and wait, and the events to come."""

    placer: JobPlacer
    agenda: Agenda[Job | tuple[_Running, int]] = field(default_factory=Agenda)
    waiting: list[Job] = field(default_factory=list)
    on: dict[GpuUuid, list[_Running]] = field(default_factory=dict)
    used: dict[GpuUuid, float] = field(default_factory=dict)
    ended_s: dict[str, float] = field(default_factory=dict)
    samples: list[ClusterSample] = field(default_factory=list)

    def take(self, now_s: float, event: Job | tuple[_Running, int]) -> None:
        if isinstance(event, Job):
            self._start(event, now_s)
            return
        running, version = event
        if version != running.version:
            return  # its speed has changed since
        self.on[running.gpu].remove(running)
        self.placer.end(running.job)
        self.ended_s[running.job.name] = now_s
        self._renew(running.gpu, now_s)
        self._retry(now_s)

    def _retry(self, now_s: float) -> None:
        """Try the waiting jobs in their order. Where a job does not fit, equal jobs are not tried."""
        hopeless, left = set(), []
        for job in self.waiting:
            kind = (job.request_pct, job.locality)
            if kind in hopeless or not self._place(job, now_s):
                hopeless.add(kind)
                left.append(job)
        self.waiting = left

    def _start(self, job: Job, now_s: float) -> None:
        if not self._place(job, now_s):
            self.waiting.append(job)

    def _place(self, job: Job, now_s: float) -> bool:
        gpu = self.placer.place(job)
        if gpu is None:
            return False
        self.on.setdefault(gpu, []).append(_Running(job, gpu, job.runs_s, now_s))
        self._renew(gpu, now_s)
        return True

    def _renew(self, gpu: GpuUuid, now_s: float) -> None:
        """Give the jobs of a GPU the speeds that they have together, and plan their ends."""
        there = self.on[gpu]
        loads = [_load(one.job) for one in there]
        self.used[gpu] = sum(used_parts(loads))
        for one, speed in zip(there, speeds(loads), strict=True):
            one.advance(now_s)
            one.speed, one.version = speed, one.version + 1
            self.agenda.add(now_s + one.left_s / speed, _ENDS, (one, one.version))
        active = sum(1 for pods in self.on.values() if pods)
        used_part = sum(self.used.values()) / (NODES * GPUS_PER_NODE)
        self.samples.append(ClusterSample(now_s, active, used_part))


def run(jobs: list[Job], setting: Setting) -> Course:
    """Run all jobs to their ends."""
    made = _Simulation(JobPlacer(setting))
    for job in jobs:
        made.agenda.add(job.arrives_s, _ARRIVES, job)
    while (event := made.agenda.next()) is not None:
        made.take(*event)
    assert len(made.ended_s) == len(jobs), "each job fits on an idle GPU"
    return Course(made.ended_s, tuple(made.samples))


def _load(job: Job) -> Load:
    return Load(job.request_pct, job.demand_pct)


def _demand(job: Job, *, shares: bool) -> PodDemand:
    name = ContainerName("main")
    if not shares:
        return PodDemand((ContainerDemand(name, 1, None, 0, 100, whole=True),))
    memory_bytes = GPU_BYTES * job.request_pct // 100
    one = ContainerDemand(name, 1, memory_bytes, job.request_pct, 100, whole=False)
    return PodDemand((one,), locality=job.locality)


def _view(node: str, gpus: int) -> NodeView:
    reported = (
        Gpu(
            uuid=GpuUuid(f"GPU-{node}-{index}"),
            index=index,
            model="Tesla V100",
            usable_bytes=GPU_BYTES,
            used_bytes=0,
            idle_pct=100.0,
        )
        for index in range(gpus)
    )
    state = NodeState(node=NodeName(node), epoch=1, seq=1, time="2020-06-23T00:00:00Z", gpus=tuple(reported))
    return node_view(state)
