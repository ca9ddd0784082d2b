"""Kang et al.'s Tables IV and V at scale, and the burst: the tasks that fail under each way to place."""

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from simulator.command import main
from simulator.kang.experiment import SETTLED_S, run_once
from simulator.kang.world import LARGE, SMALL, RunningTask, TaskKind, World


@pytest.mark.parametrize(("kind", "fitting"), [(LARGE, 23), (SMALL, 34)])
def test_the_constant_parts_bound_the_tasks_of_a_card(kind: TaskKind, fitting: int) -> None:
    """Evenly out of step, 23 of the larger tasks complete and 25 fail, as in the paper's Table I."""
    for count, fails in ((fitting, False), (fitting + 2, True)):
        world = World(1)
        for place in range(count):
            world.add(place / count * kind.run_s, RunningTask(kind, 0))
        world.run(10 * kind.run_s)
        assert any(task.failures for task in world.tasks) == fails
        assert world.used_mib == [sum(task.held_mib for task in world.tasks)]


@pytest.mark.parametrize("nodes", [2, 30])
def test_tables_4_and_5_at_any_size(nodes: int) -> None:
    """By free slots tasks fail, by the paper's list and by headroom none, and no task failed before."""
    by = {placer: run_once("tables", placer, nodes, seed=1) for placer in ("slots", "kang", "headroom")}
    assert by["slots"].failed > nodes
    assert (by["kang"].failed, by["headroom"].failed) == (0, 0)
    assert {(one.unfit, one.waiting) for one in by.values()} == {(0, 0)}


def test_a_burst_fails_by_the_papers_list_alone() -> None:
    """Within one second no event changes the list, so all pods go to its first nodes; promises spread them."""
    kang, headroom = (run_once("burst", placer, 3, seed=1) for placer in ("kang", "headroom"))
    assert (kang.most_on_a_node, headroom.most_on_a_node) == (30, 20)
    assert kang.failed > 20
    assert (headroom.failed, headroom.waiting) == (0, 0)


def test_a_run_is_the_same_for_the_same_seed() -> None:
    """The same seed gives the same outcome, and all tasks run again and again."""
    assert run_once("tables", "slots", 3, seed=5) == run_once("tables", "slots", 3, seed=5)
    assert 2 * LARGE.run_s < SETTLED_S


def test_the_program_prints_a_table_and_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The last line is JSON with a key for each cell, and the picture is an SVG."""
    assert main(["kang", "--nodes", "2", "--draws", "1", "--charts", str(tmp_path)]) == 0
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert result["failed_tasks.tables.2.headroom"] == result["unfit_residents"] == 0
    ElementTree.fromstring((tmp_path / "kang-failed.svg").read_text())  # noqa: S314 - our own picture
    assert main(["kang", "--nodes", "1"]) == 2
    assert "--nodes: '1' is not a list of numbers above 1" in capsys.readouterr().err
