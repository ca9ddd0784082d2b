"""Plays the processes of many containers for a broker: their pages, and nothing else.

`python -m bench.share_pages` reads one JSON line, `[[limits_dir, counts_dir, sort], ...]`, and starts a process for
each container. That claims a slot, says hello, and does nothing more, for as long as this program lives: until its
standard input ends. This program writes the words of their work: `greedy` ones work without an end and
stand at their gates, `light` ones have bursts. Nobody obeys a gate, so a broker has always somebody to judge.
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

from plimsoll.broker.pages import (
    COUNTS_NAME,
    KIND_HELLO,
    MESSAGE_MAGIC,
    SOCKET_NAME,
    VERSION,
    Counts,
    Message,
    Slot,
    SlotWork,
    Work,
)

MS: Final = 1_000_000
SLICE_NS: Final = 2 * MS
LIGHT_PERIOD_NS: Final = 33 * MS
WAITING_NS, EXECUTING_NS = 2 * MS, 3 * MS
"""A light burst waits so long for its first slice, and executes so long after."""
QUEUED_NS: Final = 10 * MS
"""A greedy process has so much queued."""
NEVER_SILENT_NS: Final = 1 << 62
"""A played process never looks again, and counts as one that just did."""
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
        "queued_ns", "standing", "looked_ns",
    )
)  # fmt: skip


@dataclass(slots=True)
class Page:
    """One container's `counts`, whose only process has the first slot."""

    words: memoryview
    mapped: mmap.mmap

    def begin(self, now_ns: int) -> None:
        """A launch finds nothing unfinished."""
        self._change({LAUNCHED: now_ns, EXECUTED: 0})

    def execute(self, now_ns: int) -> None:
        """The GPU begins with it."""
        self._change({EXECUTED: now_ns})

    def end(self, now_ns: int) -> None:
        """All is done."""
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
    """A container's page."""
    with (counts_dir / COUNTS_NAME).open("r+b") as file:
        mapped = mmap.mmap(file.fileno(), 0)
    return Page(memoryview(mapped).cast("Q"), mapped)


def process_of(page: Page, limits_dir: Path, alive: tuple[int, int]) -> int:
    """A new process of the container, once it has a slot and said hello; returns its pid.

    It ends when nobody else holds the second end of `alive`.
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
    """Work without an end, and a thread that would launch more."""
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
    """Start the processes, say so, play."""
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
