"""The clock of the experiment: whose call is next, and at what time.

Pure. The tasks in one stage slow each other. What always holds: equal scripts and answers give equal calls at equal
times, because no time is read from a machine.
"""

from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass

from bench.kang.card.script import FAILING, Call, Step


@dataclass(slots=True)
class _Task:
    """A task that runs: the steps before it, and the time alone that is left up to its next call."""

    steps: deque[Step]
    left_s: float


class CallSchedule:
    """The tasks that run, by number, and the time in seconds."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._tasks: dict[int, _Task] = {}

    def start(self, number: int, steps: Iterable[Step]) -> None:
        """Let a task start now."""
        ahead = deque(steps)
        self._tasks[number] = _Task(ahead, ahead[0].alone_s)

    def next(self) -> tuple[int, Step] | None:
        """Let time pass until the next call; None if no task runs. `answer` must follow."""
        if not self._tasks:
            return None
        crowd = Counter(task.steps[0].stage for task in self._tasks.values())
        slowness = {
            number: task.steps[0].stage.slowness(crowd[task.steps[0].stage])
            for number, task in self._tasks.items()
        }
        span_s, first = min((task.left_s * slowness[number], number) for number, task in self._tasks.items())
        for number, task in self._tasks.items():
            task.left_s -= span_s / slowness[number]
        self.now_s += span_s
        return first, self._tasks[first].steps[0]

    def answer(self, number: int, *, granted: bool) -> None:
        """Let a task go on after its call: to its next step, or to its end if a call was refused that it needs."""
        task = self._tasks[number]
        step = task.steps.popleft()
        if not granted and step.call is not Call.TRY:
            task.steps = deque(FAILING)
        if task.steps:
            task.left_s = task.steps[0].alone_s
        else:
            del self._tasks[number]
