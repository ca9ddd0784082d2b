"""The `gate` file of each container: laid out beside its `limits`, then kept mapped and written word by word.

What always holds: a file that is there is never replaced, whatever stands in it, since processes wait on its word by
futex and would never hear of another; damage is mended in place. Only what is no file at all gives way to a new one.
No tenant can write here, so that the mapping cannot be cut off under the broker (compare `shared_files`).
"""

import ctypes
import errno
import mmap
import os
import platform
import shutil
import stat
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from hook.broker.files.shared import write_whole
from plimsoll.broker.pages import GATE_MAGIC, GATE_NAME, GATE_OPEN, GATE_STATES, GATE_STEP, VERSION
from plimsoll.broker.pages import Gate as GatePage
from plimsoll.part.errors import InputError

GATE_BYTES: Final = ctypes.sizeof(GatePage)
GATE_MODE: Final = 0o644
WORDS: Final = 1 << 32
"""The word counts modulo this."""

LOST_NS: Final = 3_000_000_000
"""A gate whose beat is older belongs to no broker, and the library takes it for open."""

_SYSCALL_FUTEX: Final = {"x86_64": 202, "aarch64": 98}
"""From the kernel's tables; no C library has a function for it."""
_FUTEX_WAKE: Final = 1
"""Without FUTEX_PRIVATE_FLAG: who waits is another process."""
_EVERYBODY: Final = 2**31 - 1

_NO_FILE: Final = frozenset({errno.ENOENT, errno.ELOOP, errno.EISDIR, errno.ENXIO})
"""What opening says where nothing, a link, a directory or a socket stands in the place of the file."""

# Not CDLL: that gives the interpreter's lock away for this microsecond, and may get it back milliseconds later.
_libc: Final = ctypes.PyDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True)
class Pace:
    """The same on every gate of a node, see `pages.Gate`."""

    ahead_us: int
    alone_us: int
    slice_us: int


class Gate:
    """One container's gate, mapped; `close` it when the container leaves.

    Attributes:
        identity: which file it is.
        was_unheld: the broker before this one had left it other than open, and has been gone for longer than the
            library waits for one: its processes have run freely since.
    """

    def __init__(self, file: int, pace: Pace) -> None:
        """Map an open file of `GATE_BYTES`, and put right what stands wrongly in it."""
        about = os.fstat(file)
        self.identity: Final = (about.st_dev, about.st_ino)
        self._map = mmap.mmap(file, GATE_BYTES)
        self._word = ctypes.c_uint32.from_buffer(self._map, GatePage.word.offset)
        self._sharers = ctypes.c_uint32.from_buffer(self._map, GatePage.sharers.offset)
        self._beat = ctypes.c_uint64.from_buffer(self._map, GatePage.beat_ns.offset)
        self._address = ctypes.addressof(self._word)
        # After a boot the clock has begun anew, so a beat may lie ahead of it.
        is_lost = not 0 <= time.monotonic_ns() - self._beat.value <= LOST_NS
        self.was_unheld: Final = not self.is_open and is_lost
        self._head(pace)
        self.beat()

    @property
    def is_open(self) -> bool:
        """Whether nobody can be waiting here."""
        return self._word.value & GATE_STATES == GATE_OPEN

    @property
    def word(self) -> int:
        """What the page says."""
        return self._word.value

    @property
    def sharers(self) -> int:
        """How many processes share the fullest of its GPUs."""
        return self._sharers.value

    def set(self, word: int, sharers: int = 1) -> None:
        """Show these, each by one aligned store, and wake everybody who waits for another word."""
        self._sharers.value = sharers
        if word != self._word.value:
            self.beat()  # Before: a gate that is not open must not seem to be nobody's.
            self._word.value = word
            _wake(self._address)

    def beat(self) -> None:
        """Show that the broker lives."""
        self._beat.value = time.monotonic_ns()

    def take_over(self, older: "Gate") -> None:
        """Stand in for a gate whose file is gone: whoever still waits there is let through."""
        self.set(older.word, older.sharers)
        older.open_for_good()

    def open(self) -> None:
        """Let everybody through."""
        self.set((self.word // GATE_STEP * GATE_STEP + GATE_STEP + GATE_OPEN) % WORDS)

    def open_for_good(self) -> None:
        """Let everybody through and close."""
        self.open()
        self.close()

    def close(self) -> None:
        """Unmap it; the word stands as it is."""
        del self._word, self._sharers, self._beat  # a map that is pointed into cannot be closed
        self._map.close()

    def _head(self, pace: Pace) -> None:
        page = GatePage.from_buffer(self._map)
        right = {"magic": GATE_MAGIC, "version": VERSION, "size": GATE_BYTES}
        right |= asdict(pace)
        for name, value in right.items():
            if getattr(page, name) != value:
                setattr(page, name, value)


def open_gate(directory: Path, pace: Pace) -> Gate:
    """Make or mend the gate file in a directory, and map it. Blocks.

    Raises:
        OSError: the disk is full or read-only, or descriptors ran out, for example.
    """
    path = directory / GATE_NAME
    try:
        file = _opened(path)
    except OSError as error:
        if error.errno not in _NO_FILE:
            raise
        _make(path, pace)
        file = _opened(path)
    try:
        # Whatever its size: writing to a hole on a full disk would end the broker by SIGBUS.
        os.posix_fallocate(file, 0, GATE_BYTES)
        if os.fstat(file).st_size != GATE_BYTES:
            os.ftruncate(file, GATE_BYTES)
        return Gate(file, pace)
    finally:
        os.close(file)


def check_machine() -> None:
    """Refuse a machine on which nobody who waits could be woken.

    Raises:
        InputError: naming it.
    """
    if platform.machine() not in _SYSCALL_FUTEX:
        known = " or ".join(_SYSCALL_FUTEX)
        raise InputError("machine", platform.machine(), "is not supported", f"run the broker on {known}")


def _opened(path: Path) -> int:
    file = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if stat.S_ISREG(os.fstat(file).st_mode):
        return file
    os.close(file)
    raise OSError(errno.ENXIO, "is no regular file", str(path))


def _make(path: Path, pace: Pace) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    page = GatePage(magic=GATE_MAGIC, version=VERSION, size=GATE_BYTES, sharers=1, **asdict(pace))
    write_whole(path, bytes(page), GATE_MODE, GATE_BYTES)


def _wake(address: int) -> None:
    number = ctypes.c_long(_SYSCALL_FUTEX[platform.machine()])
    _libc.syscall(number, ctypes.c_void_p(address), _FUTEX_WAKE, _EVERYBODY, None, None, 0)
