"""The pictures: memory over time with each refusal marked, and the paper's Figures 1 and 2."""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Final

from bench.kang.card.experiment import CardRun
from bench.kang.card.paper import ALONE_S, COMPLETED_S, FITTING
from bench.kang.card.script import USABLE_MIB
from simulator.bars import bar_chart
from simulator.charts import ChartLine, Marks, line_chart

_PLAIN, _DECLARED, _PAPER, _CARD = "#c0392b", "#1b6ca8", "#555555", "#999999"
_TICK_S: Final = 5


def memory(count: int, plain: CardRun, declared: CardRun) -> str:
    """The memory on the card over time, of this many tasks without Plimsoll and with it."""
    end_s = max(time_s for result in (plain, declared) for time_s, _ in result.used_mib)
    lines = [
        ChartLine("plain processes", _PLAIN, _steps(plain.used_mib, end_s)),
        ChartLine("under Plimsoll", _DECLARED, _steps(declared.used_mib, end_s)),
        ChartLine("the card", _CARD, ((0.0, USABLE_MIB / 1024), (end_s, USABLE_MIB / 1024)), dashed=True),
    ]
    marks = [
        Marks(f"{len(result.refused_s)} tasks fail", colour, _places(result))
        for result, colour in ((plain, _PLAIN), (declared, _DECLARED))
    ]
    title = f"{count} tasks at once on a card where {FITTING} fit: memory in use"
    return line_chart(title, "s", "GiB", lines, range(0, int(end_s) + _TICK_S, _TICK_S), marks)


def _steps(used_mib: Sequence[tuple[float, float]], end_s: float) -> tuple[tuple[float, float], ...]:
    """The corners of the line: memory keeps its value until the next call."""
    points = [(0.0, 0.0)]
    for time_s, mib in used_mib:
        points += [(time_s, points[-1][1]), (time_s, mib / 1024)]
    return (*points, (end_s, points[-1][1]))


def _places(result: CardRun) -> tuple[tuple[float, float], ...]:
    """The refusals, each at the memory that was in use then."""
    at = dict(result.used_mib)
    return tuple((time_s, at[time_s] / 1024) for time_s in result.refused_s.values())


def figure_1(runs: Mapping[int, CardRun]) -> str:
    """The run times of the tasks that complete, by the number of tasks, and the paper's."""
    times = {count: sorted(result.completed_s.values()) for count, result in runs.items()}
    lines = [
        ChartLine(
            "slowest",
            _DECLARED,
            tuple((float(count), found[-1]) for count, found in times.items()),
            dashed=True,
        ),
        ChartLine("mean", _DECLARED, tuple((float(count), fmean(found)) for count, found in times.items())),
        ChartLine(
            "fastest",
            _DECLARED,
            tuple((float(count), found[0]) for count, found in times.items()),
            dashed=True,
        ),
        ChartLine(
            "failed tasks",
            _PLAIN,
            tuple((float(count), float(len(one.failed_s))) for count, one in runs.items()),
        ),
    ]
    papers = {1: (ALONE_S,), **COMPLETED_S}
    marks = [
        Marks(
            "the paper's mean",
            _PAPER,
            tuple((float(count), fmean(found)) for count, found in papers.items()),
        )
    ]
    return line_chart("Figure 1: run time by the number of tasks", "tasks", "s", lines, list(runs), marks)


def figure_2(result: CardRun) -> str:
    """The run time of each of the tasks that fit."""
    numbers = sorted(result.completed_s)
    return bar_chart(
        f"Figure 2: run time of each of {FITTING} tasks",
        "s",
        [str(number + 1) for number in numbers],
        {"run time": [result.completed_s[number] for number in numbers]},
        {"run time": _DECLARED},
    )
