"""The journal on disk: JSON lines, only appended to, or replaced as a whole.

What always holds: lines of an `append` that returned survive the broker's death at any instant. Such a death may tear
the last line; no subscriber saw that line, and it is cut off. The file is not synced line by line: it must survive
the broker, but a machine that loses power also loses every process that the journal names.

Everything here blocks, and belongs in the broker's only thread for files.
"""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from hook.broker.core.journal import JournalLine, decode_line
from hook.broker.files.writing import write_whole
from plimsoll.part.log import get_logger

NAME: Final = "journal"
MODE: Final = 0o600

_log: Final = get_logger()


class JournalFile:
    """A journal file. The first append opens it."""

    def __init__(self, root: Path) -> None:
        self._path = root / NAME
        self._file: int | None = None
        self.is_behind = False
        """An append failed, so the file lacks lines until it is replaced."""

    def read(self) -> list[JournalLine]:
        """Every readable line. A damaged line is logged and skipped; a torn last line is cut off."""
        try:
            content = self._path.read_bytes()
        except FileNotFoundError:
            return []
        *whole, rest = content.split(b"\n")
        if rest:
            _log.warning("journal_torn", cut_bytes=len(rest), reason="the last broker died while writing")
        return [line for number, raw in enumerate(whole, 1) if (line := _decoded(raw, number)) is not None]

    def append(self, lines: Sequence[JournalLine]) -> None:
        """Add lines in one write.

        Raises:
            OSError: some lines were not written; `is_behind` is True until the next `replace`.
        """
        self.is_behind = True
        file = self._opened()
        content = _encoded(lines)
        written = os.write(file, content)
        if written != len(content):
            raise OSError(f"{self._path}: {written} of {len(content)} bytes written; free some space")
        self.is_behind = False

    def replace(self, lines: Iterable[JournalLine]) -> None:
        """Replace the whole file atomically.

        Raises:
            OSError: the old file is still in place.
        """
        self.is_behind = True
        write_whole(self._path, _encoded(lines), MODE, is_durable=True)
        self.close()
        self.is_behind = False

    def close(self) -> None:
        """Close the file; the next `append` opens it again."""
        file, self._file = self._file, None
        if file is not None:
            os.close(file)

    def _opened(self) -> int:
        if self._file is None:
            self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, MODE)
        return self._file


def _encoded(lines: Iterable[JournalLine]) -> bytes:
    return b"".join(msgspec.json.encode(line) + b"\n" for line in lines)


def _decoded(raw: bytes, number: int) -> JournalLine | None:
    try:
        return decode_line(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        _log.error(
            "journal_damaged", line=number, value=raw[:120], problem=str(error), remedy="check the disk"
        )
        return None
