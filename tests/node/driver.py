"""The emulated driver of a test node: its files on the host, and the stub runtimes that bring it into containers."""

import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from plimsoll.ids import NodeName
from plimsoll.native import EMULATOR
from plimsoll_cli.demo.cluster import gpu_uuid
from tests.node import nvidia_runtime
from tests.node.places import MULTIARCH, NODE

GPUS: Final = 2
TOTAL_GIB: Final = 24
RESERVED_GIB: Final = 1
UUIDS: Final = tuple(gpu_uuid(NodeName(NODE), index) for index in range(GPUS))
CONTAINER_LIBRARIES: Final = f"/usr/lib/{MULTIARCH}"


@dataclass(frozen=True, slots=True)
class Driver:
    """An installed emulated driver.

    Attributes:
        directory: the directory of its files.
        runtimes: a program in place of runc for each runtime handler: `nvidia` and `nvidia-cdi`.
    """

    directory: Path
    runtimes: Mapping[str, Path]

    @property
    def environment(self) -> dict[str, str]:
        """The variables by which a process of the node, outside of containers, finds the driver with all its GPUs."""
        return {
            "PLIMSOLL_EMULATOR": str(self.directory / "node" / "node.conf"),
            "LD_LIBRARY_PATH": str(self.directory / "lib"),
        }

    def book(self) -> dict[str, Any]:
        """The emulator's book of every GPU now; see `emulator/README.md`."""
        program = EMULATOR / "book"
        output = subprocess.run(
            [program], env={**os.environ, **self.environment}, check=True, capture_output=True
        )
        found: dict[str, Any] = json.loads(output.stdout)
        return found


def install(directory: Path) -> Driver:
    """Put the driver's files, a CDI specification and the stub runtimes into a directory."""
    (directory / "lib").mkdir(parents=True)
    (directory / "node").mkdir()
    for name in ("libcuda.so.1", "libnvidia-ml.so.1"):
        shutil.copy(EMULATOR / name, directory / "lib" / name)
    lines = ["driver = 570.124.06", "cuda = 12.8"]
    for index, uuid in enumerate(UUIDS):
        lines += [
            f"[gpu {index}]",
            "model = NVIDIA L4",
            f"memory = {TOTAL_GIB}Gi",
            f"reserved = {RESERVED_GIB}Gi",
        ]
        lines.append(f"uuid = {uuid}")
    (directory / "node" / "node.conf").write_text("\n".join(lines) + "\n")
    specification = nvidia_runtime.cdi_specification(directory, CONTAINER_LIBRARIES, list(UUIDS))
    (directory / "cdi.json").write_text(json.dumps(specification))
    driver = Driver(directory, {name: _runtime(directory, name) for name in ("nvidia", "nvidia-cdi")})
    driver.book()  # the first reader makes the book, which containers of any user then open
    return driver


def _runtime(directory: Path, name: str) -> Path:
    program, file = directory / name, directory / f"{name}.py"
    runc = shutil.which("runc")
    shutil.copy(nvidia_runtime.__file__, file)
    program.write_text(nvidia_runtime.PROGRAM.format(python=sys.executable, file=file, runc=runc))
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    configuration = {
        "runc": runc,
        "cdi": str(directory / "cdi.json"),
        "directory": str(directory),
        "libraries": CONTAINER_LIBRARIES,
        "uuids": UUIDS,
    }
    file.with_suffix(".json").write_text(json.dumps(configuration))
    return program
