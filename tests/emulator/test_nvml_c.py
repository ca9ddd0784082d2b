"""The library for C: a program against NVIDIA's nvml.h, and the file's exports and needs."""

import platform
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import pynvml
import pytest

from tests.emulator.nvml_program import LIBRARIES, MIB, NODE, Program, environment, tool
from tests.hook.lib.elf import read_library

LIBRARY = LIBRARIES / "libnvidia-ml.so.1"
HEADER = Path(sysconfig.get_path("purelib")) / "nvidia" / "nvml_dev" / "include" / "nvml.h"
TARGET = f"{platform.machine()}-linux-gnu.2.17"  # the Makefile's, so that zig has its libc already
SOURCE = Path(__file__).parent / "programs" / "nvml_caller.c"


@pytest.fixture(scope="module")
def caller(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The C program, compiled against the real header and linked to the emulator's library."""
    program = tmp_path_factory.mktemp("caller") / "nvml_caller"
    subprocess.run(
        [
            *(
                sys.executable,
                "-m",
                "ziglang",
                "cc",
                "-target",
                TARGET,
                "-std=c11",
                "-Wall",
                "-Wextra",
                "-Werror",
            ),
            *("-isystem", HEADER.parent, SOURCE, "-L", LIBRARIES, "-lnvidia-ml", "-o", program),
        ],
        check=True,
    )
    return program


def test_a_c_program_runs_unchanged(caller: Path, tmp_path: Path) -> None:
    """Sizes, required counts, NULLs, old structs and both waits are as nvml.h documents them."""
    node_file = tmp_path / "node"
    node_file.write_text(NODE)
    with Program(node_file) as worker:
        worker(f"cuda = Cuda(); cuda.open(0); cuda.allocate({MIB})")
        running = subprocess.Popen([caller], env=environment(node_file), stdout=subprocess.PIPE, text=True)
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
