"""Physical memory counts until its last handle, mapping and place in an array is gone."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hook.lib.container import Container, Line, limits_of
from tests.hook.lib.program import MIB, SUCCESS, Node
from tests.hook.lib.script import Script
from tests.hook.lib.shared import Agree, assert_agree, sharing


@pytest.fixture(name="script")
def _script(node: Node, container: Container, tmp_path: Path) -> Iterator[Script]:
    with sharing(node, container, tmp_path) as script:
        script.use("arrays")
        yield script


def test_own_memory_behind_an_imported_mapping_is_given_back(
    script: Script, node: Node, container: Container, tmp_path: Path, lines: list[Line], agree: Agree
) -> None:
    """If a range begins with another process's memory, unmapping it at once frees the own memory in it."""
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
        assert container.used_bytes() == (64 + 96) * MIB
        script.do("unmap(at, 96 * MIB)")
        agree(64)
        assert_agree(other, node, neighbour, 64 + 32)


def test_memory_imported_where_it_was_made_counts_until_both_handles_are_gone(
    script: Script, agree: Agree
) -> None:
    """Memory that its maker exports, imports again and releases counts until the import is gone, mapped or not."""
    for keep, let_go in (
        ("pass", "release(again)"),
        ("at = map_in(again, 64 * MIB); release(again)", "unmap(at, 64 * MIB)"),
    ):
        script.do("handle = create(64 * MIB); again = brought(export(handle)); release(handle)")
        agree(64 + 64)
        script.do(keep)
        agree(64 + 64)
        script.do(let_go)
        agree(64)


def test_an_import_released_first_gives_nothing_back(script: Script, agree: Agree) -> None:
    """An import of own memory is not charged, so its release frees nothing; the charge stays with the made handle."""
    script.do("handle = create(64 * MIB); again = brought(export(handle)); release(again)")
    agree(64 + 64)
    script.do("release(handle)")
    agree(64)


def test_several_pieces_imported_where_they_were_made_never_count_too_little(
    script: Script, node: Node, container: Container, agree: Agree
) -> None:
    """For any order of releases the count is never below the driver's, and 0 when all handles are gone."""
    script.do(
        "made = [create(size * MIB) for size in (32, 64, 96)]; again = [brought(export(handle)) for handle in made]"
    )
    agree(64 + 192)
    for handle in ("made[1]", "again[2]", "made[0]", "made[2]", "again[0]", "again[1]"):
        script.do(f"release({handle})")
        assert container.used_bytes() >= node.held_bytes({script.pid})
    agree(64)


@pytest.mark.parametrize("function", ["cuMemMapArrayAsync", "cuMemMapArrayAsync_ptsz"])
@pytest.mark.parametrize(("flags", "usage"), [("SPARSE", 1), ("DEFERRED", 0)])
def test_an_array_mapped_later_costs_nothing_and_keeps_what_is_mapped_into_it(
    script: Script, function: str, flags: str, usage: int, agree: Agree
) -> None:
    """A sparse or deferred array is free.

    A released handle counts until it is unmapped or replaced, or until the array is gone.
    """
    script.do(f"where = array({flags})")
    fill = f"fill(where, {{}} * MIB, {usage}, {function!r})"
    agree(64)
    assert script.get(fill.format(64)) == SUCCESS
    agree(64 + 64)
    assert script.get(fill.format(32)) == SUCCESS
    agree(64 + 32)
    assert script.get(f"put(place(where, operation=UNMAP), function={function!r})") == SUCCESS
    agree(64)
    assert script.get(fill.format(64)) == SUCCESS
    script.do("must('cuArrayDestroy', where)")
    agree(64)


def test_what_arrays_keep_goes_with_their_context(script: Script, agree: Agree) -> None:
    """A destroyed context takes its arrays along, and these take the memory mapped into them."""
    script.do(
        "context_there = make('cuCtxCreate_v2', 0, 0); where = array(DEFERRED); handle = create(64 * MIB)"
    )
    assert script.get("put(place(where, handle.value))") == SUCCESS
    script.do("release(handle)")
    agree(128 + 64)
    script.do("must('cuCtxDestroy_v2', context_there)")
    agree(64)


def test_a_mapping_that_the_driver_refuses_keeps_nothing(script: Script, agree: Agree) -> None:
    """After a refused mapping into a range or an array, the handle's release frees its memory."""
    script.do("handle = create(32 * MIB); plain = array(0)")
    assert script.get("call('cuMemMap', U64(4096), SIZE(32 * MIB), SIZE(0), handle, U64(0))") != SUCCESS
    assert script.get("put(place(plain, handle.value))") != SUCCESS
    script.do("release(handle); must('cuArrayDestroy', plain)")
    agree(64)
