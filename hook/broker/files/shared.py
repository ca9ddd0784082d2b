"""The directories, `limits` and `counts` of every container on the node's disk.

What always holds: `limits` is rewritten only under its generation, so no reader sees half a change. Whatever a tenant
does to its writable `counts` directory, the broker touches no other file and does not crash. So `counts` is opened
without following links, and read and written by `pread` and `pwrite`: with a mapping, a tenant that truncates the
file would kill the broker by SIGBUS.

Everything here blocks, and belongs in the broker's only thread for files.
"""

import contextlib
import errno
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from hook.broker.core import codec
from hook.broker.core.ids import ContainerKey, SlotMeasured, SlotUse
from hook.broker.core.registration import RECORD_NAME
from hook.broker.files.pages import (
    TENANTS_FILE,
    lay_out_counts,
    lay_out_cpus,
    lay_out_exports,
    lay_out_limits,
    lay_out_measured,
    lay_out_preloads,
    write_measured,
)
from hook.broker.files.writing import opened, write_whole
from plimsoll.broker.pages import (
    COUNTS_NAME,
    EXPORT_ORPHANED,
    EXPORTS_NAME,
    LIMITS_NAME,
    MAX_GPUS,
)
from plimsoll.broker.wire import ContainerLines, Directories
from plimsoll.ids import GpuUuid, PodUid

DIRECTORY_MODE: Final = 0o755
RECORD_MODE: Final = 0o600


