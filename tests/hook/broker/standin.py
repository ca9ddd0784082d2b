"""A process that behaves like one under the library, without a GPU: it maps `counts` and sends the datagrams.

Run as `python -m tests.hook.broker.standin LIMITS_DIR COUNTS_DIR`. It obeys one command a line from its
standard input and answers each with one line. Claims are made under a file lock, as Python has no
compare-and-swap; only stand-ins may share a `counts` with it.
"""

import ctypes
import fcntl
import mmap
import os
import signal
import socket
import sys
import time
from functools import cached_property
from pathlib import Path
from typing import Final, cast

from plimsoll.broker.datagrams import (
    KIND_CONTEXT,
    KIND_DENIED,
    KIND_FREED,
    KIND_GRANTED,
    KIND_HELLO,
    KIND_UNKNOWN,
    KIND_WAIT,
    MESSAGE_MAGIC,
    Message,
)
from plimsoll.broker.pages import (
    COUNTS_NAME,
    GATE_SHUT,
    GATE_STATES,
    LIMITS_NAME,
    MAX_SLOTS,
    SOCKET_NAME,
    VERSION,
    Counts,
    GpuLimit,
    Limits,
    Work,
)
from tests.hook.broker.gateview import GateView

KINDS: Final = {
    "hello": KIND_HELLO,
    "context": KIND_CONTEXT,
    "denied": KIND_DENIED,
    "unknown": KIND_UNKNOWN,
    "wait": KIND_WAIT,
    "freed": KIND_FREED,
}


