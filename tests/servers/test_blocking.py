"""The check for blocking calls catches a part that blocks, and nothing else."""

import asyncio
import os
from pathlib import Path

import pytest
from blockbuster import BlockingError

from plimsoll.part.child import Program, start
from plimsoll_cli.demo import servers as embedded


async def test_part_that_blocks_the_loop_fails(tmp_path: Path) -> None:
    """A file system call made by a part on the event loop raises; on a thread it passes."""
    program = tmp_path / "program"
    program.touch(mode=0o755)
    with pytest.raises(BlockingError, match=r"os\.access"):
        embedded._installed("package", program, "program")
    assert await asyncio.to_thread(embedded._installed, "package", program, "program") == program


async def test_part_may_read_what_the_kernel_keeps_in_memory(tmp_path: Path) -> None:
    """Reading /proc passes on the event loop; reading a disk file by the same code raises."""
    child = await start(Program(("true",), {"PATH": os.defpath}, output=tmp_path / "output"))
    with pytest.raises(BlockingError, match="read"):
        child._read(None)
    child._output = Path("/proc/self/stat")
    assert "python" in child._read(None)
    assert await child.wait() == 0


async def test_test_itself_may_block(tmp_path: Path) -> None:
    """A test that reads and writes its own files needs no thread for it."""
    (tmp_path / "file").write_text("text")
    assert (tmp_path / "file").read_text() == "text"
