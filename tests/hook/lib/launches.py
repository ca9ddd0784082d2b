"""The functions that put work on the GPU or wait for it, and drivers and nodes to call them on."""

import re
import shutil
from pathlib import Path

from tests.hook.lib.program import EMULATOR, ROOT, Node, compiled


def hooks_of(kind: str) -> list[str]:
    """The functions that hooks.h gives this kind."""
    return re.findall(rf"\bX\((cu\w+), {kind}\)", (ROOT / "hook/lib/hooks.h").read_text("utf-8"))


def slow_node(root: Path) -> Node:
    """One GPU on which 64 KiB are copied in one and a half milliseconds."""
    node = Node(root, gpu_count=1, memory_mib=2048, context_mib=64)
    node.file.write_text(f"copy = 1Mi\n{node.file.read_text()}")
    return node


def another_driver(folder: Path, name: str) -> dict[str, str]:
    """The environment that puts the driver of `programs/drivers/{name}.c` in place of the emulator's.

    The driver builds on the emulator's, of which `folder` gets a copy of its own, `libemul.so.1`.
    """
    shutil.copyfile(compiled("drivers/libemul.so.1"), folder / "libemul.so.1")
    shutil.copyfile(compiled(f"drivers/{name}.so"), folder / "libcuda.so.1")
    return {"LD_LIBRARY_PATH": f"{folder}:{EMULATOR}"}
