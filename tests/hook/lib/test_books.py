"""The ledger and the map of holdings alone, plainly and under sanitizers."""

import subprocess
from pathlib import Path
from typing import Final

import pytest

from tests.hook.lib import sanitized
from tests.hook.lib.program import compiled
from tests.servers.waiting import PATIENCE_S

WITH_SANITIZERS: Final = (
    pytest.param(name, marks=pytest.mark.slow) for name in (*sanitized.BY_ZIG, "address")
)


@pytest.fixture(name="books", scope="session", params=["plain", *WITH_SANITIZERS])
def _books(request: pytest.FixtureRequest) -> Path:
    """The driver of both, built plainly and with each sanitizer."""
    build = str(request.param)
    return compiled("books") if build == "plain" else sanitized.built_books(build)


def _run(books: Path, *arguments: str) -> list[int]:
    done = subprocess.run(
        [books, *arguments], capture_output=True, text=True, check=False, timeout=PATIENCE_S
    )
    assert done.returncode == 0, done.stderr
    return [int(word) for word in done.stdout.split()]


def test_the_map_agrees_with_an_array(books: Path) -> None:
    """After any sequence of puts, takes and sweeps the map equals an array."""
    _run(books, "map")


def test_threads_leave_the_books_clean(books: Path) -> None:
    """Threads on one map and one slot meet no race and leave nothing behind."""
    _run(books, "threads")


def test_waiting_for_a_collision_leaves_errno(books: Path) -> None:
    """A signal that arrives during a reservation's wait does not change the program's errno."""
    _run(books, "errno")


def test_a_collision_is_no_refusal(books: Path) -> None:
    """A reservation that fits is granted although another's, withdrawn at once, stands a third of the time."""
    (refused,) = _run(books, "collide", "1000")
    assert refused <= 100  # on a busy machine the opponent may lose the processor; without retries it is 300


def test_a_request_that_cannot_fit_refuses_no_other(books: Path) -> None:
    """A reservation that fits is granted at once, although another process asks in a loop for more than is left."""
    assert _run(books, "hopeless", "1000") == [0]


def test_a_dead_ones_word_is_left_out_and_its_successors_is_not(books: Path) -> None:
    """A dead process's word, attempts included, no longer counts. The next process in its slot counts in full."""
    _run(books, "dead")


def test_a_pools_record_is_dropped_once() -> None:
    """A thread that comes late to a destroyed pool leaves alone the pool that has the record now."""
    _run(compiled("records"))


def test_two_processes_know_a_devices_file_as_the_same_memory() -> None:
    """Files of one device, which have one inode, are told apart by their marks; the 65th has none."""
    _run(compiled("crossing"))
