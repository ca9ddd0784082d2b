"""Kernels that spin on the device until memory holds a value, like persistent kernels and collectives."""

import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.emulator.cuda_program import Node, wait_for

HOG = "cuda.context(); cuda.busy(cuda.kernel(), 3600e3); show(1); time.sleep(600)"
"""A program with an hour of work."""


@contextmanager
def running(node: Node, *programs: str) -> Iterator[list[subprocess.Popen[str]]]:
    """Programs in the background, killed in the end."""
    processes: list[subprocess.Popen[str]] = []
    try:
        processes.extend(node.background(program) for program in programs)
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
    """Waits until a number has grown by so much."""
    start = read()
    wait_for(lambda: read() >= start + by)


def test_a_kernel_spins_until_the_host_says_so(node: Node) -> None:
    """A spinning kernel starts at once, does not count as work, and takes its length after the word has come."""
    seen = node.python("""
        cuda.context(); kernel = cuda.kernel(b"spin"); words, address = cuda.words()
        stream = cuda.make("cuStreamCreate", 1)
        cuda.spin(kernel, 50, address, 1, stream, address + 4, 7)
        cuda.wait(lambda: words[1] == 7)
        early = cuda.result("cuStreamQuery", stream)
        time.sleep(0.1)
        begun = time.monotonic(); words[0] = 1
        cuda.cuStreamSynchronize(stream)
        show([early, time.monotonic() - begun])
    """)
    gpu = node.book()[0]
    assert seen[0] == "CUDA_ERROR_NOT_READY"
    assert seen[1] >= 0.05
    assert gpu["busy_ns"] == 50_000_000
    assert gpu["spun_ns"] >= 100_000_000


@pytest.mark.parametrize(("value", "word"), [(5, 4), (0, 2**32 - 1), (2**31, 2**31 - 1)])
def test_the_word_counts_as_a_signed_counter(node: Node, value: int, word: int) -> None:
    """A word one below the value keeps the kernel spinning, and one above it does not, also across the wrap."""
    seen = node.python(f"""
        cuda.context(); kernel = cuda.kernel(b"spin"); words, address = cuda.words()
        words[0] = {word}
        cuda.spin(kernel, 1, address, {value}, None, address + 4, 1)
        cuda.wait(lambda: words[1])
        time.sleep(0.02); early = cuda.result("cuStreamQuery", None)
        words[0] = ({value} + 1) % 2**32
        cuda.cuCtxSynchronize(); show(early)
    """)
    assert seen == "CUDA_ERROR_NOT_READY"


def test_other_streams_work_beside_a_kernel_that_spins(node: Node) -> None:
    """Plain kernels and a stream's write go on in another stream, while work behind the spinning kernel waits."""
    seen = node.python("""
        cuda.context(); module = cuda.make("cuModuleLoadData", c_char_p(b"any image"))
        spin, busy = (cuda.make("cuModuleGetFunction", module, name) for name in (b"spin", b"busy"))
        words, address = cuda.words()
        one, other = cuda.make("cuStreamCreate", 1), cuda.make("cuStreamCreate", 1)
        events = [cuda.make("cuEventCreate", 0) for _ in range(3)]
        cuda.spin(spin, 10, address, 3, one)
        cuda.cuEventRecord(events[0], one)
        cuda.busy(busy, 5, one)
        cuda.cuEventRecord(events[1], one)
        cuda.busy(busy, 200, other)
        cuda.cuEventRecord(events[2], other)
        cuda.cuEventSynchronize(events[2])
        early = cuda.result("cuEventQuery", events[0])
        cuda.cuStreamWriteValue32_v2(other, U64(address), 3, 0)
        cuda.cuCtxSynchronize()
        show([early, cuda.elapsed(events[2], events[0]), cuda.elapsed(events[0], events[1])])
    """)
    early, until_spun, behind = seen
    assert early == "CUDA_ERROR_NOT_READY"
    assert until_spun >= 10
    assert behind >= 5
    assert node.book()[0]["busy_ns"] == 215_000_000


def test_a_kernel_that_has_spun_enough_goes_before_plain_ones(node: Node) -> None:
    """The rest of a kernel that has spun enough does not queue behind an hour of work in another stream."""
    with running(
        node,
        """
        cuda.context(); module = cuda.make("cuModuleLoadData", c_char_p(b"any image"))
        spin, busy = (cuda.make("cuModuleGetFunction", module, name) for name in (b"spin", b"busy"))
        words, address = cuda.words()
        one, other = cuda.make("cuStreamCreate", 1), cuda.make("cuStreamCreate", 1)
        cuda.busy(busy, 3600e3, other)
        cuda.spin(spin, 20, address, 1, one)
        words[0] = 1; cuda.cuStreamSynchronize(one)
        show(cuda.result("cuStreamQuery", other)); input()
        """,
    ) as (process,):
        assert of_pid(node, process)["unfinished_ns"] > 0


def test_the_default_stream_spins_after_blocking_streams(node: Node) -> None:
    """A kernel in the legacy default stream starts only after the work of blocking streams."""
    seen = node.python("""
        cuda.context(); module = cuda.make("cuModuleLoadData", c_char_p(b"any image"))
        spin, busy = (cuda.make("cuModuleGetFunction", module, name) for name in (b"spin", b"busy"))
        words, address = cuda.words()
        stream = cuda.make("cuStreamCreate", 0)
        begun = time.monotonic(); cuda.busy(busy, 100, stream)
        cuda.spin(spin, 1, address, 1, None, address + 4, 1)
        cuda.wait(lambda: words[1]); started = time.monotonic() - begun
        words[0] = 1; cuda.busy(busy, 1, stream); cuda.cuCtxSynchronize(); show(started)
    """)
    assert seen >= 0.1
    assert node.book()[0]["busy_ns"] == 102_000_000


