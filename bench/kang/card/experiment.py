"""One run of the experiment: the timeline decides, and the tasks call the driver."""

import random
from dataclasses import dataclass, field

from bench.kang.card.schedule import CallSchedule
from bench.kang.card.script import SPREAD_S, USABLE_MIB, Call, script
from bench.kang.card.ways import Way


@dataclass(slots=True)
class CardRun:
    """The result of a run; times in seconds since its beginning.

    Attributes:
        at_once: the tasks that started at the beginning.
        refused_s: the times at which calls that a task needs were refused, by task.
        completed_s, failed_s: the ends of tasks, by task.
        used_mib: times, and the memory in use on the card from then on; empty unless the run was watched.
    """

    at_once: int = 0
    refused_s: dict[int, float] = field(default_factory=dict)
    completed_s: dict[int, float] = field(default_factory=dict)
    failed_s: dict[int, float] = field(default_factory=dict)
    used_mib: list[tuple[float, float]] = field(default_factory=list)

    @property
    def peak_mib(self) -> float:
        """The most memory in use on the card."""
        return max(mib for _, mib in self.used_mib)


async def run(way: Way, count: int, seed: int, *, watched: bool = False) -> CardRun:
    """Run this many tasks to their ends; `watched` reads the card's memory after each call."""
    chance, schedule, result = random.Random(seed), CallSchedule(), CardRun()
    late_s = [chance.gauss(0.0, SPREAD_S) for _ in range(count)]
    await way.start(count)
    started: set[int] = set()
    while True:
        for number in sorted(way.connections.numbers - started):
            schedule.start(number, script(late_s[number]))
            started.add(number)
        result.at_once = result.at_once or len(started)
        if (due := schedule.next()) is None:
            break
        number, step = due
        granted = await way.connections.make(number, step)
        if step.call in (Call.COMPLETE, Call.FAIL):
            await way.ended(number)
            ends_s = result.completed_s if step.call is Call.COMPLETE else result.failed_s
            ends_s[number] = schedule.now_s
        elif not granted and step.call is not Call.TRY:
            result.refused_s[number] = schedule.now_s
        schedule.answer(number, granted=granted)
        if watched:
            result.used_mib.append((schedule.now_s, await way.used_mib()))
    assert all(mib <= USABLE_MIB for _, mib in result.used_mib)
    return result
