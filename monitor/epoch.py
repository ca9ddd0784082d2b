"""The node's epoch: an integer in a file, one more at each start of the monitor.

Readers drop a report that is not newer by (`epoch`, `seq`), so an epoch must never be used twice. What always holds:
the new number is on disk (written beside, synced, renamed) before it is used. After a lost or damaged file the epoch
begins at 1 again; the publisher then finds the last epoch in the stream, and `raise_epoch` passes it.
"""

import os
from pathlib import Path
from typing import Final

from plimsoll.part.causes import disk_remedy
from plimsoll.part.errors import InputError
from plimsoll.part.log import get_logger

FILE_NAME: Final = "epoch"
_LONGEST: Final = 15  # digits; JSON readers keep integers below 2⁵³ exact

log = get_logger()


def next_epoch(directory: Path) -> int:
    """Take the next epoch. Blocks on the disk.

    Raises:
        InputError: the directory cannot be written.
    """
    try:
        last = _last(directory / FILE_NAME)
    except OSError as error:
        raise _unusable(directory, error) from error
    return raise_epoch(directory, last + 1)


def raise_epoch(directory: Path, epoch: int) -> int:
    """Make `epoch` the last one used, and return it. Blocks on the disk.

    Raises:
        InputError: the directory cannot be written.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        _replace(directory / FILE_NAME, f"{epoch}\n")
    except OSError as error:
        raise _unusable(directory, error) from error
    return epoch


def _unusable(directory: Path, error: OSError) -> InputError:
    remedy = disk_remedy(error, "give a writable directory of this monitor's own")
    return InputError("PLIMSOLL_STATE_DIR", str(directory), f"cannot be used ({error})", remedy)


def _last(path: Path) -> int:
    try:
        text = path.read_text(errors="replace").strip()
    except FileNotFoundError:
        return 0
    if not (text.isascii() and text.isdecimal()) or len(text) > _LONGEST:
        log.error(
            "the epoch file is damaged; the last epoch is read from the stream", path=str(path), text=text
        )
        return 0
    return int(text)


def _replace(path: Path, text: str) -> None:
    beside = path.with_suffix(".new")
    with beside.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
    # The rename itself is in the directory.
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
