"""Memory that crosses between processes counts once within a container, and always while the container holds it."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.hook.lib.container import Container, Line, limits_of
from tests.hook.lib.program import MIB, OUT_OF_MEMORY, SUCCESS, Node
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


def _free_mib(script: Script) -> int:
    return int(script.get("cuda.info()[0] // MIB"))


def _imports(importer: Script, name: str, pid: int, token: object) -> bool:
    """Import; returns False where the line refuses it."""
    for step in WAYS[name].steps:
        source = f"""
        try:
            {step.format(pid=pid, token=token)}
            answer = ""
        except Exception as error:
            answer = str(error)
        """
        refusal = importer.do(source)
        if refusal:
            assert "OUT_OF_MEMORY" in refusal
            return False
    return True


@pytest.mark.parametrize("name", WAYS)
def test_memory_from_outside_counts_from_the_import_to_its_end(
    node: Node, pair: tuple[Script, Script], container: Container, importing: Container, name: str
) -> None:
    """An import from another container is in the importer's word while it lasts, whatever becomes of the exporter."""
    (exporter, importer), way = pair, WAYS[name]
    token = exporter.do(way.make)
    assert _words(container, importing) == [128, 64]
    for step in (*way.steps, way.wrong):
        importer.do(step.format(pid=exporter.pid, token=token))
    assert _words(container, importing) == [128, 128]
    assert _free_mib(importer) == 320 - 128
    exporter.do(way.free)
    assert _words(container, importing) == [64, 128]
    assert (node.held_bytes({exporter.pid}), node.held_bytes({importer.pid})) == (64 * MIB, 128 * MIB)
    for step in way.close:
        importer.do(step)
    assert _words(container, importing) == [64, 64]
    assert node.held_bytes({importer.pid}) == 64 * MIB


@pytest.mark.parametrize("name", WAYS)
def test_memory_from_outside_counts_once_for_all_its_importers(
    node: Node, container: Container, importing: Container, tmp_path: Path, name: str
) -> None:
    """Two processes of a container that import the same memory count it once, also when the first has ended."""
    way = WAYS[name]
    with ExitStack() as stack:
        exporter = stack.enter_context(sharing(node, container, tmp_path))
        first, second = (stack.enter_context(sharing(node, importing, tmp_path)) for _ in range(2))
        token = exporter.do(way.make)
        for importer in (first, second, first):
            assert _imports(importer, name, exporter.pid, token)
            assert _free_mib(importer) == 320 - 3 * 64
        first.kill()
        assert _free_mib(second) == 320 - 2 * 64
        for step in way.close:
            second.do(step)
        assert _free_mib(second) == 320 - 64


@pytest.mark.parametrize("name", WAYS)
def test_an_import_from_outside_past_the_line_is_refused_and_undone(
    node: Node, pair: tuple[Script, Script], importing: Container, lines: list[Line], name: str
) -> None:
    """Where the line has no room for it, an import fails as an allocation does, and nothing is held."""
    exporter, importer = pair
    importing.rewrite([Line(line.uuid, 100 * MIB, 64 * MIB) for line in lines])
    assert not _imports(importer, name, exporter.pid, exporter.do(WAYS[name].make))
    assert _words(importing) == [64]
    exporter.kill()
    assert node.held_bytes({importer.pid}) == 64 * MIB


