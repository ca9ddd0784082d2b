"""The preload library and its programs, built with a sanitizer of gcc or clang: zig carries the runtime of neither.

What always holds: only what is compiled here is watched, so the emulator that stands behind it is not. Programs
reach the hooks by linking them, as such a build does not export `dlsym`. `tests/build.mk` has the rules.
`python -m tests.hook.lib.sanitized` builds all that this machine can, before the tests: a test only looks for the
files, because a build of minutes has no place under a test's time limit.
"""

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


BY_ZIG: Final = ("undefined", "thread")
"""The sanitizers whose runtime zig builds itself, for a program without the library."""


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
    """The library and its hammers with `sanitizer`, a key of RUNTIMES; skips the test where nothing can build it."""
    compiler, runtime = compiler_for(sanitizer)
    folder = _folder(compiler, sanitizer)
    return Build((runtime, _present(folder / "libplimsoll.so")), folder)


def built_books(sanitizer: str) -> Path:
    """The program of `test_books` with a sanitizer: of BY_ZIG, or `address`."""
    compiler = "zig" if sanitizer in BY_ZIG else compiler_for(sanitizer)[0]
    return _present(_folder(compiler, sanitizer) / "books")


def _folder(compiler: str, sanitizer: str) -> Path:
    return ROOT / f"build/sanitized/{compiler}-{sanitizer}"


def _present(path: Path) -> Path:
    assert path.exists(), f"{path} is missing; remedy: python -m {__spec__.name}, as `make test-all` does"
    return path


def _make(target: str, compiler: str, sanitizer: str) -> None:
    """Make a target of `tests/build.mk`; it compiles only what has changed."""
    # The flags of a `make test-all` around this run name its job server, whose descriptors Python does not have.
    environment = {
        name: value for name, value in os.environ.items() if name not in {"MAKEFLAGS", "MAKELEVEL"}
    }
    choices = (f"COMPILER={compiler}", f"SANITIZER={sanitizer}")
    command = ["make", "--no-print-directory", f"-j{os.cpu_count()}", *choices, target]
    subprocess.run(command, cwd=ROOT, env=environment, check=True)


def main() -> None:
    """Build all that the sanitizers of this machine can; name what is missing."""
    for sanitizer in BY_ZIG:
        _make("sanitized-books", "zig", sanitizer)
    for sanitizer in RUNTIMES:
        try:
            compiler, _ = compiler_for(sanitizer)
        except pytest.skip.Exception as missing:
            print(f"plimsoll: {missing}")
            continue
        _make("sanitized", compiler, sanitizer)
        if sanitizer not in BY_ZIG:
            _make("sanitized-books", compiler, sanitizer)


if __name__ == "__main__":
    main()
