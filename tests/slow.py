"""Parameters and drawn examples of which `make test` tries some, and `make test-all` the others."""

from collections.abc import Iterable
from typing import Final

import pytest
from _pytest.mark.structures import ParameterSet
from hypothesis import HealthCheck, settings

WHOLE: Final = "whole"
"""The profile of `make test-all`: `--hypothesis-profile=whole`."""
QUICK: Final = "quick"
"""The profile of every other run."""
FEW: Final = 5

# No test asserts on speed: a machine shared with others may stop for seconds in the middle of an example.
settings.register_profile(
    WHOLE, deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=100
)
settings.register_profile(QUICK, settings.get_profile(WHOLE), max_examples=25)


def examples(whole: int) -> int:
    """How many of these examples a test draws in this run: in `make test` a quarter, at least a few."""
    return max(min(whole, FEW), whole * settings().max_examples // 100)


def quick_and_slow(quick: Iterable[object], slow: Iterable[object]) -> list[object | ParameterSet]:
    """Parameters for `pytest.mark.parametrize`: those of `slow` have the marker."""
    return [*quick, *(pytest.param(value, marks=pytest.mark.slow) for value in slow)]
