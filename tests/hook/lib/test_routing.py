"""If the driver's look-up returns private addresses, the library finds the wrapper by the requested name."""

import shutil
from pathlib import Path

import pytest

from hook.lib.variants import variants_in
from plimsoll.broker.pages import FLAG_WHOLE_GPUS, KIND_UNKNOWN
from tests.emulator.functions import functions_of
from tests.hook.lib.container import Container, Line, limits_of
from tests.hook.lib.launches import another_driver
from tests.hook.lib.lookups import HEADERS, answers
from tests.hook.lib.program import LIBRARY, NOT_READY, OUT_OF_MEMORY, SUCCESS, Node

NEWER = "newer_allocator"


@pytest.fixture(name="nameless")
def _nameless(tmp_path: Path) -> Node:
    """A node like the other, whose driver hands out addresses at which it exports nothing."""
    root = tmp_path / "nameless"
    root.mkdir()
    node = Node(root, gpu_count=2, memory_mib=2048, context_mib=64)
    node.file.write_text(f"private-addresses = yes\n{node.file.read_text()}")
    return node


def test_the_table_says_what_the_emulator_says() -> None:
    """Each variant of the emulator, whose type is checked there, stands behind the same name and version."""
    rows = functions_of("functions") + functions_of("unsupported")
    table = {
        (variant.name, variant.suffix, variant.version): variant.symbol for variant in variants_in(HEADERS)
    }
    assert len(rows) > 300
    for row in rows:
        assert table[row.name, row.suffix, row.version] == row.symbol


def test_versions_that_match_no_symbols_fail_the_build(tmp_path: Path) -> None:
    """A table that would name the wrong variant fails the build."""
    newer = tmp_path / "include"
    shutil.copytree(HEADERS[1], newer)
    types = newer / "cudaTypedefs.h"
    types.write_text(types.read_text("utf-8").replace("*PFN_cuMemAlloc_v2000)", "*cuOther)"), "utf-8")
    with pytest.raises(ValueError, match=r"cuMemAlloc: versions \[3020\] do not match"):
        variants_in([newer])


@pytest.mark.parametrize("symbol", ["cuGetProcAddress", "cuGetProcAddress_v2"])
def test_every_variant_is_found_by_name(
    node: Node, nameless: Node, container: Container, symbol: str
) -> None:
    """For each name, version and kind of stream the wrapper is the one that exports would give."""
    plain = answers(node.environment(container.environment), symbol)
    found = answers(nameless.environment(container.environment), symbol)
    wrapped = [answer for answer in plain if answer.file == LIBRARY.name]
    assert len(wrapped) > 1000
    assert [answer for answer in found if answer.file == LIBRARY.name] == wrapped


def test_a_driver_that_hands_out_an_unknown_allocator_gives_no_gpu(
    node: Node, container: Container, asker: Path, tmp_path: Path
) -> None:
    """The driver's cuInit fails with one sentence that names function and remedy, and the broker gets a message."""
    driver = another_driver(tmp_path, NEWER)
    with node.run(asker, container.environment, driver) as program:
        assert program.ask("load") == [0]
        assert program.words("proc cuMemAlloc 12080 0")[1] == "cuMemAlloc_v3"
        with container.ear() as ear:
            assert program.ask("init")[0] == NOT_READY
            assert KIND_UNKNOWN in {message.kind for message in (ear.next(), ear.next()) if message}
        (line,) = program.errors().splitlines()
        assert "cuMemAlloc" in line
        assert "update Plimsoll on this node" in line


def test_a_driver_in_two_files_is_held_to_the_line(
    node: Node, container: Container, asker: Path, tmp_path: Path
) -> None:
    """Both files' functions have their wrappers, by either look-up, and the loader itself gets the genuine ones."""
    driver, inner = another_driver(tmp_path, "loader"), "libcuda.so.7"
    loader, emulated = tmp_path / "libcuda.so.1", tmp_path / "libemul.so.1"
    for file in (loader, emulated):
        file.write_bytes(file.read_bytes().replace(b"libemul.so.1", inner.encode()))
    emulated.rename(tmp_path / inner)
    with node.run(asker, container.environment, driver) as program:
        assert program.ask("load") == [0]
        for name in ("cuInit", "cuMemAlloc", "cuGetProcAddress"):
            assert program.words(f"proc {name} 12080 0")[0] == LIBRARY.name
        program.start()
        assert program.alloc(1024)[0] == OUT_OF_MEMORY
        assert program.alloc(1)[0] == SUCCESS
        assert program.ask(f"load {inner}") == [0]
        assert program.words("where driver cuMemAlloc_v2") == [LIBRARY.name, "cuMemAlloc_v2"]
        assert program.errors() == ""


def test_a_driver_without_the_allocator_gives_no_gpu(
    node: Node, container: Container, asker: Path, tmp_path: Path
) -> None:
    """Without the allocator the library could hold no memory to the line, so the program gets no GPU."""
    driver = another_driver(tmp_path, NEWER)
    emulated = tmp_path / "libemul.so.1"
    emulated.write_bytes(emulated.read_bytes().replace(b"\0cuMemAlloc_v2\0", b"\0cuMemAlloc_v9\0"))
    with node.run(asker, container.environment, driver) as program:
        assert program.ask("load") == [0]
        assert program.ask("init")[0] == NOT_READY
        assert "the missing cuMemAlloc_v2" in program.errors()


def test_who_owns_the_gpus_is_given_them_all_the_same(
    node: Node, container: Container, lines: list[Line], asker: Path, tmp_path: Path
) -> None:
    """A container that owns its GPUs gets them all the same, as it has no limits."""
    container.write(limits_of(lines, flags=FLAG_WHOLE_GPUS))
    driver = another_driver(tmp_path, NEWER)
    with node.run(asker, container.environment, driver) as program:
        program.start()
