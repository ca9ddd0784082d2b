"""The files that C makes: the preload library, the emulated driver, and the programs for it.

What always holds: no other module names these paths. So a source tree, an installed wheel and an image need no
setting for them. `make native` puts the files into `build/` of a source tree. A wheel has them in this package's own
folder, laid out as `build/` is.
"""

from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
"""The folder that holds our packages: a source tree, or a folder of installed packages."""

FROM_SOURCE: Final = (ROOT / "hook" / "lib" / "build.mk").is_file()
"""Whether this is a source tree. A wheel has no C sources."""

BUILD: Final = ROOT / "build" if FROM_SOURCE else Path(__file__).parent / "built"
HOOK_LIBRARY: Final = BUILD / "hook" / "libplimsoll.so"
"""The preload library."""

EMULATOR: Final = BUILD / "emulator"
"""The folder with the emulated `libcuda.so.1` and `libnvidia-ml.so.1`, and with `book`, which shows their book."""

PROGRAMS: Final = BUILD / "bin"
"""The folder with `busy`, an ordinary CUDA program."""

FILES: Final = (
    "hook/libplimsoll.so",
    "emulator/libcuda.so.1",
    "emulator/libnvidia-ml.so.1",
    "emulator/book",
    "bin/busy",
)
"""The files of an installation, under `BUILD`. `hatch_build.py` packs the same."""

MACHINES: Final = {62: "x86_64", 183: "aarch64"}
"""The machines that are supported, by the number in an ELF header, as `uname` calls them."""

REMEDY: Final = "run `make native`" if FROM_SOURCE else "install Plimsoll's wheel for this machine again"
"""The remedy where a file is missing or damaged."""