class StandIn:
    """The state of the hooked process."""

    def __init__(self, limits_dir: Path, counts_dir: Path) -> None:
        self.limits_dir = limits_dir
        with (counts_dir / COUNTS_NAME).open("r+b") as self._file:
            self._counts = Counts.from_buffer(mmap.mmap(self._file.fileno(), 0))
        self._counts_path = counts_dir / COUNTS_NAME
        self._held: socket.socket | None = None
        self._claimed_owner = 0
        self.slot = 0

    @cached_property
    def gate(self) -> GateView:
        """The container's gate."""
        return GateView(self.limits_dir)

    @property
    def owner(self) -> int:
        """The process's owner word."""
        start_ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
        return os.getpid() % 2**32 + start_ticks % 2**32 * 2**32

    def claim(self) -> int:
        """Claim the first free slot; returns its number."""
        with self._counts_path.open("r+b") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            free = (n for n in range(MAX_SLOTS) if self._counts.slots[n].owner == 0)
            self.slot = next(free)
            self._counts.slots[self.slot].owner = self.owner
            self._counts.slots_touched = max(self._counts.slots_touched, self.slot + 1)
        return self.slot

    def send(self, kind: str, gpu: str = "", text: str = "", requested_bytes: int = 0) -> None:
        """Send one datagram."""
        self.send_raw(bytes(self.message(kind, gpu, text, requested_bytes)))

    def message(self, kind: str, gpu: str = "", text: str = "", requested_bytes: int = 0) -> Message:
        """One datagram."""
        return Message(
            magic=MESSAGE_MAGIC,
            version=VERSION,
            kind=KINDS[kind],
            slot=self.slot,
            owner=self._claimed_owner or self.owner,
            requested_bytes=requested_bytes,
            gpu_uuid=gpu.encode(),
            text=text.encode(),
        )

    def send_raw(self, data: bytes) -> None:
        """Send any bytes as one datagram, over a connection of their own unless one is held open."""
        if self._held is not None:
            self._held.send(data)
            return
        with self.connection() as connection:
            connection.send(data)

    def connection(self) -> socket.socket:
        """A new connection to the broker."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        place = os.open(self.limits_dir, os.O_PATH)
        connection.connect(f"/proc/self/fd/{place}/{SOCKET_NAME}")
        os.close(place)
        return connection

    def hold(self) -> None:
        """Use one connection for all later messages, and keep it open."""
        self._held = self.connection()

    def use(self, place: int, used_bytes: int, denied_count: int = 0) -> None:
        """Hold this many bytes on the GPU at this index of the lines."""
        self._counts.slots[self.slot].changed_ns = time.monotonic_ns()
        self._counts.slots[self.slot].used_bytes[place] = used_bytes
        self._counts.slots[self.slot].denied_count = denied_count

    def take(self, place: int, size: int) -> str:
        """Take this many more bytes and wait for them as the library does.

        Returns `taken` or the reason of the refusal.
        """
        gpu = bytes(self._limits().gpus[place].uuid).decode()
        while not self._fits(place, size):
            if refusal := self._wait(gpu, size):
                return refusal
        self._counts.slots[self.slot].changed_ns = time.monotonic_ns()
        self._counts.slots[self.slot].used_bytes[place] += size
        return "taken"

    def _wait(self, gpu: str, size: int) -> str:
        """Wait once. Returns the reason of a refusal, or nothing once another attempt makes sense."""
        with self.connection_again() as connection:
            try:
                connection.send(bytes(self.message("wait", gpu, requested_bytes=size)))
                reply = connection.recv(ctypes.sizeof(Message))
            except ConnectionError:
                reply = b""
        if not reply:
            return ""  # the broker died; a reset means that it had not read the question: ask the next one
        answer = Message.from_buffer_copy(reply)
        return "" if answer.kind == KIND_GRANTED else bytes(answer.text).decode()

    def _fits(self, place: int, size: int) -> bool:
        used = sum(int(slot.used_bytes[place]) for slot in self._counts.slots if slot.owner)
        return used + size <= int(self._limits().gpus[place].granted_bytes)

    def _limits(self) -> Limits:
        return Limits.from_buffer_copy((self.limits_dir / LIMITS_NAME).read_bytes())

    def connection_again(self) -> socket.socket:
        """A new connection, as soon as there is a broker."""
        while True:
            try:
                return self.connection()
            except OSError:
                time.sleep(0.01)

    def lines_seen(self, last_bytes: int) -> int:
        """Read `limits` by its rules until the lines are `last_bytes`; returns the number of different lines.

        Every consistent read must show the same line on both GPUs. Word by word, so that a writer that does
        not mark its changes is caught between two words.
        """
        with (self.limits_dir / LIMITS_NAME).open("rb") as file:
            page = memoryview(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)).cast("Q")
        generation = Limits.generation.offset // 8
        first = (Limits.gpus.offset + GpuLimit.line_bytes.offset) // 8
        second = first + ctypes.sizeof(GpuLimit) // 8
        seen: set[int] = set()
        while last_bytes not in seen:
            before = page[generation]
            one, other = page[first], page[second]
            if page[generation] == before and before % 2 == 0:
                assert one == other, f"a torn page was taken for a whole one: {one} and {other}"
                seen.add(one)
        return len(seen)

    @property
    def _work(self) -> Work:
        """The process's words for the first GPU."""
        page = self._counts.works[self.slot]
        page.owner = self.owner
        return cast("Work", page.gpus[0])

    def set_work(self, launched_ns: int, executed_ns: int, waiting: int = 0) -> None:
        """Begin a burst, or end the burst under way (0)."""
        work, now_ns = self._work, time.monotonic_ns()
        work.begun += 1
        if work.launched_ns and not launched_ns:
            executed_ns_before = now_ns - work.executed_ns if work.executed_ns else 0
            sure_ns = min(executed_ns_before, 1000 * int(self.gate.page.slice_us))
            work.unfinished_ns += now_ns - work.launched_ns
            work.sure_ns += sure_ns
            work.sliced_ns += executed_ns_before - sure_ns
        work.launched_ns, work.executed_ns = launched_ns, executed_ns
        work.looked_ns = 1 << 62  # the process never counts as stopped
        work.settled = work.begun
        work.waiting = waiting

    def work(self, seconds: float) -> list[tuple[int, int]]:
        """Run endless work for this long as the library would; returns begin and end of each burst, in nanoseconds.

        The process stands by futex while its gate is shut, and has no queued work when it becomes so.
        """
        until_ns = time.monotonic_ns() + int(seconds * 1e9)
        bursts: list[tuple[int, int]] = []
        since_ns = 0
        while (now_ns := time.monotonic_ns()) < until_ns:
            word = self.gate.word
            is_shut = word & GATE_STATES == GATE_SHUT
            if is_shut and since_ns:
                bursts.append((since_ns, now_ns))
                since_ns = 0
                self.set_work(0, 0, waiting=1)
            elif not is_shut and not since_ns:
                since_ns = now_ns
                self.set_work(now_ns, now_ns)
            self.gate.wait(word, min(0.1, (until_ns - now_ns) / 1e9))
        if since_ns:
            bursts.append((since_ns, time.monotonic_ns()))
        self.set_work(0, 0)
        return bursts

    def obey(self, words: list[str]) -> str:  # noqa: C901, PLR0911, PLR0912 - one command a case
        """Carry out one command; returns the answer."""
        match words:
            case ["claim"]:
                return str(self.claim())
            case ["send", kind]:
                self.send(kind)
            case ["send", kind, gpu]:
                self.send(kind, gpu)
            case ["unknown", function]:
                self.send("unknown", text=function)
            case ["deny", gpu, requested_bytes]:
                self.send("denied", gpu, requested_bytes=int(requested_bytes))
            case ["deny-and-die", gpu]:
                for n in range(8):
                    self.send("unknown", text=f"cuFoo{n}")
                self.send("denied", gpu, requested_bytes=1)
                os.kill(os.getpid(), signal.SIGKILL)
            case ["raw", data]:
                self.send_raw(bytes.fromhex(data))
            case ["use", place, used_bytes, *denied]:
                self.use(int(place), int(used_bytes), *map(int, denied))
            case ["launch"]:
                self.set_work(time.monotonic_ns(), time.monotonic_ns())
            case ["stand"]:
                self.set_work(0, 0, waiting=1)
            case ["rest"]:
                self.set_work(0, 0)
            case ["claim-as", owner]:
                self._counts.slots[self.slot].owner = int(owner)
            case ["claim-to-be", owner]:
                self._claimed_owner = int(owner)
            case ["work", seconds]:
                return " ".join(["worked", *(f"{begin}-{end}" for begin, end in self.work(float(seconds)))])
            case ["gate"]:
                return str(self.gate.word)
            case ["hold"]:
                self.hold()
            case ["take", place, size]:
                return self.take(int(place), int(size))
            case ["watch-lines", last_bytes]:
                return str(self.lines_seen(int(last_bytes)))
            case ["fork"]:
                return str(_idle_child())
            case ["family", count]:
                return " ".join(str(self._child(used_bytes=n + 1)) for n in range(int(count)))
            case ["exit"]:
                sys.exit(0)
            case _:
                raise ValueError(words)
        return "ok"

    def _child(self, used_bytes: int) -> int:
        """Fork a child that is a hooked process of its own; returns its pid once it has a slot and has greeted."""
        ready, done = os.pipe()
        pid = os.fork()
        if pid == 0:
            self._held = None
            self.claim()
            self.use(0, used_bytes)
            self.send("hello")
            os.write(done, b".")
            _sleep_for_ever()
        os.close(done)
        os.read(ready, 1)
        os.close(ready)
        return pid


def _idle_child() -> int:
    """Fork a child that holds every descriptor of its parent and does nothing."""
    pid = os.fork()
    if pid == 0:
        _sleep_for_ever()
    return pid


def _sleep_for_ever() -> None:
    os.close(0)
    os.close(1)
    while True:
        os.read(os.pipe()[0], 1)


def main() -> None:
    """Obey commands until the input ends."""
    standin = StandIn(Path(sys.argv[1]), Path(sys.argv[2]))
    for line in sys.stdin:
        sys.stdout.write(standin.obey(line.split()) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
