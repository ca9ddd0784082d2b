"""The functions that put work on the GPU or wait for it, and drivers and nodes to call them on."""

import re
from pathlib import Path

from tests.hook.lib.conftest import PROGRAMS, compile_c
from tests.hook.lib.program import EMULATOR, ROOT, Node


def hooks_of(kind: str) -> list[str]:
    """The functions that hooks.h gives this kind."""
    return re.findall(rf"\bX\((cu\w+), {kind}\)", (ROOT / "hook/lib/hooks.h").read_text("utf-8"))


def slow_node(root: Path) -> Node:
    """One GPU on which 64 KiB are copied in one and a half milliseconds."""
    node = Node(root, gpu_count=1, memory_mib=2048, context_mib=64)
    node.file.write_text(f"copy = 1Mi\n{node.file.read_text()}")
    return node


def newer_driver(folder: Path) -> dict[str, str]:
    """The environment that puts the driver with every function in place of the emulator's own."""
    return another_driver(folder, "newer_driver.c")


def another_driver(folder: Path, source: str) -> dict[str, str]:
    """The environment that puts the driver of `programs/{source}` in place of the emulator's, which it builds on."""
    emulated = (EMULATOR / "libcuda.so.1").read_bytes()
    (folder / "libemul.so.1").write_bytes(emulated.replace(b"libcuda.so.1\0", b"libemul.so.1\0"))
    options = ["-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-L", str(folder), "-l:libemul.so.1"]
    compile_c([PROGRAMS / source], folder / "libcuda.so.1", [*options, "-Wl,-rpath,$ORIGIN"])
    return {"LD_LIBRARY_PATH": f"{folder}:{EMULATOR}"}
