"""The script of one task: its driver calls, and the time that it takes up to each.

The paper gives no memory over time, so the script is an assumption, made of the paper's own figures where they bound
it:

* All tasks start at once (§II.A). A task makes its context, loads its data in parts, and at last initialises its
  library, which is the step that fails in the paper. A refused call fails the task: it holds its memory until it has
  ended.
* `NEED_MIB`, the memory without which no task completes. 23 tasks fit and 24 do not, so it lies between 1/24 and 1/23
  of the card. The middle is taken.
* `LIBRARY_MIB`, its last part. All tasks hold the rest before the first has its library, so with 24 tasks 6 lack it
  if it is between 1/6 and 1/5 of the missing memory. The middle is taken. So 0 failures with 23 tasks and 6 with 24
  are put in, and the failures with 25 come out.
* Table III's 1205 MB is the memory of a task that is alone. 23 × 1205 is more than the card has, so a task on a full
  card does with less. TensorFlow does: the workspace of a convolution is optional. The rest above `NEED_MIB` is asked
  for in the last tenth of the computation, and its refusal fails nothing.
* Memory comes in equal steps of time up to the end of loading. In Table III a task with two thirds of the data takes
  six tenths of the time, so a start that does not depend on the data is short, and is left out.
* Times: `LOAD_S`, in which each further task that loads slows a task by `SLOWING`, then `COMPUTE_S`, in which tasks
  share the GPU's time in equal parts. The three are solved from a task that is alone (8.632 s), from the failures
  with 25 tasks (the end of loading) and from the 10 tasks that completed there. The times with 24 tasks come out.
* `SPREAD_S`: tasks start this far apart (standard deviation), as much as those 15 failures are. `END_S`: the failures
  span 0.76 s, and 15 of 25 failed where 2 would do. So no failed task's memory was free again within that time, and 1
  s is taken for its end.

Source: J. Kang, H. Lee, D. Lee, IJASEIT 2024, §II.A, Tables I and III.
"""

from dataclasses import dataclass
from enum import Enum, auto
from statistics import median, stdev
from typing import Final

from bench.kang.card.paper import (
    ALONE_MIB,
    ALONE_S,
    COMPLETED_MEDIAN_S,
    COMPLETED_S,
    FAILED,
    FAILED_S,
    FITTING,
)

USABLE_MIB: Final = 24114
"""An RTX 4090's memory less what the driver keeps."""
CONTEXT_MIB: Final = 300
PARTS: Final = 4
"""The parts in which data are loaded; the number of failures does not depend on it."""


def _even(mib: float) -> int:
    """The next lower multiple of 2 MiB, in which the driver deals."""
    return int(mib) // 2 * 2


NEED_MIB: Final = _even((USABLE_MIB / FITTING + USABLE_MIB / (FITTING + 1)) / 2)
_MISSING_MIB: Final = 24 * NEED_MIB - USABLE_MIB
LIBRARY_MIB: Final = _even((_MISSING_MIB / FAILED[24] + _MISSING_MIB / (FAILED[24] - 1)) / 2)
PART_MIB: Final = _even((NEED_MIB - CONTEXT_MIB - LIBRARY_MIB) / PARTS)
WORKSPACE_MIB: Final = _even(ALONE_MIB - NEED_MIB)

END_S: Final = 1.0
SPREAD_S: Final = stdev(FAILED_S[25])
_LOADED_S: Final = median(FAILED_S[25]) - END_S
"""The end of loading with 25 tasks."""
COMPUTE_S: Final = (COMPLETED_MEDIAN_S[25] - _LOADED_S) / len(COMPLETED_S[25])
LOAD_S: Final = ALONE_S - COMPUTE_S
SLOWING: Final = (_LOADED_S / LOAD_S - 1) / (25 - 1)


class Stage(Enum):
    """The work of a task up to its next call."""

    LOAD = auto()
    COMPUTE = auto()
    END = auto()
    """The end of a failed task, which no other task slows."""

    def slowness(self, tasks: int) -> float:
        """The time of a task in this stage in relation to a task that is alone there, if this many tasks are."""
        match self:
            case Stage.LOAD:
                return 1 + SLOWING * (tasks - 1)
            case Stage.COMPUTE:
                return tasks
            case Stage.END:
                return 1


class Call(Enum):
    """A call of a task."""

    CONTEXT = auto()
    ALLOCATE = auto()
    TRY = auto()
    """An allocation that the driver may refuse: the task goes on."""
    COMPLETE = auto()
    FAIL = auto()


@dataclass(frozen=True, slots=True)
class Step:
    """A call, and the time before it.

    Attributes:
        alone_s: the time that the task takes up to the call if no other task is in its stage.
        size_mib: the memory that the call asks for.
    """

    stage: Stage
    alone_s: float
    call: Call
    size_mib: int = 0


def script(late_s: float) -> tuple[Step, ...]:
    """The steps of a task that starts this many seconds late (early if negative)."""
    step_s = LOAD_S / (PARTS + 2)
    return (
        Step(Stage.LOAD, step_s + late_s, Call.CONTEXT, CONTEXT_MIB),
        *(Step(Stage.LOAD, step_s, Call.ALLOCATE, PART_MIB) for _ in range(PARTS)),
        Step(Stage.LOAD, step_s, Call.ALLOCATE, NEED_MIB - CONTEXT_MIB - PARTS * PART_MIB),
        Step(Stage.COMPUTE, 0.9 * COMPUTE_S, Call.TRY, WORKSPACE_MIB),
        Step(Stage.COMPUTE, 0.1 * COMPUTE_S, Call.COMPLETE),
    )


FAILING: Final = (Step(Stage.END, END_S, Call.FAIL),)
"""The steps of a task after a refusal."""
