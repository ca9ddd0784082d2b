"""Images in which programs lose their environment or gain rights: Debian's sudo, and preloads of the image's own."""

import shutil
from pathlib import Path
from typing import Final

from plimsoll.native import PROGRAMS
from tests.node.containers import import_image
from tests.node.images import program_files, write_archive
from tests.node.node import Node
from tests.node.places import MULTIARCH
from tests.servers.debian import debian_file

SUDO: Final = "plimsoll.test/sudo:1"
OWN: Final = "plimsoll.test/own-preloads:1"
BARE: Final = "plimsoll.test/bare:1"
"""A static `/busybox`, and nothing else."""
OWN_LIBRARY: Final = f"/lib/{MULTIARCH}/libz.so.1"
"""The library that the image itself preloads: no program of the tests links it."""

_LIBRARIES: Final = (
    *("libaudit.so.1", "libselinux.so.1", "libcap-ng.so.0", "libpcre2-8.so.0", "libpam.so.0", "libz.so.1"),
    "security/pam_permit.so",
)
_TEXTS: Final = {
    "etc/passwd": "root:x:0:0::/:/bin/sh\nuser:x:1000:1000::/:/bin/sh\n",
    "etc/group": "root:x:0:\nuser:x:1000:\n",
    "etc/pam.d/sudo": "auth required pam_permit.so\naccount required pam_permit.so\nsession required pam_permit.so\n",
    "etc/sudoers": "Defaults !fqdn\nroot ALL=(ALL:ALL) ALL\nuser ALL=(ALL:ALL) NOPASSWD: ALL\n",
    "etc/ld.so.preload": f"# the image's own\n{OWN_LIBRARY}\n",
}


async def import_images(node: Node) -> None:
    """Write the images, and import them into a node's runtime."""
    folder = node.directory / "preloads"
    folder.mkdir(exist_ok=True)
    texts = {name: folder / name.replace("/", "-") for name in _TEXTS}
    for name, path in texts.items():
        path.write_text(_TEXTS[name])
    own = texts.pop("etc/ld.so.preload")
    files = program_files({"busy": PROGRAMS / "busy", "view": PROGRAMS / "view"})
    libraries = Path("/lib") / MULTIARCH
    files |= {f"lib/{MULTIARCH}/{name}": libraries / name for name in _LIBRARIES}
    sudo = debian_file("sudo", "usr/bin/sudo")
    plugins = ("libsudo_util.so.0", "sudoers.so")
    files |= {f"usr/libexec/sudo/{name}": sudo.parents[1] / "libexec" / "sudo" / name for name in plugins}
    modes = {"usr/bin/sudo": 0o4755} | dict.fromkeys(texts, 0o440)
    modes |= {"etc/passwd": 0o644, "etc/group": 0o644}
    await _import(node, SUDO, files | texts | {"usr/bin/sudo": sudo}, modes)
    await _import(node, OWN, files | {"etc/ld.so.preload": own}, {"etc/ld.so.preload": 0o644})
    busybox = Path(shutil.which("busybox") or "/bin/busybox")
    await _import(node, BARE, {"busybox": busybox}, {}, is_bare=True)


async def _import(
    node: Node, name: str, files: dict[str, Path], modes: dict[str, int], *, is_bare: bool = False
) -> None:
    archive = node.directory / "preloads" / "image.tar"
    write_archive(archive, name, files, ("view",), modes, is_bare=is_bare)
    await import_image(node.directory / "containerd", archive)
