"""A part does not keep the memory that its imports have freed."""

import subprocess
import sys
from pathlib import Path

PROGRAM = Path(__file__).parent / "programs" / "freed.py"


def test_freed_memory_goes_back_to_the_kernel() -> None:
    """Nearly all of 64 MiB that were freed below a block in use are no longer resident."""
    found = subprocess.run([sys.executable, PROGRAM], capture_output=True, text=True, check=True)
    assert int(found.stdout) > 48
