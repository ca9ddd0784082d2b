"""Opens, reads and replaces files of the broker. Everything here blocks."""

import os
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from plimsoll.part.log import get_logger

T = TypeVar("T")

_log: Final = get_logger()


class opened:  # noqa: N801 - reads like `open`
    """A file descriptor for the length of a block."""

    def __init__(self, path: Path, flags: int) -> None:
        self._file = os.open(path, flags | os.O_CLOEXEC)

    def __enter__(self) -> int:
        return self._file

    def __exit__(self, *_: object) -> None:
        os.close(self._file)


def write_whole(
    path: Path, content: bytes, mode: int, size_bytes: int | None = None, *, is_durable: bool = False
) -> None:
    """Replace a file atomically: a reader sees either the whole new file or the old file, also after a kill.

    Args:
        path: the file; its directory exists.
        content: the first bytes of the file.
        mode: the permissions, whatever the umask.
        size_bytes: the file's size, filled up with zeros; None for the size of the content.
        is_durable: this holds after a crash of the machine too. Then the call waits for the disk, and so for
            whatever else the node writes at that moment. The pages of a container need it not: the processes that
            map them end with the machine, and the next layout mends a torn page.
    """
    draft = path.with_name(f".{path.name}.new")
    draft.unlink(missing_ok=True)
    file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    try:
        os.fchmod(file, mode)
        rest = memoryview(content)
        while rest:
            rest = rest[os.write(file, rest) :]
        if size_bytes is not None:
            # Not by truncation: a process that touches a hole on a full disk is killed by SIGBUS.
            os.posix_fallocate(file, 0, size_bytes)
        if is_durable:
            os.fsync(file)
    finally:
        os.close(file)
    draft.replace(path)


def read_json(path: Path, kind: type[T], damaged: str, remedy: str) -> T | None:
    """The content of a file that an earlier broker wrote; None where it is missing or damaged.

    Args:
        path: the file.
        kind: the type of its content.
        damaged: the log event for a file that cannot be read.
        remedy: for the log line.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        _log.warning(damaged, file=str(path), problem=str(error), remedy=remedy)
        return None
