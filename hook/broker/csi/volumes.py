"""The mounts of inline volumes on this node. Everything here blocks, and belongs in the only thread for files.

What always holds: each step may be repeated, so a broker that died between two steps is no special case. The broker
sees each container's `counts` below its own root, as for any other pod. In the broker's mount namespace a tmpfs lies
there, and the same tmpfs appears in the pod's volume.

A pod's volume is bound from the *stage*, a read-only and private mount of the broker's root. A bind that is made
read-only afterwards would be read-only for the broker, but writable in the kubelet's mount namespace: a remount does
not propagate.
"""

import contextlib
import ctypes
import errno
import os
import shutil
from collections.abc import Collection, Iterable
from pathlib import Path, PurePosixPath
from typing import Final

from hook.broker.core.codec import COUNTS_BYTES, EXPORTS_BYTES
from hook.broker.core.ids import ContainerKey
from hook.broker.core.volume import (
    COUNTS_PART,
    LIMITS_PART,
    Mount,
    VolumeTarget,
    container_binds,
    counts_of,
    counts_options,
    counts_source,
    covering,
    inside,
    missing_binds,
    read_mounts,
    target_of,
)
from hook.broker.csi.image_preloads import ImagePreloads
from hook.broker.csi.library import VERSIONS_NAME, install
from plimsoll.ids import PodUid
from plimsoll.part.errors import InputError
from plimsoll.part.mounting import (
    LIBC,
    MNT_DETACH,
    MS_BIND,
    MS_NODEV,
    MS_NOEXEC,
    MS_NOSUID,
    MS_PRIVATE,
    MS_RDONLY,
    MS_REMOUNT,
    bind,
    mount,
)

UMOUNT_NOFOLLOW: Final = 8

_SAFE: Final = MS_NOSUID | MS_NODEV
_TABLE: Final = Path("/proc/self/mountinfo")

STAGE: Final = PurePosixPath("csi/stage")
_DIRECTORY_MODE: Final = 0o755
_TARGET_MODE: Final = 0o750
"""As the kubelet's own directories of volumes. The volume's root covers it."""


class InlineVolumes:
    """The volumes of this node's pods."""

    def __init__(self, root: Path, kubelet: Path) -> None:
        """Describe them; `open` must come first.

        Args:
            root: the broker's root directory.
            kubelet: the kubelet's root directory, at the same path as on the node.
        """
        self._root = root.resolve()
        self._kubelet = kubelet
        self._version = ""
        self._images = ImagePreloads(self._root)

    def open(self, library: Path) -> None:
        """Install the library, and make the stage.

        Raises:
            InputError: the library cannot be used, the kubelet's directory is missing, or this process may not mount.
            OSError: the disk is full or read-only.
        """
        if not self._kubelet.is_dir():
            remedy = (
                "give the kubelet's --root-dir, and mount it into the broker's container at the same path"
            )
            raise InputError("PLIMSOLL_BROKER_KUBELET_ROOT", str(self._kubelet), "is no directory", remedy)
        self._check_sharing()
        if os.statvfs(self._root).f_flag & os.ST_NOEXEC:
            problem = "is on a file system mounted with noexec, so no program could load the library"
            remedy = "remount it with exec, or set PLIMSOLL_BROKER_ROOT to another disk"
            raise InputError("PLIMSOLL_BROKER_ROOT", str(self._root), problem, remedy)
        self._version = install(library, self._root).name
        self.close()  # the stage of a broker that was killed
        for directory in (self._stage.parent, self._stage):
            directory.mkdir(exist_ok=True)
            directory.chmod(_DIRECTORY_MODE)
        for part in (LIMITS_PART, COUNTS_PART):
            (self._root / part).mkdir(exist_ok=True)
        try:
            stage_read_only(self._root, self._stage)
        except PermissionError as error:
            remedy = "run the broker as root, in a container with privileged: true"
            value = str(self._kubelet)
            raise InputError("PLIMSOLL_BROKER_KUBELET_ROOT", value, "needs mounts", remedy) from error
        self._images.open()

    def _check_sharing(self) -> None:
        """Refuse a directory whose mounts the kubelet would not see: pods would start without their pages.

        Raises:
            InputError: the mount is private to the broker's container.
        """
        place = covering(self._pods, mounts())
        if is_in_first_namespace() or (place is not None and place.is_shared):
            return
        problem = f"has no shared mount at {self._pods}, so the kubelet would not see a pod's volume"
        remedy = "mount that with mountPropagation: Bidirectional, or without a container make it rshared"
        raise InputError("PLIMSOLL_BROKER_KUBELET_ROOT", str(self._kubelet), problem, remedy)

    def close(self) -> None:
        """Take the stage away. Volumes stay as they are."""
        self._images.close()
        self._unmount_at(self._stage)

    def adopt(self, pods: Collection[PodUid]) -> None:
        """Find the `counts` of running pods again, before anything is laid out.

        A broker in a new container does not see the tmpfs below its root, and sees the same tmpfs in the volume.

        Args:
            pods: those that are registered. The mounts of other pods below the broker's root are removed.
        """
        table = mounts()
        own = counts_of(table, PurePosixPath(self._root / COUNTS_PART))
        for container, point in counts_of(table, self._pods).items():
            if container.pod in pods and container not in own:
                page = self._page(container)
                page.mkdir(_DIRECTORY_MODE, parents=True, exist_ok=True)
                bind(Path(point), page)
        for pod in {container.pod for container in own} - set(pods):
            self.release(pod)
            shutil.rmtree(self._counts(pod), ignore_errors=True)

    def target(self, path: str) -> VolumeTarget:
        """Read a target path.

        Raises:
            InputError: the path is no volume of a pod of this kubelet.
        """
        return target_of(path, PurePosixPath(self._kubelet))

    def is_published(self, target: VolumeTarget) -> bool:
        """Whether a volume is mounted as a whole: its limits are mounted last, over an empty directory."""
        with contextlib.suppress(FileNotFoundError):
            return any((_real(target) / LIMITS_PART).iterdir())
        return False

    def make_counts(self, containers: Iterable[ContainerKey]) -> None:
        """Mount a tmpfs for the `counts` of each container that has none; the layout of the pod then makes the file.

        Args:
            containers: all containers with GPUs of a registered pod. None of them runs yet.

        Raises:
            OSError: this process may not mount, or the disk is full.
        """
        for container in containers:
            page = self._page(container)
            if not page.is_mount():
                with contextlib.suppress(FileNotFoundError):
                    shutil.rmtree(page)  # the layout made it on the disk, before the volume was asked for
                page.mkdir(_DIRECTORY_MODE, parents=True)
                mount_tmpfs(counts_source(container), page, counts_options(COUNTS_BYTES, EXPORTS_BYTES))

    def publish(self, target: VolumeTarget, container: ContainerKey) -> None:
        """Mount the parts that a volume lacks.

        Args:
            target: the volume.
            container: the container whose volume it is. It is laid out, in the tmpfs of its `counts`.

        Raises:
            OSError: this process may not mount, or a source is gone.
        """
        path, stage = _real(target), PurePosixPath(self._stage)
        path.mkdir(_TARGET_MODE, parents=True, exist_ok=True)
        inner = PurePosixPath(LIMITS_PART, container.pod, container.container)
        self._images.watch(self._root / inner)
        tree, page = stage / VERSIONS_NAME / self._version, PurePosixPath(self._page(container))
        wanted = container_binds(PurePosixPath(path), tree, stage / inner, page)
        for missing in missing_binds(wanted, mounts(target.pod)):
            bind(Path(missing.source), Path(missing.target))

    def unpublish(self, target: VolumeTarget) -> bool:
        """Take a volume away; returns whether anything was mounted.

        Raises:
            OSError: this process may not unmount, or somebody put files beneath the volume.
        """
        path = _real(target)
        was_mounted = self._unmount_at(path, target.pod)
        with contextlib.suppress(FileNotFoundError):
            path.rmdir()
        self._remove_emptied(target.pod)
        return was_mounted

    def is_mounted(self, path: str) -> bool:
        """Whether anything is mounted at a path."""
        return any(mount.point == path for mount in mounts())

    def release(self, pod: PodUid) -> None:
        """Take each tmpfs of a removed pod from below the broker's root. A volume that still stands keeps it."""
        self._unmount_at(self._counts(pod), pod)
        self._images.forget()

    def _remove_emptied(self, pod: PodUid) -> None:
        """Remove the directories on which the volume stood while the pod was removed; those in use are not empty."""
        counts = self._counts(pod)
        with contextlib.suppress(OSError):
            for page in counts.iterdir():
                page.rmdir()
            counts.rmdir()

    def _unmount_at(self, directory: Path, naming: str = "") -> bool:
        points = inside(PurePosixPath(directory), mounts(naming))
        for point in points:
            unmount(Path(point))
        return bool(points)

    def _counts(self, pod: PodUid) -> Path:
        return self._root / COUNTS_PART / pod

    def _page(self, container: ContainerKey) -> Path:
        return self._counts(container.pod) / container.container

    @property
    def _pods(self) -> PurePosixPath:
        """The directory of all volumes, as the mount table names it."""
        return PurePosixPath(self._kubelet.resolve() / "pods")

    @property
    def _stage(self) -> Path:
        return self._root / STAGE


