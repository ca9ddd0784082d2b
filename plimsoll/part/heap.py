"""Gives memory that a part has freed back to the kernel.

glibc keeps freed memory for later allocations. The imports of a part free some 10 MiB below the top of the heap, and
nothing fills them again: that was a sixth of the monitor's resident memory.
"""

import ctypes
from typing import Final

_LIBC: Final = ctypes.CDLL(None)


def trim_heap() -> None:
    """Give freed memory back now, in some milliseconds; call it once, after the imports.

    Nothing happens on a C library other than glibc.
    """
    if hasattr(_LIBC, "malloc_trim"):
        _LIBC.malloc_trim(0)
