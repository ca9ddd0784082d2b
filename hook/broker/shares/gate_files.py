"""The `gate` file of each container: laid out beside its `limits`, then kept mapped and written word by word.

What always holds: the broker never replaces an existing file, whatever its content, because processes wait on its
word by futex and would miss a new file. It mends damage in place. Only a link, directory or socket in the place of
the file gives way to a new file. No tenant can write here, so no tenant can truncate the mapped file (compare
`files.shared`).
"""

import ctypes
import errno
import mmap
import os
import platform
import shutil
import stat
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from hook.broker.files.writing import write_whole
from plimsoll.broker.pages import GATE_MAGIC, GATE_NAME, GATE_OPEN, GATE_STATES, GATE_STEP, LATE_NS, VERSION
from plimsoll.broker.pages import Gate as GatePage
from plimsoll.part.clock import machine_ns
from plimsoll.part.errors import InputError

GATE_BYTES: Final = ctypes.sizeof(GatePage)
GATE_MODE: Final = 0o644
WORDS: Final = 1 << 32
"""The gate word counts modulo this."""

_SYSCALL_FUTEX: Final = {"x86_64": 202, "aarch64": 98}
"""The number of the system call, from the kernel's tables; no C library has a function for futex."""
_FUTEX_WAKE: Final = 1
"""Without FUTEX_PRIVATE_FLAG, because other processes wait."""
_EVERYBODY: Final = 2**31 - 1

_NO_FILE: Final = frozenset({errno.ENOENT, errno.ELOOP, errno.EISDIR, errno.ENXIO})
"""The errors of `open` where nothing, a link, a directory or a socket is in the place of the file."""

# Not CDLL: it releases the interpreter's lock for this microsecond, and may wait milliseconds to get it back.
_libc: Final = ctypes.PyDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True)
class GateConstants:
    """The numbers that are the same on every gate of a node; see `pages.Gate`."""

    ahead_us: int
    alone_us: int
    slice_us: int


class GateFile:
    """A container's gate, mapped; `close` it when the container leaves.

    Attributes:
        identity: device and inode of the file.
        was_unheld: an earlier broker left the gate metered or shut, and its last beat is so late that the library
            left the gate alone. Nobody has held the container's processes to their request since.
    """

    def __init__(self, file: int, constants: GateConstants) -> None:
        """Map an open file of `GATE_BYTES`, and mend wrong fields in it. The caller writes the first beat."""
        about = os.fstat(file)
        self.identity: Final = (about.st_dev, about.st_ino)
        self._map = mmap.mmap(file, GATE_BYTES)
        self._word = ctypes.c_uint32.from_buffer(self._map, GatePage.word.offset)
        self._sharers = ctypes.c_uint32.from_buffer(self._map, GatePage.sharers.offset)
        self._beat = ctypes.c_uint64.from_buffer(self._map, GatePage.beat_ns.offset)
        self._address = ctypes.addressof(self._word)
        # The clock restarts at boot, so an old beat may lie ahead of it.
        is_lost = not 0 <= machine_ns() - self._beat.value <= LATE_NS
        self.was_unheld: Final = not self.is_open and is_lost
        self._head(constants)

    @property
    def is_open(self) -> bool:
        """Whether the gate is open, so that no thread waits here."""
        return self._word.value & GATE_STATES == GATE_OPEN

    @property
    def word(self) -> int:
        """The gate word on the page."""
        return self._word.value

    @property
    def sharers(self) -> int:
        """The number of processes that share the fullest of the container's GPUs."""
        return self._sharers.value

    def set(self, word: int, sharers: int = 1) -> None:
        """Write both numbers, each by an aligned store. If the word changed, wake every thread that waits on it."""
        self._sharers.value = sharers
        if word != self._word.value:
            self.beat()  # The beat first: a gate that is not open must not seem to have no broker.
            self._word.value = word
            _wake(self._address)

    def beat(self) -> None:
        """Write a beat, which shows that the broker lives."""
        self._beat.value = machine_ns()

    def take_over(self, older: "GateFile") -> None:
        """Take the state of a gate whose file was replaced, and let its waiting threads through."""
        self.set(older.word, older.sharers)
        older.open_for_good()

    def open(self) -> None:
        """Let every thread through."""
        self.set((self.word // GATE_STEP * GATE_STEP + GATE_STEP + GATE_OPEN) % WORDS)

    def open_for_good(self) -> None:
        """Let every thread through, and unmap the file."""
        self.open()
        self.close()

    def close(self) -> None:
        """Unmap the file; the word stays as it is."""
        del self._word, self._sharers, self._beat  # A map with pointers into it cannot be closed.
        self._map.close()

    def _head(self, constants: GateConstants) -> None:
        page = GatePage.from_buffer(self._map)
        right = {"magic": GATE_MAGIC, "version": VERSION, "size": GATE_BYTES}
        right |= asdict(constants)
        for name, value in right.items():
            if getattr(page, name) != value:
                setattr(page, name, value)


def open_gate(directory: Path, constants: GateConstants) -> GateFile:
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
        _make(path, constants)
        file = _opened(path)
    try:
        # Even a file of the right size may have a hole: a write to it on a full disk would kill the broker by SIGBUS.
        os.posix_fallocate(file, 0, GATE_BYTES)
        if os.fstat(file).st_size != GATE_BYTES:
            os.ftruncate(file, GATE_BYTES)
        return GateFile(file, constants)
    finally:
        os.close(file)


def check_machine() -> None:
    """Refuse a machine on which the broker could not wake waiting threads.

    Raises:
        InputError: names the machine.
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


def _make(path: Path, constants: GateConstants) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    page = GatePage(magic=GATE_MAGIC, version=VERSION, size=GATE_BYTES, sharers=1, **asdict(constants))
    write_whole(path, bytes(page), GATE_MODE, GATE_BYTES)


def _wake(address: int) -> None:
    number = ctypes.c_long(_SYSCALL_FUTEX[platform.machine()])
    _libc.syscall(number, ctypes.c_void_p(address), _FUTEX_WAKE, _EVERYBODY, None, None, 0)
