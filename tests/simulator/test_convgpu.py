"""ConVGPU's experiment: its workload, its figures, and the program's output."""

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from plimsoll.quantity import MIB
from simulator.command import main
from simulator.convgpu import paper
from simulator.convgpu.experiment import ReplayPlan, at_creation, draw_figures, level, run, run_draw
from simulator.convgpu.report import FINISHED, SUSPENDED, chart
from simulator.convgpu.workload import BY_MEMORY, BY_TYPE, MEMORY_MIB, draw

SVG = "{http://www.w3.org/2000/svg}"


def test_a_draw_is_the_same_for_the_same_seed() -> None:
    """The same count and seed give the same containers, and another seed gives others."""
    assert draw(38, 1) == draw(38, 1)
    assert draw(38, 1) != draw(38, 2)


def test_containers_come_every_five_seconds_and_are_of_the_six_types() -> None:
    """Over many draws each type of Table III occurs, with its memory and time, and no other."""
    drawn = [one for seed in range(20) for one in draw(38, seed)]
    assert {one.arrives_s for one in drawn} == {5.0 * index for index in range(38)}
    expected = {(mib * MIB, BY_TYPE[name]) for name, mib in MEMORY_MIB.items()}
    assert {(one.line_bytes, one.runs_s) for one in drawn} == expected


def test_a_context_is_asked_for_first_and_lies_within_the_line() -> None:
    """With a context of 66 MiB every container requests twice, and its declaration includes the context."""
    plain, split = draw(12, 0), draw(12, 0, context_bytes=66 * MIB)
    assert all(one.asks_bytes[0] == 66 * MIB and len(one.asks_bytes) == 2 for one in split)
    assert [one.line_bytes for one in split] == [one.line_bytes for one in plain]


def test_both_readings_of_the_running_time_go_from_5_to_45_seconds() -> None:
    """Both readings of the running time go from 5 to 45 s, as in the paper, and grow from type to type."""
    for durations in (BY_TYPE, BY_MEMORY):
        seconds = list(durations.values())
        assert (seconds[0], seconds[-1]) == (5.0, 45.0)
        assert seconds == sorted(seconds)


def test_the_papers_tables_are_as_printed() -> None:
    """The first two rows equal those of Table IV and Table V."""
    fifo = "67.6 134.1 111.9 159.3 103.6 155.4 198.4 339.8"
    best = "2.4 36.2 21.7 34.3 17.5 44.4 44.9 113.3"
    assert list(paper.FINISHED_S["fifo"].values())[:8] == [float(word) for word in fifo.split()]
    assert list(paper.SUSPENDED_S["best-fit"].values())[:8] == [float(word) for word in best.split()]


def test_a_stuck_draw_leaves_no_figure() -> None:
    """Recent-use deadlocks in most draws of 24 containers under ConVGPU's rule, so there is no mean."""
    (cell,) = run(at_creation, ReplayPlan(counts=(24,), policies=("recent-use",), seeds=tuple(range(10))))
    assert cell.stuck_ratio > 0.5
    assert cell.finished_s == ()
    assert level([cell], "recent-use") is None
    assert run_draw(at_creation, "fifo", 24, 0, ReplayPlan()).stuck == ()


def test_a_spread_places_the_papers_figure_among_the_draws() -> None:
    """A spread has mean, deviation, ratio to the paper's figure, and the number of draws at or below that figure."""
    found = draw_figures([10.0, 20.0, 30.0, 40.0], 30.0)
    assert found is not None
    assert found.as_json() == {"mean": 25.0, "sd": 11.18, "paper": 30.0, "ratio": 0.83, "paper_pct": 75}


@pytest.mark.parametrize("what", [FINISHED, SUSPENDED])
def test_a_chart_has_a_solid_and_a_dashed_line_for_each_policy(what: str) -> None:
    """The SVG is well-formed and has four solid lines for ours and four dashed ones for the paper."""
    cells = run(at_creation, ReplayPlan(counts=(4, 6), policies=("fifo", "best-fit"), seeds=(0, 1)))
    drawn = ElementTree.fromstring(chart(what, cells)).findall(f"{SVG}polyline")  # noqa: S314 - our own text
    assert [line.get("stroke-dasharray") is not None for line in drawn] == [False, True] * 2
    assert all(len(str(line.get("points")).split()) == 2 for line in drawn)


def test_the_program_prints_one_line_of_json_last(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The program prints tables and then one JSON line, and writes two pictures on request."""
    words = [
        "convgpu",
        "--rule",
        "convgpu",
        "--containers",
        "4,16",
        "--draws",
        "3",
        "--charts",
        str(tmp_path),
    ]
    assert main(words) == 0
    said = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert said["finished_s"]["fifo"]["16"]["paper"] == 198.4
    assert set(said["suspended_s"]) == set(paper.POLICIES)
    assert {path.name for path in tmp_path.iterdir()} == {"convgpu-finished.svg", "convgpu-suspended.svg"}


@pytest.mark.parametrize(
    "words", [["--containers", "4,none"], ["--containers", "0"], ["--draws", "0"], ["--memory", "1Gi"]]
)
def test_an_option_that_cannot_work_is_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """A bad option is refused by its name with a remedy, and nothing is replayed."""
    assert main(["convgpu", *words]) == 2
    assert words[0] in capsys.readouterr().err