@pytest.mark.parametrize(
    "bring",
    [
        "imported.append(brought(fetched({pid}, {fd})))",
        "imported.append(brought(fetched({pid}, {fd}))); map_in(imported[-1], 2 * MIB)",
        "imported.append(external(fetched({pid}, {fd}), 2 * MIB))",
    ],
    ids=["never-mapped", "mapped-in-part", "named-smaller"],
)
def test_memory_from_outside_counts_whole_however_little_of_it_is_used(
    node: Node, pair: tuple[Script, Script], importing: Container, lines: list[Line], bring: str
) -> None:
    """A handle counts from its import with its true size, so no burst of imports passes the line."""
    exporter, importer = pair
    importing.rewrite([Line(line.uuid, 200 * MIB, 64 * MIB) for line in lines])
    fds = exporter.do(
        "made = [create(size * MIB) for size in (2, 62, 66, 64)]; answer = list(map(export, made))"
    )
    importer.do("imported = []")
    for fd, words in zip(fds, (66, 128, 194, None), strict=True):
        step = bring.format(pid=exporter.pid, fd=fd)
        if words is None:
            assert "OUT_OF_MEMORY" in importer.do(
                f"try:\n    {step}\nexcept Exception as error:\n    answer = str(error)"
            )
        else:
            importer.do(step)
            assert (_words(importing), _free_mib(importer)) == ([words], 200 - words)
    exporter.kill()
    assert node.held_bytes({importer.pid}) == 194 * MIB


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
    assert _words(container, importing) == [128, 128]  # the dead one's until the broker clears its slot
    if killed == "importer":
        exporter.do(way.free)
        assert _words(container) == [64]
        return
    for step in way.close:
        importer.do(step)
    assert _words(importing) == [64]


@pytest.mark.parametrize("name", WAYS)
@pytest.mark.parametrize("end", ["free", "kill"])
def test_what_an_exporter_leaves_to_its_own_container_still_counts(
    node: Node, container: Container, tmp_path: Path, name: str, end: str
) -> None:
    """Memory of an exporter that let go of it, or died, counts once until its last importer of the container ends.

    No broker runs here, so no measurement shows it.
    """
    way = WAYS[name]
    with ExitStack() as stack:
        exporter, importer, other = (
            stack.enter_context(sharing(node, container, tmp_path)) for _ in range(3)
        )
        token = exporter.do(way.make)
        for script in (importer, other):
            for step in way.steps:
                script.do(step.format(pid=exporter.pid, token=token))
        assert _free_mib(importer) == 320 - 3 * 64 - 64
        if end == "free":
            exporter.do(way.free)
        exporter.kill()
        held = sum(node.held_bytes({script.pid}) for script in (importer, other))
        assert held == 3 * 64 * MIB
        for script in (importer, other):
            assert _free_mib(script) == 320 - 2 * 64 - 64
            assert script.get("alloc(160 * MIB)[0]") == OUT_OF_MEMORY
        for step in way.close:
            importer.do(step)
        assert _free_mib(other) == 320 - 2 * 64 - 64
        for step in way.close:
            other.do(step)
        assert _free_mib(importer) == 320 - 2 * 64
        assert importer.get("alloc(160 * MIB)[0]") == SUCCESS


@pytest.mark.parametrize("name", WAYS)
@pytest.mark.parametrize("place", ["inside", "outside"])
def test_memory_handed_on_by_processes_that_end_stays_within_the_line(
    node: Node, container: Container, importing: Container, tmp_path: Path, name: str, place: str
) -> None:
    """A process that collects what others export before they end gets no more than its container's line."""
    whose = container if place == "inside" else importing
    with sharing(node, container, tmp_path) as importer:
        for _ in range(5):
            with sharing(node, whose, tmp_path) as exporter:
                if _free_mib(exporter) >= 96:  # a pool grows by more than what is taken from it
                    _imports(importer, name, exporter.pid, exporter.do(WAYS[name].make))
                exporter.kill()
            held_mib = node.held_bytes({importer.pid}) // MIB
            assert held_mib + _free_mib(importer) <= 320
            assert held_mib > 64


def test_memory_that_is_imported_after_its_exporter_let_go_counts(
    node: Node, container: Container, tmp_path: Path
) -> None:
    """A descriptor under way when its exporter lets go brings memory that counts at its import."""
    with sharing(node, container, tmp_path) as exporter, sharing(node, container, tmp_path) as importer:
        fd = exporter.do("handle = create(64 * MIB); answer = export(handle)")
        exporter.do("release(handle)")
        importer.do(f"there = brought(fetched({exporter.pid}, {fd}))")
        assert _words(container) == [128 + 64]
        assert _free_mib(importer) == 320 - 128 - 64


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
