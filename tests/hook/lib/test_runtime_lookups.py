"""The look-ups of NVIDIA's runtime, which itself runs on NVIDIA's driver alone: the same questions by a program.

The runtime, static or shared, opens `libcuda.so.1`, asks `dlsym` for `cuGetProcAddress` (11.3 to 11.8) or
`cuGetProcAddress_v2` (from 12.0), and that for each of its functions by name, version and kind of default stream.
Names and versions come from the pinned headers, `PFN_<name>_v<version>` in cudaTypedefs.h.
"""

import pytest

from tests.emulator.functions import functions_of
from tests.hook.lib.container import Container
from tests.hook.lib.lookups import (
    ALLOCATING,
    HEADERS,
    answers,
    hooked_symbols,
    names_in,
    run,
)
from tests.hook.lib.program import LIBRARY, OUT_OF_MEMORY, SUCCESS, Node

DRIVER = "libcuda.so.1"
LOOKUPS = ["cuGetProcAddress", "cuGetProcAddress_v2"]
INVALID_VALUE, NOT_FOUND, FOUND, NO_SUCH_SYMBOL, TOO_OLD = 1, 500, "0", "1", "2"


def test_the_headers_give_the_runtimes_names() -> None:
    """The headers have about 440 names with all their variants, as many as the runtime looks up."""
    names = names_in(HEADERS)
    assert len({name for name, _ in names}) > 430
    assert {("cuMemAlloc", 2000), ("cuMemAlloc", 3020), ("cuGetProcAddress", 11030)} <= names


@pytest.mark.parametrize("symbol", LOOKUPS)
def test_every_variant_is_its_own_wrapper_or_the_drivers_own(
    node: Node, container: Container, symbol: str
) -> None:
    """Results, statuses and variants equal those without the library; wrappers come exactly where hooks are."""
    plain = answers(node.environment(preload=None), symbol)
    hooked = answers(node.environment(container.environment), symbol)
    hooks = hooked_symbols()
    assert len(plain) == len(hooked)
    assert {answer.file for answer in plain} == {DRIVER, "none"}
    expected = [answer._replace(file=LIBRARY.name) if answer.symbol in hooks else answer for answer in plain]
    assert hooked == expected
    reached = {answer.symbol for answer in hooked if answer.file == LIBRARY.name}
    assert reached == {hook for hook in hooks if hook.startswith("cu")} - unreachable(), (
        "each hook has its question"
    )


def unreachable() -> set[str]:
    """Hooks whose function the emulated driver (CUDA 12.8) does not have, or hands out under no name."""
    return hooked_symbols() - {
        row.symbol for table in ("functions", "unsupported") for row in functions_of(table)
    }


def test_every_pointer_that_allocates_is_held_to_the_line(node: Node, container: Container) -> None:
    """512 MiB fit the card and not the line, and 1 MiB fits both, for pointers of every version and stream."""
    plain = [line.split() for line in run(node.environment(preload=None), "allocate", "512")]
    hooked = [line.split() for line in run(node.environment(container.environment), "allocate", "512")]
    assert {row[0] for row in hooked} == ALLOCATING
    assert {tuple(row[:3]) for row in plain} == {tuple(row[:3]) for row in hooked}
    assert {tuple(row[3:]) for row in plain} == {(str(SUCCESS), str(SUCCESS))}
    assert {tuple(row[3:]) for row in hooked} == {(str(OUT_OF_MEMORY), str(SUCCESS))}


def test_senseless_questions_get_the_drivers_answers(node: Node, container: Container) -> None:
    """Unknown names, versions before the first, contradictory flags and empty requests get the driver's answers."""
    plain = run(node.environment(preload=None), "odd")
    hooked = run(node.environment(container.environment), "odd")
    assert [line.replace(LIBRARY.name, DRIVER) for line in hooked] == plain
    said = {tuple(line.split()[:3]): line.split()[3:] for line in plain if len(line.split()) > 3}
    assert said["cuNoSuch", "12080", "0"] == ["0", NO_SUCH_SYMBOL, "none", "none"]
    assert said["cuMemAlloc", "0", "0"] == ["0", TOO_OLD, "none", "none"]
    assert said["cuMemAlloc", "1999", "2"] == ["0", TOO_OLD, "none", "none"]
    assert said["cuMemAllocAsync", "11010", "1"] == ["0", TOO_OLD, "none", "none"]
    assert said["cuMemAlloc_v2", "12080", "0"][1] == NO_SUCH_SYMBOL, "names come without their suffix"
    assert said["cuInit", "99999999", "0"] == ["0", FOUND, DRIVER, "cuInit"]
    assert [said["cuInit", "99999999", flags][0] for flags in "0123"] == ["0", "0", "0", str(INVALID_VALUE)]
    assert plain[-6:] == [
        f"nothing {INVALID_VALUE}",
        f"nowhere {INVALID_VALUE}",
        "unasked 0",
        f"unfound {NOT_FOUND}",
        f"old {INVALID_VALUE} {NOT_FOUND}",
        f"table {NOT_FOUND} 0",
    ]
