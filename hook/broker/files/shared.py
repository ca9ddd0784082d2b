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
import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from hook.broker.core.codec import (
    BODY_OFFSET,
    COUNTS_BYTES,
    COUNTS_HEAD,
    EXPORTS_BYTES,
    GENERATION_OFFSET,
    IMPORTS_BYTES,
    LIMITS_BYTES,
    MEASURED_BYTES,
    SLOTS_END,
    USES_BYTES,
    WORD,
    WORD_32,
    WORK_BYTES,
    Numbers,
    claimed_slots,
    counts_head,
    cpus_page,
    exports_of_dead,
    granted_by,
    imports_offset,
    lesser_measured,
    limits_body,
    measured_offset,
    measured_slot,
    new_limits,
    owner_offset,
    uses_offset,
    vacating_offset,
    work_offset,
)
from hook.broker.core.ids import ContainerKey, SlotMeasured, SlotUse
from hook.broker.core.registration.checks import RECORD_NAME
from plimsoll.broker.pages import (
    COUNTS_NAME,
    CPUS_NAME,
    EXPORT_ORPHANED,
    EXPORTS_NAME,
    LIMITS_NAME,
    MAX_GPUS,
    MAX_SLOTS,
    MEASURED_NAME,
    PRELOADS_NAME,
)
from plimsoll.broker.volume import CONTAINER_LIBRARY
from plimsoll.broker.wire import ContainerLines, Directories
from plimsoll.ids import GpuUuid, PodUid

DIRECTORY_MODE: Final = 0o755
LIMITS_MODE: Final = 0o644
RECORD_MODE: Final = 0o600
COUNTS_MODE: Final = 0o666
"""A process of any user inside the container may use it."""

