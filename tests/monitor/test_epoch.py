"""The epoch file."""

from pathlib import Path

import pytest

from monitor.epoch import next_epoch, raise_epoch
from plimsoll.part.errors import InputError


def test_each_start_takes_the_next_epoch(tmp_path: Path) -> None:
    """Epochs begin at 1 and rise by one, also after the epoch was raised past the stream's."""
    assert [next_epoch(tmp_path / "new") for _ in range(3)] == [1, 2, 3]
    raise_epoch(tmp_path / "new", 40)
    assert next_epoch(tmp_path / "new") == 41


@pytest.mark.parametrize("text", ["", "abc", "-5", "9" * 5000, "\xff"])
def test_a_damaged_file_begins_again(tmp_path: Path, text: str) -> None:
    """A damaged epoch file does not stop the start, as the publisher finds the last epoch in the stream."""
    (tmp_path / "epoch").write_text(text)
    assert next_epoch(tmp_path) == 1


def test_a_directory_that_cannot_be_written_is_refused() -> None:
    """The message names the setting."""
    with pytest.raises(InputError, match="PLIMSOLL_STATE_DIR"):
        next_epoch(Path("/proc/none"))
