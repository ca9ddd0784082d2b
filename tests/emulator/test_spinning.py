"""Kernels that spin on the device until memory holds a value, like persistent kernels and collectives."""

import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.emulator.cuda_program import Node, wait_for

HOG = ("device_time.hog",)
"""A program with an hour of work."""


@contextmanager
def running(node: Node, *programs: tuple[str, *tuple[object, ...]]) -> Iterator[list[subprocess.Popen[str]]]:
    """Programs with their arguments in the background, killed in the end."""
    processes: list[subprocess.Popen[str]] = []
    try:
        processes.extend(node.background(*program) for program in programs)
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def answer(process: subprocess.Popen[str], text: str = "\n") -> Any:  # noqa: ANN401 - JSON of any shape
    """Sends a program on from its `input()`, and returns what it prints next."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(text)
    process.stdin.flush()
    return json.loads(process.stdout.readline())


def of_pid(node: Node, process: subprocess.Popen[str]) -> dict[str, Any]:
    """A process in the book."""
    found: dict[str, Any] = next(p for p in node.book()[0]["processes"] if p["pid"] == process.pid)
    return found


def grows(read: Callable[[], int], by: int) -> None:
    """Waits until a number has grown by this much."""
    start = read()
    wait_for(lambda: read() >= start + by)


def test_a_kernel_spins_until_the_host_says_so(node: Node) -> None:
    """A spinning kernel starts at once, does not count as work, and takes its length after the word has come."""
    seen = node.python("spinning.until_the_host")
    gpu = node.book()[0]
    assert seen[0] == "CUDA_ERROR_NOT_READY"
    assert seen[1] >= 0.05
    assert gpu["busy_ns"] == 50_000_000
    assert gpu["spun_ns"] >= 100_000_000


@pytest.mark.parametrize(("value", "word"), [(5, 4), (0, 2**32 - 1), (2**31, 2**31 - 1)])
def test_the_word_counts_as_a_signed_counter(node: Node, value: int, word: int) -> None:
    """A word one below the value keeps the kernel spinning, and one above it does not, also across the wrap."""
    seen = node.python("spinning.signed_counter", value, word)
    assert seen == "CUDA_ERROR_NOT_READY"


def test_other_streams_work_beside_a_kernel_that_spins(node: Node) -> None:
    """Plain kernels and a stream's write go on in another stream, while work behind the spinning kernel waits."""
    seen = node.python("spinning.beside_other_streams")
    early, until_spun, behind = seen
    assert early == "CUDA_ERROR_NOT_READY"
    assert until_spun >= 10
    assert behind >= 5
    assert node.book()[0]["busy_ns"] == 215_000_000


def test_a_kernel_that_has_spun_enough_goes_before_plain_ones(node: Node) -> None:
    """The rest of a kernel that has spun enough does not queue behind an hour of work in another stream."""
    with running(
        node,
        ("spinning.before_plain_ones",),
    ) as (process,):
        assert of_pid(node, process)["unfinished_ns"] > 0


def test_the_default_stream_spins_after_blocking_streams(node: Node) -> None:
    """A kernel in the legacy default stream starts only after the work of blocking streams."""
    seen = node.python("spinning.default_stream")
    assert seen >= 0.1
    assert node.book()[0]["busy_ns"] == 102_000_000


def test_a_kernel_that_spins_takes_turns(node: Node) -> None:
    """Beside a process that always works a spinning kernel occupies half of the GPU, and is always unfinished."""
    with running(node, HOG, ("spinning.until_told",)) as (hog, spinning):
        before, start = of_pid(node, hog), of_pid(node, spinning)
        grows(lambda: of_pid(node, spinning)["spun_ns"], 1_000_000_000)
        after, end = of_pid(node, hog), of_pid(node, spinning)
        worked, spun = after["busy_ns"] - before["busy_ns"], end["spun_ns"] - start["spun_ns"]
        assert 0.8 * worked < spun < 1.25 * worked
        assert end["unfinished_ns"] - start["unfinished_ns"] >= worked
        assert end["busy_ns"] == 0
        assert answer(spinning) == 2
        assert of_pid(node, spinning)["busy_ns"] == 1_000_000


def test_the_death_of_a_kernel_that_spins_passes_its_turn(node: Node) -> None:
    """After a kill of a spinning process its neighbour gets the GPU without sweeping the book."""
    with running(node, ("spinning.until_told",), ("device_time.two_seconds_when_told",)) as (
        spinning,
        working,
    ):
        assert len(node.book()[0]["processes"]) == 2
        spinning.kill()
        spinning.communicate()
        assert 2000 <= answer(working) < 3000  # shared with the dead, it would be 4000


def test_ranks_of_a_collective_wait_for_each_other(node: Node, tmp_path: Path) -> None:
    """Two processes on one GPU, each of which spins until the other has started, both finish every step."""
    page = tmp_path / "page"
    page.write_bytes(bytes(4096))
    with running(node, ("spinning.rank", str(page)), ("spinning.rank", str(page))) as ranks:
        assert all(process.stdin for process in ranks)
        for me, process in enumerate(ranks):
            assert process.stdin is not None
            process.stdin.write(f"{me}\n")
            process.stdin.flush()
        assert [json.loads(process.stdout.readline()) for process in ranks if process.stdout] == [50, 50]
        assert [of_pid(node, process)["busy_ns"] for process in ranks] == [100_000_000, 100_000_000]


def test_kernels_spin_in_graphs_and_from_packed_parameters(node: Node) -> None:
    """A captured kernel keeps its parameters, parameters in a buffer are found, and bad addresses are refused."""
    seen = node.python("spinning.graphs_and_packed")
    assert seen == [6, "CUDA_ERROR_ILLEGAL_ADDRESS", [[0, 8], [8, 8], [16, 4], [24, 8], [32, 4]]]
    assert node.book()[0]["busy_ns"] == 10_000_000


def test_launches_behind_a_kernel_that_spins_are_bounded(node: Node) -> None:
    """Launches beyond the queue's depth wait, and go on once the oldest kernel has ended."""
    launched = node.python("spinning.full_queue")
    assert launched == [1024, 1200]
    assert node.book()[0]["busy_ns"] == 12_000_000
