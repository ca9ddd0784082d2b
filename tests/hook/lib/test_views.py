"""Queries for memory return the container's line, never the card's size."""

import json
import subprocess
from dataclasses import replace

from plimsoll.broker.pages import LIMITS_NAME
from tests.hook.lib.container import Container, Line, limits_of
from tests.hook.lib.program import MIB, ROOT, SUCCESS, Node, Program, look_command
from tests.servers.waiting import PATIENCE_S


def look(node: Node, container: Container, what: str) -> subprocess.CompletedProcess[str]:
    """Run one look with the real pynvml in a process of this container."""
    return subprocess.run(
        look_command(what),
        cwd=ROOT,
        env=node.environment(container.environment),
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )


def nvml_looks(node: Node, container: Container, what: str = "memory") -> list[list[int]]:
    """Read a figure of each GPU with the real pynvml."""
    done = look(node, container, what)
    assert done.returncode == 0, done.stderr
    looks: list[list[int]] = json.loads(done.stdout)
    return looks


def test_cuda_shows_the_line(program: Program) -> None:
    """Total is the line and free is the rest of it, for both functions."""
    assert program.ask("info") == [SUCCESS, 256 * MIB, 320 * MIB]
    assert program.ask("info_v1") == [SUCCESS, 256 * MIB, 320 * MIB]
    assert program.ask("total 0") == [SUCCESS, 320 * MIB]
    assert program.ask("total 1") == [SUCCESS, 320 * MIB]
    assert program.alloc(128)[0] == SUCCESS
    assert program.ask("info") == [SUCCESS, 128 * MIB, 320 * MIB]


def test_a_line_above_the_card_shows_the_card(
    program: Program, node: Node, container: Container, lines: list[Line]
) -> None:
    """Total is never more than the card's memory."""
    real = node.book()["gpus"][0]["memory_bytes"]
    container.rewrite([replace(line, line_bytes=1 << 50) for line in lines])
    assert program.ask("total 0")[1] <= real
    assert program.ask("info")[2] <= real


def test_a_sunk_line_shows_nothing_free(program: Program, container: Container, lines: list[Line]) -> None:
    """If the line sinks below the used memory, free is zero and used is the total, and nothing wraps."""
    assert program.alloc(128)[0] == SUCCESS
    container.rewrite([replace(line, line_bytes=100 * MIB) for line in lines])
    assert program.ask("info") == [SUCCESS, 0, 100 * MIB]


def test_nvml_shows_the_line(program: Program, node: Node, container: Container) -> None:
    """NVML's two memory calls in another process of the container return the line, in parts that sum up to it."""
    assert program.alloc(128)[0] == SUCCESS
    first, second = nvml_looks(node, container)
    assert first == [320 * MIB, 128 * MIB, 192 * MIB, 320 * MIB, 0, 128 * MIB, 192 * MIB]
    assert second == [320 * MIB, 320 * MIB, 0, 320 * MIB, 0, 320 * MIB, 0]


def test_nvml_alone_claims_no_slot(node: Node, container: Container) -> None:
    """A program that only queries NVML has no slot in `counts`."""
    nvml_looks(node, container)
    assert container.counts().slots_touched == 0


def test_nvml_without_limits_is_not_ready(node: Node, container: Container) -> None:
    """Before the first limits NVML's memory call fails instead of showing the card."""
    (container.limits_dir / LIMITS_NAME).unlink()
    done = look(node, container, "memory")
    assert done.returncode != 0
    assert "NVMLError" in done.stderr


def test_a_gpu_that_was_not_given_shows_no_memory(
    node: Node, container: Container, lines: list[Line]
) -> None:
    """A handle to a GPU outside `limits`, as the topology's calls return it, shows an empty card."""
    container.write(limits_of(lines[1:]))
    assert [look[0] for look in nvml_looks(node, container)] == [320 * MIB]
    assert nvml_looks(node, container, "memory_of_nearest") == [[0] * 7]
