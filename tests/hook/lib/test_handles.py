"""Physical memory counts until the last handle, mapping and place in an array that refers to it is gone."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hook.lib.container import Container, Line, limits_of
from tests.hook.lib.program import SUCCESS, Node
from tests.hook.lib.script import Script
from tests.hook.lib.shared import agree, sharing


@pytest.fixture(name="script")
def _script(node: Node, container: Container, tmp_path: Path) -> Iterator[Script]:
    with sharing(node, container, tmp_path) as script:
        script.use("arrays")
        yield script


def test_own_memory_behind_an_imported_mapping_is_given_back(
    script: Script, node: Node, container: Container, tmp_path: Path, lines: list[Line]
) -> None:
    """A range that begins with another process's memory, unmapped at once, gives back the own memory in it."""
    neighbour = Container(tmp_path / "neighbour")
    neighbour.write(limits_of(lines))
    with sharing(node, neighbour, tmp_path) as other:
        fd = other.do("theirs = create(32 * MIB); answer = export(theirs)")
        script.do(
            f"""
            imported, mine = brought(fetched({other.pid}, {fd})), [create(32 * MIB) for _ in range(2)]
            at = reserve(96 * MIB)
            for index, handle in enumerate([imported, *mine]):
                map_at(at + index * 32 * MIB, handle, 32 * MIB)
                release(handle)
            """
        )
        agree(script, node, container, 64 + 64)
        script.do("unmap(at, 96 * MIB)")
        agree(script, node, container, 64)
        agree(other, node, neighbour, 64 + 32)


def test_memory_imported_where_it_was_made_counts_until_both_handles_are_gone(
    script: Script, node: Node, container: Container
) -> None:
    """Exported, imported again and released: the import keeps the memory, and so the count, mapped or not."""
    for keep, let_go in (
        ("pass", "release(again)"),
        ("at = map_in(again, 64 * MIB); release(again)", "unmap(at, 64 * MIB)"),
    ):
        script.do("handle = create(64 * MIB); again = brought(export(handle)); release(handle)")
        agree(script, node, container, 64 + 64)
        script.do(keep)
        agree(script, node, container, 64 + 64)
        script.do(let_go)
        agree(script, node, container, 64)


def test_an_import_released_first_gives_nothing_back(
    script: Script, node: Node, container: Container
) -> None:
    """An imported handle was charged nothing: the count stays with the one that was made."""
    script.do("handle = create(64 * MIB); again = brought(export(handle)); release(again)")
    agree(script, node, container, 64 + 64)
    script.do("release(handle)")
    agree(script, node, container, 64)


def test_several_pieces_imported_where_they_were_made_never_count_too_little(
    script: Script, node: Node, container: Container
) -> None:
    """Whatever order handles go in, the count is never below what the driver holds, and 0 when all are gone."""
    script.do(
        "made = [create(size * MIB) for size in (32, 64, 96)]; again = [brought(export(handle)) for handle in made]"
    )
    agree(script, node, container, 64 + 192)
    for handle in ("made[1]", "again[2]", "made[0]", "made[2]", "again[0]", "again[1]"):
        script.do(f"release({handle})")
        assert container.used_bytes() >= node.held_bytes({script.pid})
    agree(script, node, container, 64)


@pytest.mark.parametrize("function", ["cuMemMapArrayAsync", "cuMemMapArrayAsync_ptsz"])
@pytest.mark.parametrize(("flags", "usage"), [("SPARSE", 1), ("DEFERRED", 0)])
def test_an_array_mapped_later_costs_nothing_and_keeps_what_is_mapped_into_it(
    script: Script, node: Node, container: Container, function: str, flags: str, usage: int
) -> None:
    """Made without memory it is free; a released handle counts until it is unmapped, replaced, or the array gone."""
    script.do(f"where = array({flags})")
    fill = f"fill(where, {{}} * MIB, {usage}, {function!r})"
    agree(script, node, container, 64)
    assert script.get(fill.format(64)) == SUCCESS
    agree(script, node, container, 64 + 64)
    assert script.get(fill.format(32)) == SUCCESS
    agree(script, node, container, 64 + 32)
    assert script.get(f"put(place(where, operation=UNMAP), function={function!r})") == SUCCESS
    agree(script, node, container, 64)
    assert script.get(fill.format(64)) == SUCCESS
    script.do("must('cuArrayDestroy', where)")
    agree(script, node, container, 64)


def test_what_arrays_keep_goes_with_their_context(script: Script, node: Node, container: Container) -> None:
    """A context that is destroyed takes its arrays along, and they what was mapped into them."""
    script.do(
        "context_there = make('cuCtxCreate_v2', 0, 0); where = array(DEFERRED); handle = create(64 * MIB)"
    )
    assert script.get("put(place(where, handle.value))") == SUCCESS
    script.do("release(handle)")
    agree(script, node, container, 128 + 64)
    script.do("must('cuCtxDestroy_v2', context_there)")
    agree(script, node, container, 64)


def test_a_mapping_that_the_driver_refuses_keeps_nothing(
    script: Script, node: Node, container: Container
) -> None:
    """After a refused mapping, into a range or an array, the handle's release gives its memory back."""
    script.do("handle = create(32 * MIB); plain = array(0)")
    assert script.get("call('cuMemMap', U64(4096), SIZE(32 * MIB), SIZE(0), handle, U64(0))") != SUCCESS
    assert script.get("put(place(plain, handle.value))") != SUCCESS
    script.do("release(handle); must('cuArrayDestroy', plain)")
    agree(script, node, container, 64)
