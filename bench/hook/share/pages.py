"""Simulates the processes of many containers for a broker by writing their pages.

`python -m bench.hook.share.pages` reads one JSON line, `[[limits_dir, counts_dir, sort], ...]`, and starts a process
for each container. That process claims a slot, greets, and then idles until this program's standard input ends.
This program writes the words of their work: `greedy` ones work without an end and stand at their gates, `light`
ones have bursts. No process obeys its gate, so a broker always has a container to judge.
"""

import heapq
import json
import mmap
import os
import random
import select
import socket
import sys
import time
from ctypes import sizeof
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from plimsoll.broker.datagrams import KIND_HELLO, MESSAGE_MAGIC, Message
from plimsoll.broker.pages import COUNTS_NAME, SOCKET_NAME, VERSION, Counts, Slot, SlotWork, Work

MS: Final = 1_000_000
SLICE_NS: Final = 2 * MS
LIGHT_PERIOD_NS: Final = 33 * MS
WAITING_NS, EXECUTING_NS = 2 * MS, 3 * MS
"""The delay of a light burst's first slice, and the time for which it executes after that."""
QUEUED_NS: Final = 10 * MS
"""The work that a greedy process has queued."""
NEVER_SILENT_NS: Final = 1 << 62
"""A simulated process never writes a sign of life again, so this one lies in the far future."""
SLOT: Final = 0
GPU: Final = 0
WORD_BYTES: Final = 8


def _word(offset_bytes: int) -> int:
    return offset_bytes // WORD_BYTES


_SLOT_AT: Final = Counts.slots.offset + SLOT * sizeof(Slot)
_WORK_AT: Final = Counts.works.offset + SLOT * sizeof(SlotWork)
_GPU_AT: Final = _WORK_AT + SlotWork.gpus.offset + GPU * sizeof(Work)
SLOT_OWNER: Final = _word(_SLOT_AT + Slot.owner.offset)
WORK_OWNER: Final = _word(_WORK_AT + SlotWork.owner.offset)
SETTLED, LAUNCHED, EXECUTED, UNFINISHED, SURE, SLICED, BEGUN, QUEUED, STANDING, LOOKED = (
    _word(_GPU_AT + getattr(Work, name).offset)
    for name in (
        "settled", "launched_ns", "executed_ns", "unfinished_ns", "sure_ns", "sliced_ns", "begun",
        "queued_ns", "waiting", "looked_ns",
    )
)  # fmt: skip


@dataclass(slots=True)
class Page:
    """One container's `counts`, whose only process has the first slot."""

    words: memoryview
    mapped: mmap.mmap

    def begin(self, now_ns: int) -> None:
        """Write a burst's launch."""
        self._change({LAUNCHED: now_ns, EXECUTED: 0})

    def execute(self, now_ns: int) -> None:
        """Write that the GPU began with the burst."""
        self._change({EXECUTED: now_ns})

    def end(self, now_ns: int) -> None:
        """Write that the burst has ended."""
        words = self.words
        executed_ns = now_ns - words[EXECUTED]
        sure_ns = min(executed_ns, SLICE_NS)
        ended = {
            UNFINISHED: words[UNFINISHED] + now_ns - words[LAUNCHED],
            SURE: words[SURE] + sure_ns,
            SLICED: words[SLICED] + executed_ns - sure_ns,
        }
        self._change({LAUNCHED: 0, EXECUTED: 0, **ended})

    def _change(self, changes: dict[int, int]) -> None:
        words = self.words
        words[BEGUN] += 1
        for at, value in changes.items():
            words[at] = value
        words[SETTLED] = words[BEGUN]


def opened(counts_dir: Path) -> Page:
    """Open a container's page."""
    with (counts_dir / COUNTS_NAME).open("r+b") as file:
        mapped = mmap.mmap(file.fileno(), 0)
    return Page(memoryview(mapped).cast("Q"), mapped)


def process_of(page: Page, limits_dir: Path, alive: tuple[int, int]) -> int:
    """Start a process of the container; returns its pid once it has a slot and has greeted.

    It ends when no process holds the second end of `alive` any more.
    """
    ready, done = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(alive[1])
        _claim(page, limits_dir)
        os.write(done, b".")
        os.read(alive[0], 1)
        os._exit(0)
    os.close(done)
    os.read(ready, 1)
    os.close(ready)
    return pid


def _claim(page: Page, limits_dir: Path) -> None:
    start_ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    owner = os.getpid() % 2**32 + start_ticks % 2**32 * 2**32
    counts = Counts.from_buffer(page.mapped)
    counts.slots_touched = SLOT + 1
    page.words[LOOKED] = NEVER_SILENT_NS
    page.words[WORK_OWNER] = owner
    page.words[SLOT_OWNER] = owner
    message = Message(magic=MESSAGE_MAGIC, version=VERSION, kind=KIND_HELLO, slot=SLOT, owner=owner)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        place = os.open(limits_dir, os.O_PATH)
        connection.connect(f"/proc/self/fd/{place}/{SOCKET_NAME}")
        os.close(place)
        connection.send(bytes(message))


def start_greedy(page: Page) -> None:
    """Write a burst without an end, and a thread that stands."""
    now_ns = time.monotonic_ns()
    page.begin(now_ns)
    page.execute(now_ns)
    page.words[QUEUED] = QUEUED_NS
    page.words[STANDING] = 1


def play(greedy: list[Page], light: list[Page]) -> None:
    """Write words until the standard input ends."""
    for page in greedy:
        start_greedy(page)
    draw = random.Random(1)
    now_ns = time.monotonic_ns()
    steps = [(now_ns + draw.randrange(LIGHT_PERIOD_NS), number, 0) for number in range(len(light))]
    heapq.heapify(steps)
    while not select.select([sys.stdin], [], [], 0.001)[0]:
        now_ns = time.monotonic_ns()
        while steps and steps[0][0] <= now_ns:
            due_ns, number, stage = heapq.heappop(steps)
            (light[number].begin, light[number].execute, light[number].end)[stage](due_ns)
            later_ns = (WAITING_NS, EXECUTING_NS, LIGHT_PERIOD_NS - WAITING_NS - EXECUTING_NS)[stage]
            heapq.heappush(steps, (due_ns + later_ns, number, (stage + 1) % 3))


def main() -> None:
    """Start the processes, report that they are ready, and write their words."""
    containers = [
        (Path(limits), Path(counts), sort) for limits, counts, sort in json.loads(sys.stdin.readline())
    ]
    pages = [opened(counts) for _, counts, _ in containers]
    alive = os.pipe()
    pids = [process_of(page, limits, alive) for page, (limits, _, _) in zip(pages, containers, strict=True)]
    print("ready", flush=True)
    sorts = [sort for _, _, sort in containers]
    try:
        play(
            [page for page, sort in zip(pages, sorts, strict=True) if sort == "greedy"],
            [page for page, sort in zip(pages, sorts, strict=True) if sort == "light"],
        )
    finally:
        os.close(alive[1])
        for pid in pids:
            os.waitpid(pid, 0)


if __name__ == "__main__":
    main()
