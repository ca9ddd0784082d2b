"""A broker that is killed, or whose machine crashes, leaves no directory or page that the next one does not mend."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from hook.broker.bounded_log import BoundedLog
from hook.broker.core.ids import ContainerKey
from hook.broker.core.journal import Journal
from hook.broker.core.node import Node
from hook.broker.core.registration import RECORD_NAME
from hook.broker.files.contexts import ContextsFile
from hook.broker.files.journal import JournalFile
from hook.broker.files.shared import SharedFiles
from hook.broker.files.work import BrokerFiles, FileWork
from hook.broker.shares.gate_files import GateConstants
from tests.hook.broker.conftest import MAIN, POD, registration

FILE_OPERATIONS: Final = frozenset({"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.truncate"})


def register(root: Path) -> None:
    """Lay a pod out, as a broker does."""
    node = Node(Journal((), 100), (), "boot")
    disk = BrokerFiles(SharedFiles(root), JournalFile(root), ContextsFile(root, ""))
    FileWork(node.pods, disk, GateConstants(1, 1, 1), BoundedLog()).carry_out(
        node.handle(registration(), 0.0)
    )


def remove(root: Path) -> None:
    """Remove a pod that was laid out."""
    SharedFiles(root).remove(POD, (ContainerKey(POD, MAIN),))


def killed_before(step: int, work: Callable[[Path], None], root: Path) -> bool:
    """Carry work out in a process that ends before its file operation of this number; False if it came to its end."""
    child = os.fork()
    if child == 0:
        done = 0

        def count(event: str, details: tuple[object, ...]) -> None:
            nonlocal done
            if event in FILE_OPERATIONS and (event != "open" or str(details[0]).startswith(str(root))):
                if done == step:
                    os._exit(1)
                done += 1

        sys.addaudithook(count)
        try:
            work(root)
        except BaseException:  # noqa: BLE001 - a fork of the tests must not go on with them
            os._exit(2)
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in {0, 1}, "the work failed"
    return status == 1


@pytest.mark.parametrize("work", [register, remove])
def test_files_without_a_record_never_stay(tmp_path: Path, work: Callable[[Path], None]) -> None:
    """Wherever the broker is killed: if a file of the pod is there, its record is there too, for the next broker."""
    step, killed, files = 0, True, list[Path]()
    while killed:
        root = tmp_path / str(step)
        root.mkdir()
        if work is remove:
            register(root)
        killed = killed_before(step, work, root)
        files = [
            path for path in root.rglob("*") if path.is_file() and not path.name.startswith(f".{RECORD_NAME}")
        ]
        has_record = (root / "limits" / POD / RECORD_NAME).is_file()
        assert has_record or not files, f"killed before file operation {step}: {files}"
        step += 1
    assert step > 5, "the work was not interrupted"
    assert not files or work is register


def test_a_pod_waits_for_the_disk_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the record must outlive the machine. A wait for the disk takes long while images are unpacked on it."""
    waits: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda file: waits.append(Path(f"/proc/self/fd/{file}").readlink().name))
    register(tmp_path)
    assert waits == [f".{RECORD_NAME}.new"]


@pytest.mark.parametrize("is_long", [False, True], ids=["empty", "zeros"])
def test_pages_that_a_crash_of_the_machine_cut_short_are_made_whole(tmp_path: Path, *, is_long: bool) -> None:
    """The next layout mends every page whose content never reached the disk."""
    register(tmp_path)
    pages = {path: path.read_bytes() for path in tmp_path.rglob("*/*/main/*") if path.is_file()}
    assert {path.name for path in pages} >= {
        "limits",
        "measured",
        "counts",
        "exports",
        "gate",
        "ld.so.preload",
    }
    for path, content in pages.items():
        path.write_bytes(bytes(len(content) if is_long else 0))
    register(tmp_path)
    for path, content in pages.items():
        length = (
            16 if path.name in {"counts", "gate"} else None
        )  # behind their heads stand numbers of the moment
        assert path.read_bytes()[:length] == content[:length], path.name