def test_a_kernel_that_spins_takes_turns(node: Node) -> None:
    """Beside a process that always works a spinning kernel occupies half of the GPU, and is always unfinished."""
    spinner = """
        cuda.context(); kernel = cuda.kernel(b"spin"); words, address = cuda.words()
        cuda.spin(kernel, 1, address, 1); show(1); input(); words[0] = 1; cuda.cuCtxSynchronize(); show(2); input()
    """
    with running(node, HOG, spinner) as (hog, spinning):
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
    spinner = """
        cuda.context(); kernel = cuda.kernel(b"spin"); words, address = cuda.words()
        cuda.spin(kernel, 1, address, 1); show(1); input()
    """
    worker = """
        cuda.context(); kernel = cuda.kernel(); show(1); input()
        start, end = cuda.make("cuEventCreate", 0), cuda.make("cuEventCreate", 0)
        cuda.cuEventRecord(start, None); cuda.busy(kernel, 2000); cuda.cuEventRecord(end, None)
        cuda.cuEventSynchronize(end); show(cuda.elapsed(start, end))
    """
    with running(node, spinner, worker) as (spinning, working):
        assert len(node.book()[0]["processes"]) == 2
        spinning.kill()
        spinning.communicate()
        assert 2000 <= answer(working) < 3000  # shared with the dead, it would be 4000


def test_ranks_of_a_collective_wait_for_each_other(node: Node, tmp_path: Path) -> None:
    """Two processes on one GPU, of which each spins until the other has started, both finish every step."""
    page = tmp_path / "page"
    page.write_bytes(bytes(4096))
    rank = f"""
        cuda.context(); kernel = cuda.kernel(b"spin"); words, address = cuda.words({str(page)!r})
        stream = cuda.make("cuStreamCreate", 1); show(1); me = int(input())
        for step in range(1, 51):
            cuda.spin(kernel, 2, address + 4 * (1 - me), step, stream, address + 4 * me, step)
        cuda.cuStreamSynchronize(stream); show(words[me]); input()
    """
    with running(node, rank, rank) as ranks:
        assert all(process.stdin for process in ranks)
        for me, process in enumerate(ranks):
            assert process.stdin is not None
            process.stdin.write(f"{me}\n")
            process.stdin.flush()
        assert [json.loads(process.stdout.readline()) for process in ranks if process.stdout] == [50, 50]
        assert [of_pid(node, process)["busy_ns"] for process in ranks] == [100_000_000, 100_000_000]


def test_kernels_spin_in_graphs_and_from_packed_parameters(node: Node) -> None:
    """A captured kernel keeps its parameters, parameters in a buffer are found, and bad addresses are refused."""
    seen = node.python("""
        cuda.context(); kernel = cuda.kernel(b"spin"); words, address = cuda.words()
        stream, graph, run = cuda.make("cuStreamCreate", 1), PTR(), PTR()
        cuda.cuStreamBeginCapture_v2(stream, 2)
        cuda.spin(kernel, 5, address, 1, stream, address + 4, 9)
        cuda.cuStreamEndCapture(stream, byref(graph))
        cuda.cuGraphInstantiateWithFlags(byref(run), graph, U64(0))
        cuda.cuGraphLaunch(run, stream)
        cuda.wait(lambda: words[1] == 9); words[0] = 1; cuda.cuStreamSynchronize(stream)
        class Packed(ctypes.Structure):
            _fields_ = [("length", U64), ("address", U64), ("value", UINT), ("start", U64), ("word", UINT)]
        packed = Packed(5_000_000, address, 1, address + 8, 6); size = SIZE(ctypes.sizeof(packed))
        extra = (PTR * 5)(1, ctypes.addressof(packed), 2, ctypes.addressof(size), 0)
        cuda.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, None, extra)
        cuda.cuStreamSynchronize(stream)
        packed.address = 4096
        bad = cuda.result("cuLaunchKernel", kernel, 1, 1, 1, 1, 1, 1, 0, stream, None, extra)
        offset, sizes = SIZE(), []
        size = SIZE()
        while cuda.raw("cuFuncGetParamInfo", kernel, SIZE(len(sizes)), byref(offset), byref(size)) == 0:
            sizes.append([offset.value, size.value])
        show([words[2], bad, sizes])
    """)
    assert seen == [6, "CUDA_ERROR_ILLEGAL_ADDRESS", [[0, 8], [8, 8], [16, 4], [24, 8], [32, 4]]]
    assert node.book()[0]["busy_ns"] == 10_000_000


def test_launches_behind_a_kernel_that_spins_are_bounded(node: Node) -> None:
    """Launches beyond the queue's depth wait, and go on once the oldest kernel has ended."""
    launched = node.python("""
        cuda.context(); kernel = cuda.kernel(b"spin"); words, address = cuda.words()
        count = 0
        def launch():
            global count
            for _ in range(1200): cuda.spin(kernel, 0.01, address, 1); count += 1
        context = PTR(); cuda.cuCtxGetCurrent(byref(context))
        thread = threading.Thread(target=lambda: (cuda.cuCtxSetCurrent(context), launch())); thread.start()
        cuda.wait(lambda: count >= 1024); time.sleep(0.1); blocked = count
        words[0] = 1; thread.join(); cuda.cuCtxSynchronize(); show([blocked, count])
    """)
    assert launched == [1024, 1200]
    assert node.book()[0]["busy_ns"] == 12_000_000
