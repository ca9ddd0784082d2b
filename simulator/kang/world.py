"""Cards with 24 GB and tasks that run again and again: who holds how much memory when, and whose run fails.

The tasks are those of `bench/kang/scenario.py`, in the paper's own time. A run holds its constant part throughout and
its peak for the last tenth. It fails if an allocation finds no room; then it frees all and begins anew. A process
begins with its context, and has loaded its input `LOAD_S` later.

Source: J. Kang, H. Lee, D. Lee, IJASEIT 2024, Table III; Table I bounds the constant part: 23 tasks fit and 24 do
    not.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from plimsoll.events import Phase
from plimsoll.ids import PodUid
from simulator.core.agenda import Agenda

USABLE_MIB: Final = 24114
"""An RTX 4090's memory less what the driver keeps."""

CONTEXT_MIB: Final = 300
START_S: Final = 2.0
"""From the decision on a pod until its process is on the GPU: sandbox, image and interpreter. It was not measured
for the paper's pods. It is longer than the burst, so no event of a pod comes while the burst lasts."""
LOAD_S: Final = 1.0
PEAK_AFTER: Final = 0.9
"""The part of a run after which a task holds its peak."""
RETRY_S: Final = 0.2


@dataclass(frozen=True, slots=True)
class TaskKind:
    """A row of Table III: the memory of a run without and with its peak, context included, and its length."""

    name: str
    kept_mib: int
    peak_mib: int
    run_s: float


LARGE: Final = TaskKind("60,000 data", 985, 1205, 8.632)
SMALL: Final = TaskKind("40,000 data", 671, 821, 5.09)


@dataclass(slots=True)
class RunningTask:
    """A task on a card.

    Attributes:
        pod: None for a resident task, which no placer placed.
        held_mib: its memory now.
        failures: its failed runs.
    """

    kind: TaskKind
    node: int
    pod: PodUid | None = None
    held_mib: int = 0
    failures: int = 0
    is_loaded: bool = False


OnPhase = Callable[[float, RunningTask, Phase], None]
_Event = Callable[[float], None]


@dataclass(slots=True)
class World:
    """All cards, one on each node, and the time.

    Attributes:
        used_mib: the memory in use on each card.
        tasks: all tasks, those among them that have not started yet.
        on_node: the same by node.
        on_phase: called when a placed task starts and when it has loaded.
    """

    nodes: int
    on_phase: OnPhase = lambda *_: None
    used_mib: list[int] = field(init=False)
    tasks: list[RunningTask] = field(default_factory=list)
    on_node: list[list[RunningTask]] = field(init=False)
    _agenda: Agenda[_Event] = field(default_factory=Agenda)

    def __post_init__(self) -> None:
        self.used_mib = [0] * self.nodes
        self.on_node = [[] for _ in range(self.nodes)]

    def at(self, time_s: float, event: _Event) -> None:
        """Call `event` with the time, at that time."""
        self._agenda.add(time_s, 0, event)

    def add(self, time_s: float, task: RunningTask) -> None:
        """Start a task at a time."""
        self.tasks.append(task)
        self.on_node[task.node].append(task)
        self.at(time_s, lambda now_s: self._start(now_s, task))

    def run(self, until_s: float) -> None:
        """Let time pass; what is due at `until_s` or later does not happen."""
        while (found := self._agenda.next()) is not None:
            now_s, event = found
            if now_s >= until_s:
                self._agenda.add(now_s, -1, event)
                return
            event(now_s)

    def _start(self, now_s: float, task: RunningTask) -> None:
        if self._takes(now_s, task, CONTEXT_MIB):
            self._tell(now_s, task, Phase.STARTED)
            self.at(now_s + LOAD_S, lambda later_s: self._load(later_s, task))

    def _load(self, now_s: float, task: RunningTask) -> None:
        if self._takes(now_s, task, task.kind.kept_mib):
            if not task.is_loaded:
                task.is_loaded = True
                self._tell(now_s, task, Phase.LOADED)
            self.at(now_s + PEAK_AFTER * task.kind.run_s, lambda later_s: self._peak(later_s, task))

    def _peak(self, now_s: float, task: RunningTask) -> None:
        if self._takes(now_s, task, task.kind.peak_mib):
            self.at(now_s + (1 - PEAK_AFTER) * task.kind.run_s, lambda later_s: self._end(later_s, task))

    def _end(self, now_s: float, task: RunningTask) -> None:
        self._hold(task, CONTEXT_MIB)
        self._load(now_s, task)

    def _takes(self, now_s: float, task: RunningTask, wanted_mib: int) -> bool:
        """Raise a task's memory; False if there is no room, and the run has failed."""
        if self.used_mib[task.node] - task.held_mib + wanted_mib <= USABLE_MIB:
            self._hold(task, wanted_mib)
            return True
        task.failures += 1
        self._hold(task, 0)
        self.at(now_s + RETRY_S, lambda later_s: self._start(later_s, task))
        return False

    def _hold(self, task: RunningTask, held_mib: int) -> None:
        self.used_mib[task.node] += held_mib - task.held_mib
        task.held_mib = held_mib

    def _tell(self, now_s: float, task: RunningTask, phase: Phase) -> None:
        if task.pod is not None:
            self.on_phase(now_s, task, phase)
