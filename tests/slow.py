"""Parameters of which `make test` tries some, and `make test-all` the others."""

from collections.abc import Iterable

import pytest
from _pytest.mark.structures import ParameterSet


def quick_and_slow(quick: Iterable[object], slow: Iterable[object]) -> list[object | ParameterSet]:
    """Parameters for `pytest.mark.parametrize`: those of `slow` have the marker."""
    return [*quick, *(pytest.param(value, marks=pytest.mark.slow) for value in slow)]
