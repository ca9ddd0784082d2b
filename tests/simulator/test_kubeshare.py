"""KubeShare's experiments: the jobs, the runs, the figures, and the program's output."""

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from plimsoll.locality import NO_LABELS
from simulator.command import main
from simulator.kubeshare.cluster import KUBERNETES, KUBESHARE, run
from simulator.kubeshare.interference import figure_12, figure_13
from simulator.kubeshare.jobs import B_LABEL, GPUS, RUNS_S, Job, arriving, interfering
from simulator.kubeshare.placement import figure_3, figure_5


def test_runs_are_the_same_for_the_same_seed() -> None:
    """The same seed gives the same jobs and the same ends, and another seed gives others."""
    jobs = arriving(40, 9, 30, 2, seed=1)
    assert jobs == arriving(40, 9, 30, 2, seed=1) != arriving(40, 9, 30, 2, seed=2)
    assert run(jobs, KUBESHARE) == run(jobs, KUBESHARE)


def test_jobs_that_have_their_own_gpu_run_as_long_as_alone_and_others_wait() -> None:
    """In Kubernetes, 33 jobs on 32 GPUs take two rounds, however little they use; sharing takes one."""
    jobs = [Job(f"j{n}", 0.0, RUNS_S, 10, 10) for n in range(GPUS + 1)]
    apart, shared = run(jobs, KUBERNETES), run(jobs, KUBESHARE)
    assert min(apart.ended_s.values()) == pytest.approx(RUNS_S)
    assert apart.makespan_s == pytest.approx(2 * RUNS_S)
    assert max(one.active for one in apart.samples) == GPUS
    assert shared.makespan_s == pytest.approx(RUNS_S, rel=0.05)
    assert max(one.active for one in shared.samples) == 4, "ten jobs of 10 % fill a GPU"


def test_anti_affinity_keeps_jobs_b_apart() -> None:
    """Two jobs B share a GPU and slow each other without the label, and do neither with it."""
    together, apart = (run(interfering(2, 0.0, 1, label), KUBESHARE) for label in (NO_LABELS, B_LABEL))
    assert together.makespan_s == pytest.approx(1.5 * RUNS_S, rel=0.05)
    assert apart.makespan_s == pytest.approx(RUNS_S)


def test_figures_have_the_papers_shapes() -> None:
    """Figures 3, 5, 12 and 13 meet all claims."""
    for figure in (figure_3(), figure_5(), figure_12(), figure_13(320, (42, 43))):
        assert all(claim.is_met for claim in figure.claims), [claim.verdict for claim in figure.claims]


def test_the_program_prints_tables_and_one_line_of_json_last(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Each figure that is asked for has a table, its claims, a part of the JSON and a picture."""
    words = ["kubeshare", "--figures", "3,9,11", "--jobs", "48", "--runs", "1", "--charts", str(tmp_path)]
    assert main(words) == 0
    printed = capsys.readouterr().out.splitlines()
    said = json.loads(printed[-1])
    assert list(said) == ["3", "9", "11"]
    assert said["3"]["claims"]["by locality, fewer GPUs are active"] is True
    assert "- met: by locality, fewer GPUs are active" in printed
    for name in ("3", "9", "11"):
        ElementTree.fromstring((tmp_path / f"kubeshare-{name}.svg").read_text())  # noqa: S314 - our own text


@pytest.mark.parametrize("words", [["--figures", "7"], ["--jobs", "0"], ["--runs", "0"]])
def test_an_option_that_cannot_work_is_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """A bad option is refused by its name with a remedy, and nothing is run."""
    assert main(["kubeshare", *words]) == 2
    assert words[0] in capsys.readouterr().err
