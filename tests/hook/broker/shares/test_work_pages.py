"""The broker reads the pages of a container's processes from a file that the tenant may write."""

import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hook.broker.core.codec import COUNTS_BYTES, WORD, owner_offset, owners, work_offset
from hook.broker.core.shares.events import Words
from hook.broker.shares.tenants import WorkPages, open_counts
from plimsoll.broker.pages import MAX_SLOTS, Work

GPUS = 2
SETTLED, LAUNCHED, STANDING = 0, 1, 8


class Tenant:
    """Writes a `counts` file."""

    def __init__(self, path: Path) -> None:
        path.write_bytes(bytes(COUNTS_BYTES))
        self._file = os.open(path, os.O_RDWR)

    def claim(self, slot: int, owner: int) -> None:
        """Claim a slot."""
        os.pwrite(self._file, WORD.pack(owner), owner_offset(slot))

    def greet(self, slot: int, owner: int) -> None:
        """Claim a slot and begin its page."""
        self.claim(slot, owner)
        os.pwrite(self._file, WORD.pack(owner), work_offset(slot))

    def write(self, slot: int, word: int, value: int, gpu: int = 0) -> None:
        """Set one word of a page."""
        offset = work_offset(slot) + 8 + gpu * 80 + 8 * word
        os.pwrite(self._file, WORD.pack(value), offset)

    def cut(self, size_bytes: int) -> None:
        """Truncate the file."""
        os.ftruncate(self._file, size_bytes)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


@pytest.fixture(name="tenant")
def _tenant(tmp_path: Path) -> Iterator[Tenant]:
    tenant = Tenant(tmp_path / "counts")
    yield tenant
    tenant.close()


@pytest.fixture(name="pages")
def _pages(tenant: Tenant, tmp_path: Path) -> Iterator[WorkPages]:  # noqa: ARG001 - its file must be there
    numbers = itertools.count(1)
    pages = WorkPages(GPUS, lambda: next(numbers))
    pages.take(open_counts(tmp_path / "counts"))
    yield pages
    pages.close()


def read(pages: WorkPages) -> dict[int, Words]:
    """Read the changes."""
    found = ((page.number, page.read()) for page in pages.all)
    return {number: words for number, words in found if words is not None}


def came(pages: WorkPages) -> list[tuple[int, int]]:
    """The slots and owners of the pages that this reading returns."""
    return [(page.slot, page.owner) for page in pages.rescan()[0]]


def test_words_are_as_in_the_layout() -> None:
    """A page has this many words per GPU, in this order."""
    names = [field[0] for field in Work._fields_]
    assert len(names) == 10
    assert (names[SETTLED], names[LAUNCHED], names[6], names[STANDING]) == (
        "settled",
        "launched_ns",
        "begun",
        "waiting",
    )


def test_processes_come_and_go_with_their_slots(pages: WorkPages, tenant: Tenant) -> None:
    """Each owner of a slot is a process; a new owner of the same slot is another process."""
    tenant.claim(0, 7)
    tenant.claim(MAX_SLOTS - 1, 8)
    assert came(pages) == [(0, 7), (MAX_SLOTS - 1, 8)]
    assert came(pages) == []
    tenant.claim(0, 9)
    new, gone = pages.rescan()
    assert [(page.slot, page.owner, page.number) for page in new] == [(0, 9, 3)]
    assert [page.number for page in gone] == [1]


def test_the_owner_of_one_slot_is_found_without_a_scan(pages: WorkPages, tenant: Tenant) -> None:
    """A look at a slot gives the page of an owner that is new, once; a dead owner gets no page again."""
    assert pages.look(3) is None
    tenant.claim(3, 7)
    page = pages.look(3)
    assert page is not None
    assert (page.slot, page.owner, page.number) == (3, 7, 1)
    assert pages.look(3) is None
    assert came(pages) == []
    pages.drop(7)
    assert pages.look(3) is None


