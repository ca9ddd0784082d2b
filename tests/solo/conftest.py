"""Fixtures of the tests of `plimsoll run`."""

from pathlib import Path

import pytest

from tests.solo.machine import Machine


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """An emulated machine for one test."""
    return Machine(tmp_path)
