"""The cost of another process, as a benchmark reports it."""

import mmap
import os
from pathlib import Path

from bench.measures.process_cost import mapped_mib, resident_mib


def test_a_mapped_file_is_told_from_the_rest_of_the_memory(tmp_path: Path) -> None:
    """The touched pages of a mapped file count under its name, and are part of the resident memory."""
    path = tmp_path / "cards.state"
    path.write_bytes(bytes(8 << 20))
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 8 << 20) as mapped:
        for page in range(0, 8 << 20, mmap.PAGESIZE):
            mapped[page] = 1
        found = mapped_mib(os.getpid(), "cards.state")
        assert 7.9 < found < 8.1
        assert resident_mib(os.getpid()) > found
    assert mapped_mib(os.getpid(), "cards.state") == 0
