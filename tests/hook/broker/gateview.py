"""The read-only side of a `gate` file as in the library: mapped, read word by word, with waits by futex."""

import ctypes
import mmap
import os
import platform
from pathlib import Path
from typing import Final

from plimsoll.broker.pages import GATE_NAME, GATE_STATES, Gate

_FUTEX: Final = {"x86_64": 202, "aarch64": 98}[platform.machine()]
_FUTEX_WAIT: Final = 0

_libc: Final = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class GateView:
    """A mapping of one container's gate, for the life of the process."""

    def __init__(self, limits_dir: Path) -> None:
        file = os.open(limits_dir / GATE_NAME, os.O_RDONLY)
        size = ctypes.c_size_t(ctypes.sizeof(Gate))
        address = _libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, file, ctypes.c_long(0))
        os.close(file)
        assert address != ctypes.c_void_p(-1).value, os.strerror(ctypes.get_errno())
        self.page = Gate.from_address(address)
        self._address = ctypes.c_void_p(address + Gate.word.offset)

    @property
    def word(self) -> int:
        """The current word."""
        return int(self.page.word)

    @property
    def state(self) -> int:
        """The current state: GATE_OPEN, GATE_METERED or GATE_SHUT."""
        return self.word & GATE_STATES

    def wait(self, word: int, seconds: float) -> bool:
        """Sleep while the word has this value. Returns whether it was woken, or the word had already changed."""
        pause = _Timespec(int(seconds), int(seconds % 1 * 1e9))
        return self._wait(word, pause) == 0 or self.word != word

    def _wait(self, word: int, pause: _Timespec) -> int:
        number = ctypes.c_long(_FUTEX)
        return int(
            _libc.syscall(
                number, self._address, _FUTEX_WAIT, ctypes.c_uint32(word), ctypes.byref(pause), None, 0
            )
        )
