"""Device time: the length and order of work, and how processes share a GPU."""

import json
import subprocess
import time
from itertools import pairwise

from tests.emulator.cuda_program import Node, wait_for
from tests.servers.waiting import PATIENCE_S

STEP_NS = 20_000_000
"""The time between two lines of a watched book."""


def test_synchronising_waits_for_the_work(node: Node) -> None:
    """A kernel takes its time on the device, and synchronising returns only when it is over."""
    launched_ms, synchronised_ms = node.python("device_time.synchronise")
    assert launched_ms < 200
    assert synchronised_ms >= 200
    assert node.book()[0]["busy_ns"] == 200_000_000


def test_short_kernels_lose_nothing_to_sleeping(node: Node) -> None:
    """A thousand 20 µs kernels back to back take 20 ms of device time, with no gaps between them."""
    gap_ms = node.python("device_time.short_kernels")
    gpu = node.book()[0]
    assert gpu["busy_ns"] == 1_020_000_000
    assert -1 < gap_ms < 1


def test_work_keeps_its_order_across_streams_and_events(node: Node) -> None:
    """A stream that waits for another's event runs after it, and host functions run at their place."""
    order = node.python("device_time.ordered_work")
    assert order == [
        [[i, "CUDA_ERROR_NOT_PERMITTED"] for i in range(4)],
        ["CUDA_ERROR_NOT_READY", "CUDA_ERROR_NOT_READY"],
        "CUDA_SUCCESS",
        "CUDA_SUCCESS",
    ]


def test_the_default_stream_waits_for_blocking_streams(node: Node) -> None:
    """Work on the legacy default stream comes after all earlier work of blocking streams, and before later."""
    seen = node.python("device_time.default_stream")
    assert seen == [
        ["stream", "legacy", "last"],
        ["CUDA_ERROR_NOT_READY", "CUDA_SUCCESS"],
        "CUDA_SUCCESS",
    ]


def test_processes_share_a_gpu_evenly(node: Node) -> None:
    """Four processes that always have work get about a quarter of the GPU each, and it is never idle."""
    before = time.monotonic_ns()
    workers = [node.start("--kernel-ms", "3", "--seconds", "600") for _ in range(4)]
    try:
        wait_for(
            lambda: (
                all(p["busy_ns"] > 0 for p in node.book()[0]["processes"])
                and len(node.book()[0]["processes"]) == 4
            )
        )
        start = {p["pid"]: p["busy_ns"] for p in node.book()[0]["processes"]}
        wait_for(
            lambda: sum(p["busy_ns"] - start[p["pid"]] for p in node.book()[0]["processes"]) > 2_000_000_000
        )
        gpu = node.book()[0]
        gained = [p["busy_ns"] - start[p["pid"]] for p in gpu["processes"]]
        assert min(gained) > 0.15 * sum(gained)
        assert max(gained) < 0.35 * sum(gained)
        assert gpu["busy_ns"] <= time.monotonic_ns() - before
        assert all(p["unfinished_ns"] > p["busy_ns"] for p in gpu["processes"])
    finally:
        for worker in workers:
            worker.kill()
            worker.communicate()


def test_the_death_of_a_working_process_passes_its_turn(node: Node) -> None:
    """After a kill of a process with an hour of queued work, its neighbour gets the GPU without sweeping the book."""
    victim = node.background("device_time.hog")
    heir = node.background("device_time.two_seconds_when_told")
    assert len(node.book()[0]["processes"]) == 2
    victim.kill()
    victim.communicate()
    out, _ = heir.communicate("\n")
    assert 2000 <= float(out) < 3000  # shared with the dead, it would be 4000


def test_an_idle_neighbour_costs_nothing(node: Node) -> None:
    """A process that holds memory but has no work takes no turns."""
    holder = node.start("--memory", "1Gi", "--hold-seconds", "600")
    try:
        wait_for(lambda: len(node.book()[0]["processes"]) == 1)
        code, _ = node.busy("--kernel-ms", "10", "--iterations", "50")
        assert code == 0
        gpu = node.book()[0]
        assert gpu["busy_ns"] == 500_000_000
        assert [p["busy_ns"] for p in gpu["processes"]] == [0]
    finally:
        holder.kill()
        holder.communicate()


def test_a_full_queue_blocks_the_launch(node: Node) -> None:
    """A program's run-ahead is bounded: the 1025th launch waits for the first."""
    launching_ms = node.python("device_time.full_queue")
    assert launching_ms >= (3000 - 1024 - 1) * 0.5


def test_the_book_can_be_watched(node: Node) -> None:
    """Each line of a watched book is one GPU at the moment that it names. The watch ends when its reader is gone."""
    with node.background("device_time.four_minutes") as program:
        begun_ns = time.monotonic_ns()
        with subprocess.Popen(
            [node.tool, "watch", "0", str(STEP_NS // 1_000_000)],
            env=node.environment(),
            stdout=subprocess.PIPE,
            text=True,
        ) as watching:
            assert watching.stdout is not None
            lines = [json.loads(watching.stdout.readline())]
            while lines[-1]["time_ns"] - lines[0]["time_ns"] < 4 * STEP_NS:
                lines.append(json.loads(watching.stdout.readline()))
            watching.stdout.close()
            assert watching.wait(PATIENCE_S) != 0
        program.kill()
    times = [line["time_ns"] for line in lines]
    unfinished = [line["processes"][0]["unfinished_ns"] for line in lines]
    assert all(earlier < later for earlier, later in pairwise(times))
    assert len(lines) <= (times[-1] - begun_ns) // STEP_NS + 1
    assert [later - times[0] for later in times] == [later - unfinished[0] for later in unfinished]
