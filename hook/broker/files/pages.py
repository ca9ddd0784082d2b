"""The files of one container: they are made, rewritten in place, or mended after a tenant or a killed broker.

What always holds: a sound file is changed in place and never replaced, because running processes have it mapped.
"""

import contextlib
import os
import shutil
import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from hook.broker.core import codec
from hook.broker.files.writing import opened, write_whole
from plimsoll.broker.pages import (
    COUNTS_NAME,
    CPUS_NAME,
    EXPORTS_NAME,
    LIMITS_NAME,
    MAX_SLOTS,
    MEASURED_NAME,
    PRELOADS_NAME,
)
from plimsoll.broker.volume import CONTAINER_LIBRARY
from plimsoll.broker.wire import ContainerLines

LIMITS_MODE: Final = 0o644
COUNTS_MODE: Final = 0o666
"""A process of any user inside the container may use it."""

TENANTS_FILE: Final = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
"""Flags for `counts`: a tenant may put a link or a pipe in its place."""


def lay_out_limits(directory: Path, lines: ContainerLines, numbers: codec.Numbers) -> None:
    """Write `limits` under its generation, or a new file where the present one cannot be kept."""
    path, new = directory / LIMITS_NAME, codec.new_limits(lines, numbers)
    if not path.exists():
        write_whole(path, new, LIMITS_MODE)
        return
    with opened(path, os.O_RDWR) as file:
        old = os.pread(file, codec.LIMITS_BYTES + 1, 0)
        if (
            len(old) == codec.LIMITS_BYTES
            and old[: codec.GENERATION_OFFSET] == new[: codec.GENERATION_OFFSET]
        ):
            _rewrite_limits(file, old, codec.limits_body(lines, numbers))
            return
    write_whole(path, new, LIMITS_MODE)


def lay_out_measured(directory: Path) -> None:
    """An empty `measured`. The new `limits` of a broker that has just started has no excess either."""
    path = directory / MEASURED_NAME
    if path.exists() and path.stat().st_size == codec.MEASURED_BYTES:
        with opened(path, os.O_RDWR) as file:  # in place: processes have it mapped
            os.pwrite(file, bytes(codec.MEASURED_BYTES), 0)
    else:
        write_whole(path, b"", LIMITS_MODE, codec.MEASURED_BYTES)


def write_measured(
    directory: Path, slots: Sequence[tuple[int, bytes]], choose: Callable[[bytes, bytes], bytes]
) -> None:
    """Write slots of `measured`, each with its offset; `choose` gets the present and the new bytes of a slot."""
    with opened(directory / MEASURED_NAME, os.O_RDWR) as file:
        for offset, now in slots:
            os.pwrite(file, choose(os.pread(file, len(now), offset), now), offset)


def lay_out_cpus(directory: Path, page: bytes | None) -> None:
    """Write the page of CPUs; None for a container without one."""
    path = directory / CPUS_NAME
    if page is None:
        path.unlink(missing_ok=True)
    elif not path.exists() or path.read_bytes() != page:
        write_whole(path, page, LIMITS_MODE)


def lay_out_preloads(directory: Path) -> None:
    """Name the library, in the file itself: running containers have it mounted."""
    path, line = directory / PRELOADS_NAME, f"{CONTAINER_LIBRARY}\n".encode()
    if not path.exists() or not path.read_bytes().startswith(line):
        path.write_bytes(line)
        path.chmod(LIMITS_MODE)


def _rewrite_limits(file: int, old: bytes, body: bytes) -> None:
    """Change the bytes after the generation, which is odd meanwhile.

    Each step is its own `pwrite`: the kernel takes and releases the file's lock in between, so no processor shows a
    reader these stores in another order.
    """
    (generation,) = codec.WORD.unpack_from(old, codec.GENERATION_OFFSET)
    is_torn = generation % 2 == 1  # A broker was killed in this function.
    if old[codec.BODY_OFFSET :] == body and not is_torn:
        return
    odd = generation | 1
    os.pwrite(file, codec.WORD.pack(odd), codec.GENERATION_OFFSET)
    os.pwrite(file, body, codec.BODY_OFFSET)
    os.pwrite(file, codec.WORD.pack(odd + 1), codec.GENERATION_OFFSET)


def lay_out_counts(directory: Path, *, clear: bool) -> None:
    """Keep a sound `counts`, mend one of a wrong size or head, and replace anything else; `clear` empties it."""
    path = directory / COUNTS_NAME
    try:
        with opened(path, os.O_RDWR | TENANTS_FILE) as file:
            about = os.fstat(file)
            if stat.S_ISREG(about.st_mode) and about.st_nlink == 1 and not clear:
                _mend_counts(file, about.st_size)
                return
    except OSError:
        pass  # The file is missing, a link or a directory: a new file takes its place.
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    write_whole(path, codec.counts_head(), COUNTS_MODE, codec.COUNTS_BYTES)


def lay_out_exports(directory: Path, *, clear: bool) -> None:
    """A file that a tenant damaged is replaced for the next programs. All zeros is the empty file."""
    path = directory / EXPORTS_NAME
    with contextlib.suppress(FileNotFoundError):
        about = path.lstat()
        if stat.S_ISREG(about.st_mode) and about.st_size == codec.EXPORTS_BYTES and not clear:
            return
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    write_whole(path, b"", COUNTS_MODE, codec.EXPORTS_BYTES)


def _mend_counts(file: int, size_bytes: int) -> None:
    if size_bytes != codec.COUNTS_BYTES:
        os.ftruncate(file, codec.COUNTS_BYTES)
        os.posix_fallocate(file, 0, codec.COUNTS_BYTES)
    if os.pread(file, codec.COUNTS_HEAD.size, 0) != codec.counts_head()[: codec.COUNTS_HEAD.size]:
        # Any slot may be in use by now, so all of them count as touched.
        os.pwrite(file, codec.counts_head(slots_touched=MAX_SLOTS), 0)
