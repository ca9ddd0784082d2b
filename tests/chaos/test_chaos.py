"""Promises hold through every kind of fault: the short form of `make chaos`."""

from pathlib import Path

import pytest

from tests.chaos.plan import FAULTS, draw_plan, kinds
from tests.chaos.run import Options, run

SECONDS = 24.0
SEED = 11


def test_a_plan_is_a_function_of_its_seed() -> None:
    """The same seed gives the same plan, another one another plan, and a short plan has every fault."""
    assert draw_plan(SEED, SECONDS) == draw_plan(SEED, SECONDS)
    assert draw_plan(SEED, SECONDS) != draw_plan(SEED + 1, SECONDS)
    assert kinds(draw_plan(SEED, SECONDS)) == FAULTS.keys()


@pytest.mark.timeout(600)
async def test_promises_hold_through_every_fault(tmp_path: Path) -> None:
    """While everything breaks no GPU is promised beyond its size, and afterwards every copy of the truth is right."""
    summary = await run(Options(SEED, SECONDS, placers=1, without=frozenset({"edits"})), tmp_path)
    assert summary["findings"] == []
    assert summary["faults"].keys() == FAULTS.keys()
    assert summary["bound"] > 0
