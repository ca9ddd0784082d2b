"""The library for C: a program against NVIDIA's nvml.h, and the file's exports and needs."""

import re
import subprocess
import sysconfig
from pathlib import Path

import pynvml

from tests.emulator.nvml_program import LIBRARIES, MIB, NODE, Program, environment, tool
from tests.hook.lib.elf import read_library
from tests.hook.lib.program import compiled

LIBRARY = LIBRARIES / "libnvidia-ml.so.1"
HEADER = Path(sysconfig.get_path("purelib")) / "nvidia" / "nvml_dev" / "include" / "nvml.h"


def test_a_c_program_runs_unchanged(tmp_path: Path) -> None:
    """Sizes, required counts, NULLs, old structs and both waits are as nvml.h documents them."""
    node_file = tmp_path / "node"
    node_file.write_text(NODE)
    with Program(node_file) as worker:
        worker(f"cuda = Cuda(); cuda.open(0); cuda.allocate({MIB})")
        running = subprocess.Popen(
            [compiled("nvml_caller")], env=environment(node_file), stdout=subprocess.PIPE, text=True
        )
        assert running.stdout is not None
        first = running.stdout.readline()
        if first == "registered\n":
            tool(node_file, "xid", "0", "79")
            tool(node_file, "xid", "0", "13")
        rest, _ = running.communicate()
    assert (first + rest, running.returncode) == ("registered\n", 0)


def test_only_nvml_is_exported_and_nothing_past_glibc_2_17_is_needed() -> None:
    """Every exported symbol is in nvml.h, and every required version of glibc existed in 2.17.

    The locked header is older than r615, whose two functions are in NVIDIA's bindings.
    """
    library, header = read_library(LIBRARY), HEADER.read_text()
    assert len(library.defined) > 100
    newer = {name for name in library.defined if not re.search(rf"\b{name} *\(", header)}
    assert newer == {"nvmlDeviceGetMemoryLimits_v1", "nvmlDeviceSetMemoryLimits_v1"}
    assert all(hasattr(pynvml, name) for name in newer)
    assert library.newest_glibc <= (2, 17)
