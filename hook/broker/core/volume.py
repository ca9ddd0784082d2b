"""The mounts of an inline volume: which of them exist, and which are missing.

A container's volume is a tree of mounts, made in this order:

| path in the volume | from | its container may |
| --- | --- | --- |
| `/` | one version's tree: `/lib` with the library, and the two directories below, empty | read |
| `/counts` | the container's tmpfs with its `counts` | write |
| `/limits` | the container's directory with `limits`, `gate`, `hook.sock` and `ld.so.preload` | read |

Each mount costs every start on the node: runc, containerd and the kubelet read the whole table many times for a pod.

A tenant writes only inside a tmpfs of its own, and can replace none of the directories that the broker opens.

The kernel's mount table is the only record of volumes. Each tmpfs carries its pod's uid and its container as its
source, so a broker that starts finds the `counts` of running pods. Pure.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

from hook.broker.core.ids import ContainerKey
from plimsoll.ids import ContainerName, PodUid
from plimsoll.part.errors import InputError

LIMITS_PART: Final = "limits"
COUNTS_PART: Final = "counts"
LIBRARY_PART: Final = "lib"
PARTS: Final = (LIMITS_PART, COUNTS_PART, LIBRARY_PART)
"""The directories in a volume. The limits are mounted last, so a volume with its limits is complete."""

UID_PATTERN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")
_SOURCE: Final = "plimsoll:"
_OCTAL: Final = re.compile(r"\\([0-7]{3})")

SPARE_BYTES: Final = 64 << 10
"""The room in a tmpfs beside `counts`: programs may write files there, up to this."""
INODES: Final = 32
"""The files in a tmpfs: `counts`, its draft, and some of programs."""


@dataclass(frozen=True, slots=True)
class Mount:
    """A mount of this process's mount namespace.

    Attributes:
        point: the directory on which it lies.
        source: the source as the mounting program named it.
        kind: the file system's type.
        is_shared: mounts on it appear in other mount namespaces too.
    """

    point: str
    source: str
    kind: str
    is_shared: bool = False


@dataclass(frozen=True, slots=True)
class Bind:
    """A directory that is to appear at another path."""

    source: PurePosixPath
    target: PurePosixPath


@dataclass(frozen=True, slots=True)
class VolumeTarget:
    """The directory in which the kubelet wants a pod's volume."""

    path: PurePosixPath
    pod: PodUid


def read_mounts(table: str, naming: str = "") -> tuple[Mount, ...]:
    """The mounts of `/proc/self/mountinfo`, in the order in which they were made.

    Args:
        table: the file's text.
        naming: lines without this text are left out.
    """
    lines = (line for line in table.splitlines() if naming in line)
    return tuple(mount for line in lines if (mount := _mount(line)) is not None)


def target_of(path: str, kubelet: PurePosixPath) -> VolumeTarget:
    """Read the target path of a volume; the path names the pod, and no tenant can change that name.

    Args:
        path: the path as the kubelet gives it.
        kubelet: the kubelet's root directory.

    Raises:
        InputError: the path is no volume of a pod of this kubelet.
    """
    pods = kubelet / "pods"
    target = PurePosixPath(path)
    inner = target.parts[len(pods.parts) :]
    shape = ("volumes", "kubernetes.io~csi")
    is_inside = target.parts[: len(pods.parts)] == pods.parts and ".." not in target.parts
    if not is_inside or len(inner) != 5 or inner[1:3] != shape or inner[4] != "mount":
        problem = f"is not {pods}/<uid>/volumes/kubernetes.io~csi/<name>/mount"
        remedy = "set PLIMSOLL_BROKER_KUBELET_ROOT to the kubelet's --root-dir"
        raise InputError("target_path", path, problem, remedy)
    if not UID_PATTERN.fullmatch(inner[0]):
        raise InputError("target_path", path, "names no pod's uid", "use the kubelet's own path")
    return VolumeTarget(target, PodUid(inner[0]))


def container_binds(
    target: PurePosixPath, tree: PurePosixPath, limits: PurePosixPath, page: PurePosixPath
) -> tuple[Bind, ...]:
    """The binds of a container's volume, in the order in which they must be made.

    Args:
        target: the volume's directory.
        tree: the tree of a version of the library, read-only.
        limits: the container's directory with `limits`, read-only.
        page: the container's tmpfs with its `counts`.
    """
    return Bind(tree, target), Bind(page, target / COUNTS_PART), Bind(limits, target / LIMITS_PART)


def missing_binds(wanted: Iterable[Bind], mounts: Iterable[Mount]) -> tuple[Bind, ...]:
    """The binds that a volume lacks, in the order in which they must be made; empty for a complete volume."""
    present = {mount.point for mount in mounts}
    return tuple(bind for bind in wanted if str(bind.target) not in present)


def inside(directory: PurePosixPath, mounts: Sequence[Mount]) -> tuple[str, ...]:
    """The mount points at and below a directory, each as often as it is mounted, the last one made first."""
    place = str(directory)
    return tuple(
        mount.point
        for mount in reversed(mounts)
        if mount.point == place or mount.point.startswith(f"{place}/")
    )


def covering(directory: PurePosixPath, mounts: Iterable[Mount]) -> Mount | None:
    """The mount on which a directory lies; None in a table without it."""
    above = {str(directory), *map(str, directory.parents)}
    found = [mount for mount in mounts if mount.point in above]
    return max(reversed(found), key=lambda mount: len(mount.point), default=None)


def counts_source(container: ContainerKey) -> str:
    """The source that a container's tmpfs carries in the mount table."""
    return f"{_SOURCE}{container.pod}/{container.container}"


def counts_of(mounts: Iterable[Mount], below: PurePosixPath) -> dict[ContainerKey, str]:
    """The mount points of containers' `counts` below a directory, one for each container."""
    found: dict[ContainerKey, str] = {}
    for mount in mounts:
        if mount.kind == "tmpfs" and mount.source.startswith(_SOURCE) and mount.point.startswith(f"{below}/"):
            pod, _, container = mount.source.removeprefix(_SOURCE).partition("/")
            found[ContainerKey(PodUid(pod), ContainerName(container))] = mount.point
    return found


def counts_options(*file_bytes: int) -> str:
    """The options of a tmpfs that holds files of these sizes."""
    size_bytes = sum(map(_whole_pages, file_bytes)) + SPARE_BYTES
    return f"mode=0755,size={size_bytes},nr_inodes={INODES}"


def _whole_pages(size_bytes: int) -> int:
    """Rounded up to 64 KiB, the largest page of any supported machine."""
    return -(-size_bytes >> 16) << 16


def _mount(line: str) -> Mount | None:
    before, _, after = line.partition(" - ")
    head, tail = before.split(" "), after.split(" ")
    if len(head) < 5 or len(tail) < 2:
        return None
    is_shared = any(field.startswith("shared:") for field in head[6:])
    return Mount(point=_plain(head[4]), source=_plain(tail[1]), kind=tail[0], is_shared=is_shared)


def _plain(text: str) -> str:
    return _OCTAL.sub(lambda found: chr(int(found[1], 8)), text)
