"""The preload library and its programs, built with a sanitizer of gcc or clang: zig carries the runtime of neither.

What always holds: only what is compiled here is watched, so the emulator that stands behind it is not. Programs
reach the hooks by linking them, as such a build does not export `dlsym`. `tests/build.mk` has the rules. All tests
share one build, and a later run compiles only what has changed.
"""

import fcntl
import os
import platform
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from tests.hook.lib.program import ROOT

RUNTIMES: Final = {
    "address": ("libasan.so", "libclang_rt.asan"),
    "thread": ("libtsan.so", "libclang_rt.tsan"),
}
ENVIRONMENT: Final = {
    # The emulator's own memory is none of ours, and ptrace, which leak detection needs, is often forbidden.
    "ASAN_OPTIONS": "detect_leaks=0",
    "UBSAN_OPTIONS": "print_stacktrace=1",
    "TSAN_OPTIONS": "halt_on_error=1",
}


MAKE_S: Final = 590
"""On its first use zig builds ThreadSanitizer's runtime, minutes of work for a core."""


@dataclass(frozen=True, slots=True)
class Build:
    """The built files: `preload` in the order in which it must be loaded, and the folder of the programs."""

    preload: tuple[Path, ...]
    folder: Path


def compiler_for(sanitizer: str) -> tuple[str, Path]:
    """A compiler on this machine and its runtime of this sanitizer; skips the test, naming what is missing."""
    found = [name for name in ("gcc", "clang") if shutil.which(name)]
    for name in found:
        runtime = _runtime(name, sanitizer)
        if runtime is not None:
            return name, runtime
    pytest.skip(
        f"{RUNTIMES[sanitizer][0]} is missing: {' and '.join(found)} came without it"
        if found
        else f"the {sanitizer} sanitizer needs gcc or clang on this machine: zig brings no runtime for it"
    )


def _runtime(compiler: str, sanitizer: str) -> Path | None:
    gcc_name, clang_name = RUNTIMES[sanitizer]
    name = gcc_name if compiler == "gcc" else f"{clang_name}-{platform.machine()}.so"
    answer = subprocess.run(
        [compiler, f"-print-file-name={name}"], capture_output=True, text=True, check=True
    ).stdout.strip()
    return Path(answer) if Path(answer).is_absolute() else None


def built(sanitizer: str) -> Build:
    """The library, `hammer` and `gate_hammer` with `sanitizer`, a key of RUNTIMES."""
    compiler, runtime = compiler_for(sanitizer)
    folder = make("sanitized", compiler, sanitizer)
    return Build((runtime, folder / "libplimsoll.so"), folder)


def make(target: str, compiler: str, sanitizer: str) -> Path:
    """Make a target of `tests/build.mk`, and return its folder."""
    lock = ROOT / "build/sanitized.lock"
    # The flags of a `make test` around this run name its job server, whose descriptors pytest does not have.
    environment = {
        name: value for name, value in os.environ.items() if name not in {"MAKEFLAGS", "MAKELEVEL"}
    }
    choices = (f"COMPILER={compiler}", f"SANITIZER={sanitizer}")
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        subprocess.run(
            ["make", "--no-print-directory", f"-j{os.cpu_count()}", *choices, target],
            cwd=ROOT,
            env=environment,
            check=True,
            timeout=MAKE_S,
        )
    return ROOT / f"build/sanitized/{compiler}-{sanitizer}"
