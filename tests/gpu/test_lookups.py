"""NVIDIA's driver answers look-ups, with the library in front of it and without.

The library knows a function by its address: it returns its wrapper where `cuGetProcAddress` returns the function
that the driver also exports by name. Only a real driver can show that it does so.
"""

from pathlib import Path

import pytest

from plimsoll.quantity import MIB
from tests.gpu.facts import Facts
from tests.hook.lib.container import Container, Line, limits_of
from tests.hook.lib.elf import read_library
from tests.hook.lib.lookups import ALLOCATING, Answer, answers, hooked_symbols, run
from tests.hook.lib.program import LIBRARY, OUT_OF_MEMORY, SUCCESS

pytestmark = pytest.mark.gpu

LINE_MIB, PAST_LINE_MIB = 192, 256
LOOKUPS = ["cuGetProcAddress", "cuGetProcAddress_v2"]


@pytest.fixture(name="hooked")
def _hooked(surroundings: dict[str, str], facts: Facts, tmp_path: Path) -> dict[str, str]:
    """The environment of a program in a container with a line of 192 MiB; no broker is needed."""
    container = Container(tmp_path / "container")
    container.write(limits_of([Line(facts.gpu, LINE_MIB * MIB)]))
    visible = {"CUDA_VISIBLE_DEVICES": facts.gpu, "LD_PRELOAD": str(LIBRARY)}
    return {**surroundings, **container.environment, **visible}


def hooks_of(driver: Path) -> set[str]:
    """The hooked functions that this driver exports."""
    return hooked_symbols() & read_library(driver).defined


def test_the_driver_hands_out_what_it_exports(surroundings: dict[str, str], facts: Facts) -> None:
    """Without the library, a look-up returns each hooked function that the driver exports."""
    driver = facts.driver
    found = answers(surroundings, "cuGetProcAddress_v2")
    missing = hooks_of(driver) - {answer.symbol for answer in found}
    assert not missing, f"{driver} answers look-ups with functions that it does not export: {sorted(missing)}"


@pytest.mark.parametrize("symbol", LOOKUPS)
def test_each_hooked_function_is_answered_by_its_wrapper(
    surroundings: dict[str, str], hooked: dict[str, str], symbol: str
) -> None:
    """Results, statuses and variants equal those without the library; wrappers come exactly where hooks are."""
    hooks = hooked_symbols()
    plain = answers(surroundings, symbol)
    expected = [answer._replace(file=LIBRARY.name) if answer.symbol in hooks else answer for answer in plain]
    pairs = zip(expected, answers(hooked, symbol), strict=True)
    different: list[tuple[Answer, Answer]] = [(want, got) for want, got in pairs if want != got]
    assert different == []


def test_every_pointer_that_allocates_is_held_to_the_line(
    surroundings: dict[str, str], hooked: dict[str, str]
) -> None:
    """256 MiB fit the card and not the line, and 1 MiB fits both, for pointers of every version and stream."""
    asked = ("allocate", str(PAST_LINE_MIB))
    plain = [line.split() for line in run(surroundings, *asked)]
    held = [line.split() for line in run(hooked, *asked)]
    assert {row[0] for row in held} == ALLOCATING
    assert [row[:3] for row in plain] == [row[:3] for row in held]
    assert {tuple(row[3:]) for row in plain} == {(str(SUCCESS), str(SUCCESS))}
    assert {tuple(row[3:]) for row in held} == {(str(OUT_OF_MEMORY), str(SUCCESS))}
