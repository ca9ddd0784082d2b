"""The preload library and a program, built with a sanitizer of gcc or clang: zig carries the runtime of neither.

What always holds: only what is compiled here is watched, so the emulator that stands behind it is not. The library's
`dlsym` and `dlvsym` stay hidden in such a build, since a sanitizer looks up its own functions through them
before it can bear instrumented code; programs reach the other hooks by linking them.
"""

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from tests.hook.lib.program import EMULATOR, ROOT

OPTIONS: Final = {
    "address": ("-fsanitize=address,undefined", "-fno-sanitize-recover=all"),
    # gcc's ThreadSanitizer does not know fences. The fence in broker/limits.c orders against another process,
    # not against a thread.
    "thread": ("-fsanitize=thread", "-Wno-tsan"),
}
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


@dataclass(frozen=True, slots=True)
class Build:
    """The built files: `preload` in the order in which it must be loaded."""

    preload: tuple[Path, ...]
    program: Path


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
    machine = subprocess.run(["uname", "-m"], capture_output=True, text=True, check=True).stdout.strip()
    name = gcc_name if compiler == "gcc" else f"{clang_name}-{machine}.so"
    told = subprocess.run(
        [compiler, f"-print-file-name={name}"], capture_output=True, text=True, check=True
    ).stdout.strip()
    return Path(told) if Path(told).is_absolute() else None


def build(sanitizer: str, sources: list[Path], folder: Path) -> Build:
    """Build library and program with `sanitizer`, a key of OPTIONS."""
    compiler, runtime = compiler_for(sanitizer)
    library, program, exports = folder / "libplimsoll.so", folder / "program", folder / "exports.map"
    exported = (ROOT / "build/hook/exports.map").read_text()
    assert "dlsym; dlvsym; " in exported
    exports.write_text(exported.replace("dlsym; dlvsym; ", ""))
    options = ["-std=c11", "-O1", "-g", "-fno-omit-frame-pointer", *OPTIONS[sanitizer]]
    if compiler == "clang":
        options.append("-shared-libsan")
    packages = next(ROOT.glob(".venv/lib/python3.*/site-packages/nvidia"))
    for package in ("nvml_dev", "cuda_runtime"):
        options += ["-isystem", str(packages / package / "include")]
    hook = ROOT / "hook/lib"
    as_library = [
        *(
            "-D_GNU_SOURCE",
            "-fPIC",
            "-fvisibility=hidden",
            "-shared",
            "-Wl,-soname,libplimsoll.so",
            "-Wl,-Bsymbolic",
        ),
        *(f"-Wl,--version-script,{exports}", f"-I{ROOT / 'build/hook'}", f"-I{hook}"),
    ]
    _run([compiler, *options, *as_library, *sorted(hook.rglob("*.c")), "-o", library])
    _run([compiler, *options, *sources, f"-L{EMULATOR}", "-l:libcuda.so.1", "-lpthread", "-o", program])
    return Build((runtime, library), program)


def _run(command: list[str | Path]) -> None:
    subprocess.run(command, check=True, timeout=300)
