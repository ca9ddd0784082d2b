"""The built library: the systems that load it, its exports, and the layout that it shares with Python."""

import re
import subprocess

import pytest

from tests.hook.lib.elf import Library, read_library
from tests.hook.lib.layout import offsets
from tests.hook.lib.program import LIBRARY, ROOT, compiled

_LOADER = "ld-linux-aarch64.so.1"


@pytest.fixture(name="built", scope="module", params=[LIBRARY.name, "other-machine.so"])
def _built(request: pytest.FixtureRequest) -> Library:
    """The library for this machine, and the one for the other that is supported (x86-64, aarch64)."""
    return read_library(LIBRARY.with_name(str(request.param)))


def test_it_loads_on_every_supported_glibc(built: Library) -> None:
    """No symbol is newer than glibc 2.17, as an older loader would silently ignore the whole preload."""
    assert built.newest_glibc <= (2, 17)


def test_it_exports_the_table_and_nothing_else(built: Library) -> None:
    """Every exported name is dlsym, dlvsym, or a name in the table of hooks."""
    table = set(re.findall(r"X\((\w+), [A-Z]+\)", (ROOT / "hook/lib/hooks.h").read_text()))
    assert built.defined == table
    assert {"dlsym", "dlvsym", "cuInit", "cuMemAlloc_v2", "cuMemAllocAsync_ptsz"} <= table


def test_it_needs_libc_alone(built: Library) -> None:
    """The preload loads no driver, and no library into programs that would not have it.

    On aarch64 the loader, which is in every process, has the stack's canary. A single function runs at the start of
    every program: it binds the program to its container's CPUs.
    """
    assert built.needed - {_LOADER} == {"libc.so.6"}
    assert built.constructors == 1


@pytest.mark.parametrize("machine", [LIBRARY.name, "other-machine.so"])
def test_an_overflow_ends_the_program(machine: str) -> None:
    """The stack has canaries, copies are checked, and no page is both writable and a table of functions."""
    library = read_library(LIBRARY.with_name(machine))
    assert "__stack_chk_fail" in library.bound
    assert not [name for name in library.bound if name.endswith(("_chk", "_2"))], "musl has none of these"
    assert b"\0__vsnprintf_chk\0" in LIBRARY.with_name(machine).read_bytes(), (
        "the library's own, which the compiler calls"
    )
    assert library.is_bound_at_load
    assert library.has_read_only_tables
    assert not library.has_executable_stack


def test_both_supported_machines_are_built() -> None:
    """By the ELF headers one library is for x86-64 and the other for aarch64."""
    machines = {
        int.from_bytes(LIBRARY.with_name(name).read_bytes()[18:20], "little")
        for name in (LIBRARY.name, "other-machine.so")
    }
    assert machines == {62, 183}


def test_c_and_python_lay_out_the_same_bytes() -> None:
    """Every field of every shared structure has the same offset and size in the header as in ctypes."""
    done = subprocess.run([compiled("offsets")], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == offsets()
