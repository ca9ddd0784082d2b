"""Shared memory is charged to its maker while the maker has it, and frees count only for charged processes."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.hook.lib.container import Container, Line, limits_of
from tests.hook.lib.program import MIB, SUCCESS, Node
from tests.hook.lib.script import Script
from tests.hook.lib.shared import sharing


@dataclass(frozen=True, slots=True)
class Way:
    """A way for memory to cross: pieces of program, where `{token}` and `{pid}` are the exporter's.

    Attributes:
        make: the exporter's; leaves what the importer must know in `answer`.
        steps: the importer's, from opening to use.
        wrong: the importer frees by an unsuitable function, with any result.
        close: the importer's.
        free: the exporter's.
    """

    make: str
    steps: tuple[str, ...]
    wrong: str
    close: tuple[str, ...]
    free: str


WAYS = {
    "ipc": Way(
        make="code, address = alloc(64 * MIB); answer = offered(address)",
        steps=("there = opened({token!r})", "again = opened({token!r})"),
        wrong="call('cuMemFreeAsync', there, None)",
        close=("must('cuIpcCloseMemHandle', again)", "must('cuIpcCloseMemHandle', there)"),
        free="must('cuMemFree_v2', U64(address))",
    ),
    "handle": Way(
        make="handle = create(64 * MIB); answer = export(handle)",
        steps=("there = brought(fetched({pid}, {token}))", "at = map_in(there, 64 * MIB)"),
        wrong="call('cuMemFree_v2', U64(at))",
        close=("release(there)", "unmap(at, 64 * MIB)"),
        free="release(handle)",
    ),
    "external": Way(
        make="handle = create(64 * MIB); answer = export(handle)",
        steps=("there = external(fetched({pid}, {token}), 64 * MIB)", "at = buffer_of(there, 64 * MIB)"),
        wrong="call('cuMemRelease', there)",
        close=("must('cuMemFree_v2', at)", "must('cuDestroyExternalMemory', there)"),
        free="release(handle)",
    ),
    "pool": Way(
        make="""
        pool, fd, data = make("cuMemPoolCreate", byref(PoolProps(1, 1, Location(1, 0)))), INT(), Opaque()
        must("cuMemPoolExportToShareableHandle", byref(fd), pool, 1, U64(0))
        code, address = take_from(pool, 64 * MIB)
        must("cuMemPoolExportPointer", byref(data), U64(address))
        answer = [fd.value, bytes(data.bytes).hex()]
        """,
        steps=(
            "there = make('cuMemPoolImportFromShareableHandle', PTR(fetched({pid}, {token}[0])), 1, U64(0))",
            "data = Opaque((ctypes.c_ubyte * 64)(*bytes.fromhex({token}[1])))",
            "at = make('cuMemPoolImportPointer', there, byref(data))",
        ),
        wrong="take_from(there, MIB)",
        close=("free(at.value); sync()", "must('cuMemPoolDestroy', there)"),
        free="free(address); must('cuMemPoolDestroy', pool); sync()",
    ),
}


@pytest.fixture(name="importing")
def _importing(tmp_path: Path, lines: list[Line]) -> Container:
    neighbour = Container(tmp_path / "neighbour")
    neighbour.write(limits_of(lines))
    return neighbour


@pytest.fixture(name="pair")
def _pair(
    node: Node, container: Container, importing: Container, tmp_path: Path
) -> Iterator[tuple[Script, Script]]:
    """An exporter in `container` and an importer in `importing`."""
    with ExitStack() as stack:
        yield (
            stack.enter_context(sharing(node, container, tmp_path)),
            stack.enter_context(sharing(node, importing, tmp_path)),
        )


def _words(*containers: Container) -> list[int]:
    return [container.used_bytes() // MIB for container in containers]


@pytest.mark.parametrize("name", WAYS)
def test_the_exporter_pays_and_the_importers_word_does_not_move(
    node: Node, pair: tuple[Script, Script], container: Container, importing: Container, name: str
) -> None:
    """From open to close neither the importer's word nor the exporter's changes."""
    (exporter, importer), way = pair, WAYS[name]
    token = exporter.do(way.make)
    assert _words(container, importing) == [128, 64]
    for step in (*way.steps, way.wrong, *way.close):
        importer.do(step.format(pid=exporter.pid, token=token))
        assert _words(container, importing) == [128, 64], step
    assert (node.held_bytes({exporter.pid}), node.held_bytes({importer.pid})) == (128 * MIB, 64 * MIB)
    exporter.do(way.free)
    assert _words(container, importing) == [64, 64]
    assert importer.get("alloc(256 * MIB)[0]") == SUCCESS


@pytest.mark.parametrize("name", WAYS)
def test_an_importer_that_outlives_the_exporters_memory_is_given_nothing_for_it(
    node: Node, pair: tuple[Script, Script], container: Container, importing: Container, name: str
) -> None:
    """The exporter's word falls at its free. The memory that the driver then holds for the importer is in no word."""
    (exporter, importer), way = pair, WAYS[name]
    token = exporter.do(way.make)
    for step in way.steps:
        importer.do(step.format(pid=exporter.pid, token=token))
    exporter.do(way.free)
    assert _words(container, importing) == [64, 64]
    assert (node.held_bytes({exporter.pid}), node.held_bytes({importer.pid})) == (64 * MIB, 128 * MIB)
    for step in way.close:
        importer.do(step)
    assert _words(container, importing) == [64, 64]
    assert node.held_bytes({importer.pid}) == 64 * MIB


@pytest.mark.parametrize("name", WAYS)
@pytest.mark.parametrize("killed", ["exporter", "importer"])
def test_a_kill_of_either_side_moves_nobodys_word(
    pair: tuple[Script, Script], container: Container, importing: Container, name: str, killed: str
) -> None:
    """After kill -9 of one side the other's word is unchanged, and falls later by its own charge only."""
    (exporter, importer), way = pair, WAYS[name]
    token = exporter.do(way.make)
    for step in way.steps:
        importer.do(step.format(pid=exporter.pid, token=token))
    (exporter if killed == "exporter" else importer).kill()
    assert _words(container, importing) == [128, 64]  # the dead one's until the broker clears its slot
    if killed == "importer":
        exporter.do(way.free)
        assert _words(container) == [64]
        return
    for step in way.close:
        importer.do(step)
    assert _words(importing) == [64]


@pytest.mark.parametrize("name", WAYS)
def test_two_processes_of_one_container_count_shared_memory_once(
    node: Node, container: Container, tmp_path: Path, name: str
) -> None:
    """Sharing within a container costs the line the memory that one process requested."""
    way = WAYS[name]
    with sharing(node, container, tmp_path) as exporter, sharing(node, container, tmp_path) as importer:
        token = exporter.do(way.make)
        for step in (*way.steps, *way.close):
            importer.do(step.format(pid=exporter.pid, token=token))
            assert _words(container) == [128 + 64], step
        exporter.do(way.free)
        assert _words(container) == [128]
