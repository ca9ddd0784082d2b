"""The ledger and the map of holdings alone, plainly and under sanitizers."""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.hook.lib.conftest import PROGRAMS, compile_c
from tests.hook.lib.program import ROOT

pytestmark = pytest.mark.timeout(600)
"""On its first use zig builds ThreadSanitizer's runtime, minutes of work for a core."""

PARTS: Final = ("memory/ledger", "memory/holdings")
SOURCES: Final = (
    PROGRAMS / "books.c",
    PROGRAMS / "books_map.c",
    *(ROOT / "hook/lib" / f"{name}.c" for name in PARTS),
)
POOL_PARTS: Final = (
    *("memory/pools/records", "memory/pools/handles", "memory/pools/reserved"),
    *("memory/holdings", "memory/ledger", "state"),
)
ZIG: Final = (sys.executable, "-m", "ziglang", "cc")
BUILDS: Final = {
    "plain": (),
    "undefined": ("-fsanitize=undefined", "-fno-sanitize-recover=all"),
    "races": ("-fsanitize=thread",),
    "memory": ("-fsanitize=address",),
}


def _compiler(build: str) -> tuple[str, ...]:
    if build != "memory":
        return ZIG
    compiler = shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("AddressSanitizer needs gcc or clang: zig brings every other sanitizer, but not this one")
    return (compiler,)


@pytest.fixture(name="books", scope="session", params=BUILDS)
def _books(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The driver of both, built plainly and with each sanitizer."""
    build = str(request.param)
    target = tmp_path_factory.mktemp("books") / build
    includes = [f"-I{ROOT / 'build/hook'}", f"-I{ROOT / 'hook/lib'}"]
    options = ["-std=c11", "-O1", "-g", "-D_GNU_SOURCE", *BUILDS[build], *includes, "-lpthread"]
    subprocess.run([*_compiler(build), *SOURCES, *options, "-o", target], check=True, timeout=590)
    return target


@pytest.fixture(name="records", scope="session")
def _records(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The driver of the pools' records."""
    target = tmp_path_factory.mktemp("books") / "records"
    sources = [PROGRAMS / "records.c", *(ROOT / "hook/lib" / f"{name}.c" for name in POOL_PARTS)]
    nvml = next(ROOT.glob(".venv/lib/python3.*/site-packages/nvidia/nvml_dev/include"))
    includes = [f"-I{ROOT / 'build/hook'}", f"-I{ROOT / 'hook/lib'}", f"-isystem{nvml}"]
    compile_c(sources, target, ["-D_GNU_SOURCE", *includes, "-lpthread"])
    return target


def _run(books: Path, *arguments: str) -> list[int]:
    done = subprocess.run([books, *arguments], capture_output=True, text=True, check=False, timeout=170)
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


def test_what_is_granted_never_passes_the_line(books: Path) -> None:
    """For any sizes that several processes take and free at once, the granted sum stays within the line."""
    (most,) = _run(books, "line", "5000")
    assert 0 < most <= 1000


def test_of_two_that_want_all_exactly_one_gets_it(books: Path) -> None:
    """Two reservations of which one fits, begun at the same instant, never both fail and never both stand."""
    assert _run(books, "both", "500") == [500]


def test_a_line_that_sinks_holds_from_the_moment_it_is_audited(books: Path) -> None:
    """After the line was lowered and the words were summed, no process comes to hold more than line or sum."""
    (above,) = _run(books, "sink", "300")
    assert above > 0  # the race was there to be lost


def test_a_dead_ones_word_is_left_out_and_its_successors_is_not(books: Path) -> None:
    """A dead process's word, attempts included, no longer counts. The next process in its slot counts in full."""
    _run(books, "dead")


def test_a_pools_record_is_dropped_once(records: Path) -> None:
    """A thread that comes late to a destroyed pool leaves alone the pool that has the record now."""
    _run(records)
