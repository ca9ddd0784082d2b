"""A gate that opens and shuts at random changes no result of a program and stops none for ever."""

import random
from collections.abc import Iterator
from time import monotonic, sleep

import pytest

from plimsoll.broker.pages import GATE_METERED, GATE_OPEN, GATE_SHUT
from tests.hook.lib.gate import until
from tests.hook.lib.stage import Stage, staged
from tests.servers.waiting import PATIENCE_S

SEEDS = range(6)
THREADS = 3
STEPS = 1200


@pytest.fixture(name="stage", scope="module")
def _stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with staged(tmp_path_factory.mktemp("storm"), GATE_OPEN) as stage:
        stage.script.use("storm")
        yield stage


@pytest.mark.parametrize("seed", SEEDS)
def test_programs_come_out_the_same_under_any_gate(stage: Stage, seed: int) -> None:
    """Programs of threads, ordered streams, graphs, host functions and callbacks end with the right results.

    The library tells of no more time than the GPU worked, but for pauses in which the machine stopped a thread
    between a launch and its marks.
    """
    dice = random.Random(seed)  # noqa: S311 - a dice, not a secret
    states = [GATE_OPEN, GATE_METERED, GATE_SHUT]
    executed_ns, told_ns = stage.settle()
    stage.script.do(f"""
        before_ns = others_kept_waiting_ns()
        workers = [Worker({seed} * 100 + n, {STEPS}) for n in range({THREADS})]
        for worker in workers: worker.start()
    """)
    end = monotonic() + PATIENCE_S
    while stage.script.get("any(worker.is_alive() for worker in workers)") and monotonic() < end:
        stage.gate.set(dice.choice(states))
        sleep(dice.choice((0.0005, 0.002, 0.008)))
    stage.gate.set(dice.choice((GATE_OPEN, GATE_METERED)))
    stage.script.do("for worker in workers: worker.join(60)")
    assert stage.script.get("[worker.fault() for worker in workers]") == [None] * THREADS
    stage.gate.set(GATE_METERED)
    executed_after_ns, told_after_ns = stage.settle()
    until(lambda: (stage.work.launched_ns, stage.work.waiting, stage.work.queued_ns) == (0, 0, 0))
    stopped_ns = stage.script.get(
        "others_kept_waiting_ns() - before_ns + sum(worker.kept_waiting_ns for worker in workers)"
    )
    spent_ns = executed_after_ns - executed_ns
    assert 0 < told_after_ns - told_ns < 1.1 * spent_ns + stopped_ns
