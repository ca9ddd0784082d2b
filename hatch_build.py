"""The part of a wheel that is for one machine: the files that C makes, their bill of materials, and the tag.

What always holds: the tag follows from the files themselves, so a wheel never claims another machine than theirs. zig
links them for glibc 2.17, which is manylinux_2_17; `make wheel-check` compares their symbols with that.
"""

import os
import runpy
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class NativeFiles(BuildHookInterface[Any]):
    """Packs what `make packed` made, from the folder PLIMSOLL_WHEEL_FILES, by default that of `make native`."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the files and the tag.

        Raises:
            SystemExit: a file is missing, or the files are for several machines or an unsupported one.
        """
        if version == "editable":
            return  # a source tree has its files in build/, which may be made later
        native = runpy.run_path(str(Path(self.root, "plimsoll/native/__init__.py")))
        folder = Path(self.root, os.environ.get("PLIMSOLL_WHEEL_FILES", "build"))
        missing = [str(folder / file) for file in native["FILES"] if not (folder / file).is_file()]
        if missing:
            raise SystemExit(
                f"{missing[0]} is missing; remedy: `make wheel`, or `make native` for this machine alone"
            )
        numbers = {_machine_number(folder / file) for file in native["FILES"]}
        machine = native["MACHINES"].get(numbers.pop())
        if numbers or machine is None:
            raise SystemExit(f"the files in {folder} are for several machines, or an unsupported one")
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-manylinux2014_{machine}.manylinux_2_17_{machine}"
        for file in native["FILES"]:
            build_data["force_include"][str(folder / file)] = f"plimsoll/native/built/{file}"
        bill = folder / "plimsoll.cdx.json"  # `make wheel` writes it, for exactly these files
        build_data["sbom_files"] += [str(bill)] if bill.is_file() else []


def _machine_number(path: Path) -> int:
    """The machine's number in an ELF header."""
    return int.from_bytes(path.read_bytes()[18:20], "little")
