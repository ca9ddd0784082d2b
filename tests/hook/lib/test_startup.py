"""A program's first cuInit waits for its limits; without limits there is no GPU."""

import contextlib
import ctypes
import os
import subprocess
import threading
import uuid
from dataclasses import replace
from pathlib import Path

import pytest

from plimsoll.broker.pages import LIMITS_DIR_VARIABLE, Limits
from tests.hook.lib.container import Container, Line, limits_of
from tests.hook.lib.program import LIBRARY, MIB, NOT_READY, SUCCESS, Node, Program, compiled
from tests.servers.waiting import PATIENCE_S

REASONS = {
    "missing": "the files do not exist; see the log of the broker",
    "being-rewritten": "the broker ended while it wrote the limits; start the broker again",
}
"""By the damage; any other is one of a version."""


def _changed(limits: Limits, field: str, value: int) -> bytes:
    copy = Limits.from_buffer_copy(bytes(limits))
    setattr(copy, field, value)
    return bytes(copy)


def _without_uuid(limits: Limits) -> bytes:
    copy = Limits.from_buffer_copy(bytes(limits))
    copy.gpus[0].uuid = b"GPU-not-a-uuid"
    return bytes(copy)


def _damaged(limits: Limits) -> dict[str, bytes | None]:
    return {
        "missing": None,
        "empty": b"",
        "short": bytes(limits)[: ctypes.sizeof(Limits) - 1],
        "garbage": b"\xa5" * ctypes.sizeof(Limits),
        "zeros": bytes(ctypes.sizeof(Limits)),
        "wrong-magic": _changed(limits, "magic", 1),
        "wrong-version": _changed(limits, "version", 99),
        "wrong-size": _changed(limits, "size", 8),
        "being-rewritten": _changed(limits, "generation", 3),
        "too-many-gpus": _changed(limits, "gpu_count", 17),
        "no-uuid": _without_uuid(limits),
    }


def test_no_valid_limits_is_refused_after_waiting(
    node: Node, asker: Path, tmp_path: Path, lines: list[Line]
) -> None:
    """A missing, torn or foreign `limits` ends in CUDA_ERROR_SYSTEM_NOT_READY and one line with the reason."""
    with contextlib.ExitStack() as stack:
        programs = {}
        for name, content in _damaged(limits_of(lines)).items():
            container = Container(tmp_path / name)
            if content is not None:
                container.write(content)
            programs[name] = stack.enter_context(node.run(asker, container.environment))
            programs[name].ask("load")
            programs[name].tell("init")
        for name, program in programs.items():
            result, errno = (int(word) for word in program.answer())
            assert (name, result, errno) == (name, NOT_READY, 77)
            assert program.ask("init") == [NOT_READY, 77], "another call neither waits nor complains again"
            assert program.errors().startswith(
                "plimsoll: no valid limits after 10 s, so this process gets no GPU: "
            )
            assert REASONS.get(name, "another version than this library; install one") in program.errors()
            assert program.errors().count("\n") == 1


def test_limits_that_come_late_are_waited_for(
    node: Node, asker: Path, tmp_path: Path, lines: list[Line]
) -> None:
    """A program that starts before the broker wrote its limits waits, and then runs under them."""
    container = Container(tmp_path / "late")
    with node.run(asker, container.environment) as program:
        program.ask("load")
        program.tell("init")
        timer = threading.Timer(1, container.write, [limits_of(lines)])
        timer.start()
        assert program.answer()[0] == str(SUCCESS)
        timer.join()
        assert program.ask("total 0") == [SUCCESS, 320 * MIB]
        assert program.errors() == ""


def test_without_plimsoll_the_library_is_transparent(node: Node, asker: Path) -> None:
    """A process without directories of limits sees and gets the whole card."""
    with node.run(asker) as program:
        program.start()
        assert program.ask("info")[2] > 1024 * MIB
        assert program.alloc(1024)[0] == SUCCESS
        assert program.errors() == ""


def test_an_empty_variable_is_no_variable(node: Node, asker: Path) -> None:
    """A variable set to nothing names no directory."""
    with node.run(asker, {LIMITS_DIR_VARIABLE: ""}) as program:
        program.start()
        assert program.alloc(1024)[0] == SUCCESS


def test_a_program_without_cuda_is_left_alone(node: Node, container: Container) -> None:
    """In a program without CUDA the preload loads no driver, starts no thread and keeps no file."""
    plain = compiled("plain")

    def look(preload: str | None) -> list[str]:
        environment = node.environment(container.environment, preload=preload)
        command: list[str | Path] = [plain, "libcuda"]
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=True, timeout=PATIENCE_S
        )
        return done.stdout.split()

    assert look(str(LIBRARY)) == look(None)
    assert look(str(LIBRARY))[0] == "0"
    assert container.counts().slots_touched == 0


def test_a_linked_program_is_held_to_the_line(node: Node, container: Container) -> None:
    """A program that links the driver reaches the same hooks without any look-up."""
    done = subprocess.run(
        [compiled("linked")],
        env=node.environment(container.environment),
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE_S,
    )
    assert done.stdout.split() == ["0", "0", "0", "0", "2", "0", str(192 * MIB), str(320 * MIB)]


@pytest.mark.parametrize("depth", [1, 12])
def test_deep_directories_work(
    node: Node, asker: Path, tmp_path: Path, lines: list[Line], depth: int
) -> None:
    """Directories longer than a socket's address work."""
    root = tmp_path.joinpath(*["a-rather-long-directory-name"] * depth)
    container = Container(root)
    container.write(limits_of(lines))
    with node.run(asker, container.environment) as program:
        program.start()
        assert container.used_bytes() == 64 * MIB


def test_a_line_without_a_reader_ends_no_program(
    node: Node, container: Container, asker: Path, lines: list[Line]
) -> None:
    """A program whose standard error is a pipe without a reader lives on when the library writes a line."""
    reader, writer = os.pipe()
    with Program(asker, node.environment(container.environment), Path(f"/dev/fd/{writer}")) as program:
        os.close(writer)
        program.start()
        os.close(reader)
        container.rewrite([replace(line, uuid=f"GPU-{uuid.UUID(int=0)}") for line in lines])
        assert program.alloc(1)[0] == SUCCESS
        assert program.end() == 0