_TENANTS_FILE: Final = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
"""Flags for `counts`: a tenant may put a link or a pipe in its place."""


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
        write_whole(path, content, RECORD_MODE)

    def lay_out(
        self, container: ContainerKey, lines: ContainerLines, numbers: Numbers, *, clear_counts: bool
    ) -> OSError | None:
        """Make missing files, mend damaged ones, and write the lines in place.

        Returns:
            the error of `counts` where its container has filled a file system of its own. The container's next
            programs find no `counts`, and fail. None if everything is laid out.

        Raises:
            OSError: the disk is full or read-only, for example.
        """
        limits_dir, counts_dir = self.limits_dir(container), self._counts_dir(container)
        for directory in (limits_dir, counts_dir):
            for level in (directory.parent.parent, directory.parent, directory):
                _make_directory(level)
        _lay_out_cpus(limits_dir, cpus_page(lines))
        _lay_out_preloads(limits_dir)
        if container not in self._laid_out:
            _lay_out_measured(limits_dir)
            self._laid_out.add(container)
        _lay_out_limits(limits_dir, lines, numbers)
        try:
            _lay_out_counts(counts_dir, clear=clear_counts)
            _lay_out_exports(counts_dir, clear=clear_counts)
        except OSError as error:
            if error.errno != errno.ENOSPC or not counts_dir.is_mount():
                raise
            return error
        return None

    def set_limits(
        self,
        container: ContainerKey,
        lines: ContainerLines,
        numbers: Numbers,
        measured: Sequence[SlotMeasured] = (),
    ) -> None:
        """Write the `limits` and slots of `measured` of a container that was laid out, in place.

        At no moment is a slot's excess larger than its part of the excess in `limits`: a library takes it off when
        the slot's process is dead.

        Raises:
            OSError: its directory is gone, or the disk is full or read-only.
        """
        directory = self.limits_dir(container)
        new = [(measured_offset(one.slot), measured_slot(one)) for one in measured]
        if new:
            _write_measured(directory, new, lesser_measured)
        _lay_out_limits(directory, lines, numbers)
        if new:
            _write_measured(directory, new, lambda _, now: now)

    def granted(self, container: ContainerKey) -> dict[GpuUuid, int]:
        """The granted bytes on a container's page, by GPU; empty where there is no valid page."""
        try:
            return granted_by(self.limits_dir(container).joinpath(LIMITS_NAME).read_bytes())
        except OSError:
            return {}

    def slots(self, container: ContainerKey, gpu_count: int = MAX_GPUS) -> tuple[SlotUse, ...]:
        """A container's claimed slots; empty if the file is gone or is not the broker's any more.

        Raises:
            OSError: the broker ran out of file descriptors.
        """
        try:
            with _opened(self.counts_path(container), os.O_RDONLY | _TENANTS_FILE) as file:
                counts = os.pread(file, SLOTS_END, 0)
            return claimed_slots(counts, gpu_count, self._read_exports(container))
        except OSError as error:
            if error.errno in {errno.EMFILE, errno.ENFILE}:
                raise
            return ()  # The tenant caused this. The next layout puts a new file there.

    def clear_slots(self, container: ContainerKey, owner: int) -> int:
        """Zero every slot of a dead owner; returns the bytes that its words held.

        The counts are zeroed before the owner word. Otherwise a new process could claim the slot and lose its counts.
        Memory that the owner exported is orphaned before that, so that it counts all the time.
        """
        with contextlib.suppress(FileNotFoundError):
            with _opened(self.counts_path(container), os.O_RDWR | _TENANTS_FILE) as file:
                slots = claimed_slots(os.pread(file, SLOTS_END, 0), MAX_GPUS)
                held = [slot for slot in slots if slot.owner == owner]
                self._end_crossings(container, owner, held)
                for slot in held:
                    os.pwrite(file, bytes(USES_BYTES), uses_offset(slot.slot))
                    # In the work the owner word is zeroed first: work under another owner word belongs to no process.
                    os.pwrite(file, bytes(WORD.size), work_offset(slot.slot))
                    os.pwrite(file, bytes(WORK_BYTES), work_offset(slot.slot))
                    os.pwrite(file, bytes(WORD.size), owner_offset(slot.slot))
            denied_before = self._denied_by_the_dead.get(container, 0)
            self._denied_by_the_dead[container] = denied_before + sum(slot.denied_count for slot in held)
            return sum(sum(slot.used_bytes) for slot in held)
        return 0

    def _read_exports(self, container: ContainerKey) -> bytes:
        """The whole `exports` file; empty if it is gone or is not the broker's any more."""
        try:
            with _opened(self._counts_dir(container) / EXPORTS_NAME, os.O_RDONLY | _TENANTS_FILE) as file:
                return os.pread(file, EXPORTS_BYTES, 0)
        except OSError as error:
            if error.errno in {errno.EMFILE, errno.ENFILE}:
                raise
            return b""

    def _end_crossings(self, container: ContainerKey, owner: int, slots: Sequence[SlotUse]) -> None:
        """Orphan the memory that a dead process exported, and end its imports."""
        path = self._counts_dir(container) / EXPORTS_NAME
        try:
            with _opened(path, os.O_RDWR | _TENANTS_FILE) as file:
                exports = os.pread(file, EXPORTS_BYTES, 0)
                if len(exports) < EXPORTS_BYTES:
                    return
                for offset in exports_of_dead(exports, owner):
                    os.pwrite(file, WORD_32.pack(EXPORT_ORPHANED), offset)
                for slot in slots:
                    os.pwrite(file, bytes(IMPORTS_BYTES), imports_offset(slot.slot))
        except OSError as error:
            if error.errno in {errno.EMFILE, errno.ENFILE}:
                raise

    def mark_vacating(self, container: ContainerKey, owner: int, *, is_vacating: bool) -> None:
        """Mark or unmark an owner's slots: after an exec, a new program of the owner takes no marked slot."""
        with _opened(self.counts_path(container), os.O_RDWR | _TENANTS_FILE) as file:
            for slot in claimed_slots(os.pread(file, SLOTS_END, 0), MAX_GPUS):
                if slot.owner == owner:
                    os.pwrite(file, WORD.pack(is_vacating), vacating_offset(slot.slot))

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

    def _counts_dir(self, container: ContainerKey) -> Path:
        return self._root / "counts" / container.pod / container.container


def _remove_tree(directory: Path) -> None:
    """Remove a directory, if it is there. A volume's own directory is emptied, and removed with the volume."""
    try:
        shutil.rmtree(directory)
    except FileNotFoundError:
        pass
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise


class _opened:  # noqa: N801 - reads like `open`
    """A file descriptor for the length of a block."""

    def __init__(self, path: Path, flags: int) -> None:
        self._file = os.open(path, flags | os.O_CLOEXEC)

    def __enter__(self) -> int:
        return self._file

    def __exit__(self, *_: object) -> None:
        os.close(self._file)


def write_whole(path: Path, content: bytes, mode: int, size_bytes: int | None = None) -> None:
    """Replace a file atomically: a reader sees either the whole new file or the old file.

    Args:
        path: the file; its directory exists.
        content: the first bytes of the file.
        mode: the permissions, whatever the umask.
        size_bytes: the file's size, filled up with zeros; None for the size of the content.
    """
    draft = path.with_name(f".{path.name}.new")
    draft.unlink(missing_ok=True)
    file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    try:
        os.fchmod(file, mode)
        rest = memoryview(content)
        while rest:
            rest = rest[os.write(file, rest) :]
        if size_bytes is not None:
            # Not by truncation: a process that touches a hole on a full disk is killed by SIGBUS.
            os.posix_fallocate(file, 0, size_bytes)
        os.fsync(file)
    finally:
        os.close(file)
    draft.replace(path)