def _real(target: VolumeTarget) -> Path:
    """The path as the mount table names it: a part above the volume may be a link, such as `/var/lib/kubelet`."""
    path = Path(target.path)
    return path.parent.resolve() / path.name


def mounts(naming: str = "") -> tuple[Mount, ...]:
    """The mounts that this process sees.

    Args:
        naming: a text without spaces, such as a pod's uid; mounts whose lines lack it may be left out. A node full of
            pods has a thousand mounts, which take longer to read one by one than to pass over.
    """
    return read_mounts(_TABLE.read_text(errors="surrogateescape"), naming)


def is_in_first_namespace() -> bool:
    """Whether this process mounts where the machine's first process does; False if the first process is hidden."""
    try:
        return Path("/proc/self/ns/mnt").samefile("/proc/1/ns/mnt")
    except OSError:
        return False


def stage_read_only(source: Path, target: Path) -> None:
    """Bind a directory read-only, as a source of further binds.

    The mount is private. Otherwise mounts inside a pod's volume would appear inside the stage too.

    Raises:
        OSError: as in `bind`.
    """
    bind(source, target)
    mount("none", target, "", MS_PRIVATE)
    mount("none", target, "", MS_REMOUNT | MS_BIND | MS_RDONLY | _SAFE)


def mount_tmpfs(source: str, target: Path, options: str) -> None:
    """Mount an empty file system in memory, without programs or devices.

    Args:
        source: stands in the mount table.
        target: the directory on which it lies.
        options: as in `mount -o`.

    Raises:
        OSError: the directory is missing, or this process may not mount.
    """
    mount(source, target, "tmpfs", _SAFE | MS_NOEXEC, options)


def unmount(point: Path) -> None:
    """Take away the top mount of a directory, also while a program stands in it; ignore a directory without mounts.

    Raises:
        OSError: this process may not unmount.
    """
    if LIBC.umount2(os.fsencode(point), MNT_DETACH | UMOUNT_NOFOLLOW) == 0:
        return
    error = ctypes.get_errno()
    if error not in {errno.EINVAL, errno.ENOENT}:
        raise OSError(error, os.strerror(error), str(point))
