"""Small images made of this machine's own programs, as archives that `ctr images import` takes.

No registry is needed. An image holds busybox, glibc's loader and libraries, and the programs of the tests.
"""

import hashlib
import io
import json
import os
import shutil
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.node.places import MULTIARCH

PAUSE: Final = "plimsoll.test/pause:1"
PROGRAM: Final = "plimsoll.test/program:1"

LOADER: Final = {"x86_64": "lib64/ld-linux-x86-64.so.2", "aarch64": "lib/ld-linux-aarch64.so.1"}[
    os.uname().machine
]
"""glibc's loader, by its path below the root."""
_LIBRARIES: Final = ("libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1")
_APPLETS: Final = ("sh", "sleep", "cat", "ls", "id", "env", "echo", "true", "dd", "touch", "grep", "mount")


def program_files(programs: Mapping[str, Path]) -> dict[str, Path]:
    """The files of an image with these programs in `/usr/bin`, by their paths in it."""
    libraries = Path("/lib") / MULTIARCH
    files = {"bin/busybox": Path(shutil.which("busybox") or "/bin/busybox"), LOADER: Path("/") / LOADER}
    files |= {f"lib/{MULTIARCH}/{name}": libraries / name for name in _LIBRARIES}
    return files | {f"usr/bin/{name}": path for name, path in programs.items()}


def write_archive(
    path: Path,
    name: str,
    files: Mapping[str, Path],
    command: tuple[str, ...],
    modes: Mapping[str, int] | None = None,
    *,
    is_bare: bool = False,
) -> None:
    """Write an archive of one image with one layer.

    Args:
        path: the archive.
        name: the image's name and tag.
        files: the contents, by their paths in the image.
        command: the program that runs by default.
        modes: the permissions of files that are no plain programs, by their paths in the image.
        is_bare: nothing but these files is in the image, not even directories, as after `FROM scratch`.
    """
    layer = _layer(files, modes or {}, is_bare=is_bare)
    digest = hashlib.sha256(layer).hexdigest()
    architecture = {"x86_64": "amd64", "aarch64": "arm64"}[os.uname().machine]
    config = json.dumps(
        {
            "architecture": architecture,
            "os": "linux",
            "config": {"Cmd": command, "Env": ["PATH=/usr/bin:/bin"]},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
        }
    ).encode()
    manifest = [{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]
    with tarfile.open(path, "w") as archive:
        for member, content in (
            ("layer.tar", layer),
            ("config.json", config),
            ("manifest.json", json.dumps(manifest).encode()),
        ):
            _add(archive, member, content)


def _layer(files: Mapping[str, Path], modes: Mapping[str, int], *, is_bare: bool) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as layer:
        for name in () if is_bare else ("tmp", "run", "proc", "sys", "dev", "etc"):
            folder = tarfile.TarInfo(name)
            folder.type, folder.mode = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755
            layer.addfile(folder)
        for name, path in files.items():
            _add(layer, name, path.resolve().read_bytes(), mode=modes.get(name, 0o755))
        for applet in () if is_bare else _APPLETS:
            link = tarfile.TarInfo(f"bin/{applet}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            layer.addfile(link)
    return buffer.getvalue()


def _add(archive: tarfile.TarFile, name: str, content: bytes, mode: int = 0o644) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mode = len(content), mode
    archive.addfile(member, io.BytesIO(content))
