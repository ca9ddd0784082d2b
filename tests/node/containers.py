"""containerd over runc, with its own root, state and socket, and NVIDIA's stub runtime as two runtime handlers."""

import asyncio
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from plimsoll_cli.demo.servers import ServerKind
from tests.node.network import POD_SUBNET
from tests.node.requirements import CNI_PLUGINS

SOCKET_NAME: Final = "containerd.sock"
NAMESPACE: Final = "k8s.io"
"""containerd's namespace of the images and containers of its CRI plugin."""
READY: Final = "containerd successfully booted"

_CONFIG: Final = """
version = 2
root = "{root}/root"
state = "{root}/state"
disabled_plugins = [{unused}]
[grpc]
  address = "{socket}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  restrict_oom_score_adj = true
  max_container_log_line_size = 16384
[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = "{cni_bin}"
  conf_dir = "{root}/cni"
[plugins."io.containerd.grpc.v1.cri".containerd]
  snapshotter = "{snapshotter}"
  default_runtime_name = "runc"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
"""

_UNUSED: Final = ("internal.v1.opt", "snapshotter.v1.aufs", "snapshotter.v1.btrfs", "snapshotter.v1.zfs")
"""Plugins that would write outside of the directory, or look for kernel modules."""

_RUNTIME: Final = """
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.{name}]
  runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.{name}.options]
  BinaryName = "{program}"
"""


def containerd_kind(root: Path, pause: str, runtimes: Mapping[str, Path]) -> ServerKind:
    """The container runtime as a server of the tests.

    Args:
        root: its directory; its path is short, as it holds sockets.
        pause: the image of sandboxes.
        runtimes: further runtime handlers, each with a program that takes runc's arguments.
    """
    (root / "cni").mkdir(parents=True, exist_ok=True)
    (root / "cni" / "10-pods.conflist").write_text(json.dumps(_pod_network(root)))
    text = _CONFIG.format(
        root=root,
        unused=", ".join(f'"io.containerd.{name}"' for name in _UNUSED),
        socket=root / SOCKET_NAME,
        pause=pause,
        cni_bin=CNI_PLUGINS,
        snapshotter=snapshotter(root),
    )
    for name, program in runtimes.items():
        text += _RUNTIME.format(name=name, program=program)
    (root / "containerd.toml").write_text(text)

    def arguments(_: int, __: Path) -> Sequence[str]:
        return (f"--config={root / 'containerd.toml'}",)

    program = Path(shutil.which("containerd") or "containerd")
    return ServerKind("containerd", "unix", READY, lambda: program, arguments)


def _pod_network(root: Path) -> dict[str, object]:
    """Pods on a bridge; the node's own addresses are all that they can reach."""
    bridge = {
        "type": "bridge",
        "bridge": "pods0",
        "isGateway": True,
        "ipMasq": False,
        "hairpinMode": True,
        "ipam": {
            "type": "host-local",
            "dataDir": str(root / "addresses"),
            "ranges": [[{"subnet": POD_SUBNET}]],
            "routes": [{"dst": "0.0.0.0/0"}],
        },
    }
    return {"cniVersion": "0.4.0", "name": "pods", "plugins": [bridge, {"type": "loopback"}]}


def snapshotter(root: Path) -> str:
    """`overlayfs` where the kernel mounts an overlay in `root`, else `native`, which copies every layer."""
    root.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=root) as name:
        folders = [Path(name) / part for part in ("lower", "upper", "work", "merged")]
        for folder in folders:
            folder.mkdir()
        lower, upper, work, merged = map(str, folders)
        options = f"lowerdir={lower},upperdir={upper},workdir={work}"
        mount = ["mount", "-t", "overlay", "overlay", "-o", options, merged]
        if subprocess.run(mount, check=False, capture_output=True).returncode != 0:
            return "native"
        subprocess.run(["umount", merged], check=True)
    return "overlayfs"


async def ctr(root: Path, *arguments: str) -> str:
    """Run `ctr` in the CRI plugin's namespace and return its standard output.

    Raises:
        AssertionError: it failed; the message has its errors.
    """
    process = await asyncio.create_subprocess_exec(
        *("ctr", f"--address={root / SOCKET_NAME}", f"--namespace={NAMESPACE}", *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=os.environ,
    )
    output, errors = await process.communicate()
    assert process.returncode == 0, f"ctr {' '.join(arguments)}: {errors.decode()}"
    return output.decode()


async def import_image(root: Path, archive: Path) -> None:
    """Import the images of an archive, as `docker save` and `buildah push` write them."""
    await ctr(root, "images", "import", "--no-unpack", str(archive))