def test_a_page_is_given_while_it_says_anything_new(pages: WorkPages, tenant: Tenant) -> None:
    """A page with work under way or threads at the gate is returned at every reading.

    Any other page is returned only when it changed.
    """
    tenant.greet(0, 7)
    pages.rescan()
    assert read(pages) == {1: (0,) * 20}
    assert read(pages) == {}
    tenant.write(0, LAUNCHED, 5, gpu=1)
    assert read(pages)[1][10 + LAUNCHED] == 5
    assert list(read(pages)) == [1]
    tenant.write(0, LAUNCHED, 0, gpu=1)
    assert list(read(pages)) == [1]
    assert read(pages) == {}
    tenant.write(0, STANDING, 1)
    assert list(read(pages)) == list(read(pages)) == [1]


def test_a_page_of_another_owner_is_nobodys(pages: WorkPages, tenant: Tenant) -> None:
    """A slot's page counts for no process until the slot's new owner has begun it.

    Its words are an earlier owner's.
    """
    tenant.greet(0, 7)
    tenant.write(0, LAUNCHED, 5)
    tenant.claim(0, 8)
    pages.rescan()
    assert read(pages) == {}
    tenant.greet(0, 8)
    assert list(read(pages)) == [1]


def test_a_torn_page_is_read_again(pages: WorkPages, tenant: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    """A torn page is read again a few times at once, as a write takes little time.

    A page that stays torn is left to the next tick.
    """
    tenant.greet(0, 7)
    pages.rescan()
    tenant.write(0, SETTLED, 1)
    readings = 0
    true_read = os.pread

    def counted(file: int, size: int, offset: int) -> bytes:
        nonlocal readings
        readings += 1
        if readings == 2:
            tenant.write(0, SETTLED, 0)
        return true_read(file, size, offset)

    monkeypatch.setattr(os, "pread", counted)
    assert read(pages)[1][SETTLED] == 0
    assert readings == 2
    tenant.write(0, SETTLED, 1)
    assert read(pages) == {}
    tenant.write(0, SETTLED, 0)
    tenant.write(0, LAUNCHED, 7)
    assert read(pages)[1][LAUNCHED] == 7


def test_a_dead_process_is_not_looked_at_again(pages: WorkPages, tenant: Tenant) -> None:
    """A dead process's page is not read again, though its slot is cleared later.

    The slot is then free for another.
    """
    tenant.greet(0, 7)
    tenant.write(0, LAUNCHED, 5)
    pages.rescan()
    assert [page.number for page in pages.drop(7)] == [1]
    assert came(pages) == []
    assert read(pages) == {}
    tenant.claim(0, 0)
    assert came(pages) == []
    tenant.claim(0, 8)
    assert came(pages) == [(0, 8)]


@pytest.mark.parametrize("size_bytes", [0, 5, work_offset(0) + 20, COUNTS_BYTES - 1])
def test_a_truncated_file_harms_nobody(pages: WorkPages, tenant: Tenant, size_bytes: int) -> None:
    """In a truncated file the missing words are empty, and the slots that are left are read."""
    tenant.greet(0, 7)
    pages.rescan()
    tenant.cut(size_bytes)
    read(pages)
    pages.rescan()
    read(pages)


def test_slots_are_read_at_once_up_to_the_last_in_use(tenant: Tenant, pages: WorkPages) -> None:
    """A single reading has the slots of all processes, and `changes` says that a process came or went."""
    assert pages.slots() == b""
    tenant.claim(0, 7)
    tenant.claim(2, 9)
    pages.rescan()
    assert owners(pages.slots()) == [7, 0, 9]
    before = pages.changes
    pages.rescan()
    assert pages.changes == before
    pages.drop(9)
    assert pages.changes > before
    assert owners(pages.slots()) == [7]


def _link(path: Path) -> None:
    path.symlink_to("/etc/passwd")


@pytest.mark.parametrize("put", [Path.mkdir, _link, os.mkfifo])
def test_what_is_no_file_is_not_opened(tmp_path: Path, put: Callable[[Path], None]) -> None:
    """A directory, link or pipe in the file's place is not opened."""
    put(tmp_path / "odd")
    assert open_counts(tmp_path / "odd") is None
    pages = WorkPages(1, lambda: 1)
    pages.take(None)
    assert pages.rescan() == ([], [])
    assert read(pages) == {}
