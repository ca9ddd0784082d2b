"""The words that a simulated process writes, as a broker reads them."""

from ctypes import sizeof
from pathlib import Path

from bench.hook.share.pages import MS, Page, opened
from plimsoll.broker.pages import COUNTS_NAME, Counts, Work


def _opened(folder: Path) -> Page:
    (folder / COUNTS_NAME).write_bytes(bytes(sizeof(Counts)))
    return opened(folder)


def _work(page: Page) -> Work:
    work: Work = Counts.from_buffer_copy(page.mapped).works[0].gpus[0]
    return work


def test_a_burst_under_way_is_told_with_its_times(tmp_path: Path) -> None:
    """A burst under way is in the words with its launch time and with the time at which the GPU began it."""
    page = _opened(tmp_path)
    page.begin(10 * MS)
    assert (_work(page).launched_ns, _work(page).executed_ns) == (10 * MS, 0)
    page.execute(12 * MS)
    assert (_work(page).launched_ns, _work(page).executed_ns) == (10 * MS, 12 * MS)


def test_a_burst_that_ended_adds_to_the_sums(tmp_path: Path) -> None:
    """A burst unfinished for 5 ms adds 2 ms for its first slice, which is its own, and 1 ms of sliced time."""
    page = _opened(tmp_path)
    for _ in range(2):
        page.begin(10 * MS)
        page.execute(12 * MS)
        page.end(15 * MS)
    work = _work(page)
    assert (work.unfinished_ns, work.sure_ns, work.sliced_ns) == (10 * MS, 4 * MS, 2 * MS)
    assert (work.launched_ns, work.executed_ns) == (0, 0)


def test_words_that_are_not_being_changed_are_settled(tmp_path: Path) -> None:
    """Words that do not change read as consistent."""
    page = _opened(tmp_path)
    page.begin(10 * MS)
    assert _work(page).settled == _work(page).begun == 1