def _make_directory(path: Path) -> None:
    path.mkdir(exist_ok=True)
    path.chmod(DIRECTORY_MODE)


def _lay_out_limits(directory: Path, lines: ContainerLines, numbers: Numbers) -> None:
    path, new = directory / LIMITS_NAME, new_limits(lines, numbers)
    if not path.exists():
        write_whole(path, new, LIMITS_MODE)
        return
    with _opened(path, os.O_RDWR) as file:
        old = os.pread(file, LIMITS_BYTES + 1, 0)
        if len(old) == LIMITS_BYTES and old[:GENERATION_OFFSET] == new[:GENERATION_OFFSET]:
            _rewrite_limits(file, old, limits_body(lines, numbers))
            return
    write_whole(path, new, LIMITS_MODE)


def _lay_out_measured(directory: Path) -> None:
    """An empty `measured`. The new `limits` of a broker that has just started has no excess either."""
    path = directory / MEASURED_NAME
    if path.exists() and path.stat().st_size == MEASURED_BYTES:
        with _opened(path, os.O_RDWR) as file:  # in place: processes have it mapped
            os.pwrite(file, bytes(MEASURED_BYTES), 0)
    else:
        write_whole(path, b"", LIMITS_MODE, MEASURED_BYTES)


def _write_measured(
    directory: Path, slots: Sequence[tuple[int, bytes]], choose: Callable[[bytes, bytes], bytes]
) -> None:
    with _opened(directory / MEASURED_NAME, os.O_RDWR) as file:
        for offset, now in slots:
            os.pwrite(file, choose(os.pread(file, len(now), offset), now), offset)


def _lay_out_cpus(directory: Path, page: bytes | None) -> None:
    path = directory / CPUS_NAME
    if page is None:
        path.unlink(missing_ok=True)
    elif not path.exists() or path.read_bytes() != page:
        write_whole(path, page, LIMITS_MODE)


def _lay_out_preloads(directory: Path) -> None:
    """Name the library, in the file itself: running containers have it mounted."""
    path, line = directory / PRELOADS_NAME, f"{CONTAINER_LIBRARY}\n".encode()
    if not path.exists() or not path.read_bytes().startswith(line):
        path.write_bytes(line)
        path.chmod(LIMITS_MODE)


def _rewrite_limits(file: int, old: bytes, body: bytes) -> None:
    """Change the bytes after the generation, which is odd meanwhile.

    Each step is its own `pwrite`: the kernel takes and releases the file's lock in between, so no processor shows a
    reader these stores in another order.
    """
    (generation,) = WORD.unpack_from(old, GENERATION_OFFSET)
    is_torn = generation % 2 == 1  # A broker was killed in this function.
    if old[BODY_OFFSET:] == body and not is_torn:
        return
    odd = generation | 1
    os.pwrite(file, WORD.pack(odd), GENERATION_OFFSET)
    os.pwrite(file, body, BODY_OFFSET)
    os.pwrite(file, WORD.pack(odd + 1), GENERATION_OFFSET)


def _lay_out_counts(directory: Path, *, clear: bool) -> None:
    path = directory / COUNTS_NAME
    try:
        with _opened(path, os.O_RDWR | _TENANTS_FILE) as file:
            about = os.fstat(file)
            if stat.S_ISREG(about.st_mode) and about.st_nlink == 1 and not clear:
                _mend_counts(file, about.st_size)
                return
    except OSError:
        pass  # The file is missing, a link or a directory: a new file takes its place.
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    write_whole(path, counts_head(), COUNTS_MODE, COUNTS_BYTES)


def _lay_out_exports(directory: Path, *, clear: bool) -> None:
    """A file that a tenant damaged is replaced for the next programs. All zeros is the empty file.

    The file system of an earlier broker has no room for it. Without it every import counts in the importer's word.
    """
    path = directory / EXPORTS_NAME
    with contextlib.suppress(FileNotFoundError):
        about = path.lstat()
        if stat.S_ISREG(about.st_mode) and about.st_size == EXPORTS_BYTES and not clear:
            return
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    try:
        write_whole(path, b"", COUNTS_MODE, EXPORTS_BYTES)
    except OSError as error:
        if error.errno != errno.ENOSPC or not directory.is_mount():
            raise


def _mend_counts(file: int, size_bytes: int) -> None:
    if size_bytes != COUNTS_BYTES:
        os.ftruncate(file, COUNTS_BYTES)
        os.posix_fallocate(file, 0, COUNTS_BYTES)
    if os.pread(file, COUNTS_HEAD.size, 0) != counts_head()[: COUNTS_HEAD.size]:
        # Any slot may be in use by now, so all of them count as touched.
        os.pwrite(file, counts_head(slots_touched=MAX_SLOTS), 0)