class SharedFiles:
    """The files below a root directory, and the denials that dead processes had counted."""

    def __init__(self, root: Path, release: Callable[[PodUid], None] | None = None) -> None:
        """Describe them.

        Args:
            root: the broker's root directory.
            release: unmounts the `counts` of a pod that is removed; None where nothing is mounted.
        """
        self._root = root
        self._release = release
        self._denied_by_the_dead: dict[ContainerKey, int] = {}
        self._laid_out: set[ContainerKey] = set()

    def directories(self, container: ContainerKey) -> Directories:
        """A container's two directories."""
        return Directories(
            name=container.container,
            limits_dir=str(self.limits_dir(container)),
            counts_dir=str(self._counts_dir(container)),
        )

    def limits_dir(self, container: ContainerKey) -> Path:
        """The directory that is mounted read-only, with `limits` and the socket."""
        return self._root / "limits" / container.pod / container.container

    def counts_path(self, container: ContainerKey) -> Path:
        """The path of a container's `counts`."""
        return self._counts_dir(container) / COUNTS_NAME

    def save_record(self, pod: PodUid, content: bytes) -> None:
        """Write a pod's record, and its directory where missing.

        Raises:
            OSError: the disk is full or read-only, for example; an earlier record is still in place.
        """
        path = self._record_path(pod)
        for level in (path.parent.parent, path.parent):
            _make_directory(level)
        write_whole(path, content, RECORD_MODE, is_durable=True)

    def lay_out(
        self, container: ContainerKey, lines: ContainerLines, numbers: codec.Numbers, *, clear_counts: bool
    ) -> OSError | None:
        """Make missing files, mend damaged ones, and write the lines in place.

        Returns:
            the error of writing `counts`, if the container has filled its own file system. Its next programs then
            find no `counts`, and fail. None if everything is laid out.

        Raises:
            OSError: the disk is full or read-only, for example.
        """
        limits_dir, counts_dir = self.limits_dir(container), self._counts_dir(container)
        for directory in (limits_dir, counts_dir):
            for level in (directory.parent.parent, directory.parent, directory):
                _make_directory(level)
        lay_out_cpus(limits_dir, codec.cpus_page(lines))
        lay_out_preloads(limits_dir)
        if container not in self._laid_out:
            lay_out_measured(limits_dir)
            self._laid_out.add(container)
        lay_out_limits(limits_dir, lines, numbers)
        try:
            lay_out_counts(counts_dir, clear=clear_counts)
            lay_out_exports(counts_dir, clear=clear_counts)
        except OSError as error:
            if error.errno != errno.ENOSPC or not counts_dir.is_mount():
                raise
            return error
        return None

    def set_limits(
        self,
        container: ContainerKey,
        lines: ContainerLines,
        numbers: codec.Numbers,
        measured: Sequence[SlotMeasured] = (),
    ) -> None:
        """Write the `limits` and slots of `measured` of a container that was laid out, in place.

        At no moment is a slot's excess larger than its part of the excess in `limits`: a library takes it off when
        the slot's process is dead.

        Raises:
            OSError: its directory is gone, or the disk is full or read-only.
        """
        directory = self.limits_dir(container)
        new = [(codec.measured_offset(one.slot), codec.measured_slot(one)) for one in measured]
        if new:
            write_measured(directory, new, codec.lesser_measured)
        lay_out_limits(directory, lines, numbers)
        if new:
            write_measured(directory, new, lambda _, now: now)

    def granted(self, container: ContainerKey) -> dict[GpuUuid, int]:
        """The granted bytes on a container's page, by GPU; empty where there is no valid page."""
        try:
            return codec.granted_by(self.limits_dir(container).joinpath(LIMITS_NAME).read_bytes())
        except OSError:
            return {}

    def slots(self, container: ContainerKey, gpu_count: int = MAX_GPUS) -> tuple[SlotUse, ...]:
        """A container's claimed slots; empty if the file is gone or is not the broker's any more.

        Raises:
            OSError: the broker ran out of file descriptors.
        """
        counts = _read(self.counts_path(container), codec.SLOTS_END)
        return codec.claimed_slots(
            counts, gpu_count, _read(self._exports_path(container), codec.EXPORTS_BYTES)
        )

    def clear_slots(self, container: ContainerKey, owner: int) -> int:
        """Zero every slot of a dead owner; returns the bytes that its words held.

        The counts are zeroed before the owner word. Otherwise a new process could claim the slot and lose its counts.
        Memory that the owner exported is orphaned before that, so that it counts all the time.
        """
        with contextlib.suppress(FileNotFoundError):
            with opened(self.counts_path(container), os.O_RDWR | TENANTS_FILE) as file:
                slots = codec.claimed_slots(os.pread(file, codec.SLOTS_END, 0), MAX_GPUS)
                held = [slot for slot in slots if slot.owner == owner]
                self._end_crossings(container, owner, held)
                for slot in held:
                    os.pwrite(file, bytes(codec.USES_BYTES), codec.uses_offset(slot.slot))
                    # In the work the owner word is zeroed first: work under another owner word belongs to no process.
                    os.pwrite(file, bytes(codec.WORD.size), codec.work_offset(slot.slot))
                    os.pwrite(file, bytes(codec.WORK_BYTES), codec.work_offset(slot.slot))
                    os.pwrite(file, bytes(codec.WORD.size), codec.owner_offset(slot.slot))
            denied_before = self._denied_by_the_dead.get(container, 0)
            self._denied_by_the_dead[container] = denied_before + sum(slot.denied_count for slot in held)
            return sum(sum(slot.used_bytes) for slot in held)
        return 0

    def _end_crossings(self, container: ContainerKey, owner: int, slots: Sequence[SlotUse]) -> None:
        """Orphan the memory that a dead process exported, and end its imports."""
        with (
            _tenants_faults_ignored(),
            opened(self._exports_path(container), os.O_RDWR | TENANTS_FILE) as file,
        ):
            exports = os.pread(file, codec.EXPORTS_BYTES, 0)
            if len(exports) < codec.EXPORTS_BYTES:
                return
            for offset in codec.exports_of_dead(exports, owner):
                os.pwrite(file, codec.WORD_32.pack(EXPORT_ORPHANED), offset)
            for slot in slots:
                os.pwrite(file, bytes(codec.IMPORTS_BYTES), codec.imports_offset(slot.slot))

    def mark_vacating(self, container: ContainerKey, owner: int, *, is_vacating: bool) -> None:
        """Mark or unmark an owner's slots: after an exec, a new program of the owner takes no marked slot."""
        with opened(self.counts_path(container), os.O_RDWR | TENANTS_FILE) as file:
            for slot in codec.claimed_slots(os.pread(file, codec.SLOTS_END, 0), MAX_GPUS):
                if slot.owner == owner:
                    os.pwrite(file, codec.WORD.pack(is_vacating), codec.vacating_offset(slot.slot))

    def denied_by_the_dead(self, container: ContainerKey) -> int:
        """Denials that a container's dead processes had counted, since this broker's start."""
        return self._denied_by_the_dead.get(container, 0)

    def remove(self, pod: PodUid, containers: tuple[ContainerKey, ...]) -> None:
        """Remove a pod's directories, and its record last; missing files are ignored.

        If the broker is killed in between, the next broker finds the record of a pod that is leaving, and removes the
        rest.
        """
        if self._release is not None:
            self._release(pod)
        _remove_tree(self._root / "counts" / pod)
        for container in containers:
            _remove_tree(self.limits_dir(container))
        record = self._record_path(pod)
        record.unlink(missing_ok=True)
        _remove_tree(record.parent)
        for container in containers:
            self._denied_by_the_dead.pop(container, None)
            self._laid_out.discard(container)

    def _record_path(self, pod: PodUid) -> Path:
        return self._root / "limits" / pod / RECORD_NAME

    def _exports_path(self, container: ContainerKey) -> Path:
        return self._counts_dir(container) / EXPORTS_NAME

    def _counts_dir(self, container: ContainerKey) -> Path:
        return self._root / "counts" / container.pod / container.container


@contextlib.contextmanager
def _tenants_faults_ignored() -> Iterator[None]:
    """Ignore what a tenant may have done to a file; the next layout puts a new file there.

    Raises:
        OSError: the broker ran out of file descriptors.
    """
    try:
        yield
    except OSError as error:
        if error.errno in {errno.EMFILE, errno.ENFILE}:
            raise


def _read(path: Path, size_bytes: int) -> bytes:
    """A file in a directory of a tenant; empty if it is gone or is not the broker's any more."""
    with _tenants_faults_ignored(), opened(path, os.O_RDONLY | TENANTS_FILE) as file:
        return os.pread(file, size_bytes, 0)
    return b""


def _remove_tree(directory: Path) -> None:
    """Remove a directory, if it is there. A volume's own directory is emptied, and removed with the volume."""
    try:
        shutil.rmtree(directory)
    except FileNotFoundError:
        pass
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise


def _make_directory(path: Path) -> None:
    path.mkdir(exist_ok=True)
    path.chmod(DIRECTORY_MODE)
