"""Several processes share one line, over sums, collisions, forks, execs, and deaths."""

import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest

from plimsoll.broker.pages import MAX_SLOTS
from tests.hook.lib.container import Container, Line, limits_of
from tests.hook.lib.program import (
    MIB,
    NOT_INITIALIZED,
    NOT_READY,
    OUT_OF_MEMORY,
    SUCCESS,
    Node,
    Program,
    compiled,
)
from tests.servers.waiting import PATIENCE_S


def test_the_line_is_the_containers(program: Program, node: Node, asker: Path, container: Container) -> None:
    """Two processes are held to one line together, and a free by one makes room for the other."""
    _, pointer = program.alloc(128)
    with node.run(asker, container.environment) as other:
        other.start()
        assert container.used_bytes() == 256 * MIB
        assert other.alloc(128)[0] == OUT_OF_MEMORY
        assert other.ask("info") == [SUCCESS, 64 * MIB, 320 * MIB]
        assert program.ask(f"free cuMemFree_v2 {pointer}") == [SUCCESS]
        assert other.alloc(128)[0] == SUCCESS
        assert container.used_bytes() == 256 * MIB


@pytest.mark.parametrize("is_killed", [True, False])
def test_the_words_of_the_dead_stand_until_the_broker_clears_them(
    program: Program, node: Node, asker: Path, container: Container, *, is_killed: bool
) -> None:
    """No process clears another's slot, or its own while the driver holds its memory.

    But none is refused for it, and the views do not show it.
    """
    with node.run(asker, container.environment) as other:
        other.start()
        assert other.alloc(100)[0] == SUCCESS
        if is_killed:
            other.kill()
        else:
            assert other.end() == 0
    assert container.used_bytes() == 228 * MIB
    assert program.ask("info") == [SUCCESS, 256 * MIB, 320 * MIB]
    assert program.alloc(100)[0] == SUCCESS
    assert container.used_bytes() == 328 * MIB


def test_a_cleared_slot_is_claimed_again(node: Node, asker: Path, container: Container) -> None:
    """The first free slot is claimed and starts at 0."""
    container.store_owners([0xFFFF_FFFF_0000_0001, 0, 0xFFFF_FFFF_0000_0003])
    with node.run(asker, container.environment) as program:
        program.start()
        assert container.slot_of(program.pid) == 1
        assert container.used_bytes() == 64 * MIB


def test_a_full_table_refuses_aloud(node: Node, asker: Path, container: Container) -> None:
    """A process that finds no slot gets no GPU, and a message."""
    container.store_owners([0xFFFF_FFFF_0000_0000 + slot for slot in range(1, MAX_SLOTS + 1)])
    with node.run(asker, container.environment) as program:
        program.ask("load")
        assert program.ask("init")[0] == NOT_READY
        assert program.errors().startswith(f"plimsoll: all {MAX_SLOTS} process slots")


def test_a_full_table_is_waited_for(node: Node, asker: Path, container: Container) -> None:
    """A process that finds every slot taken by uncleared dead ones starts as soon as one is cleared."""
    owners = [0xFFFF_FFFF_0000_0000 + slot for slot in range(1, MAX_SLOTS + 1)]
    container.store_owners(owners)
    with node.run(asker, container.environment) as program:
        program.ask("load")
        program.tell("init")
        time.sleep(0.3)  # it has come and found no slot; if not yet, the test proves less but holds
        container.store_owners([*owners[:7], 0])
        assert program.answer()[0] == str(SUCCESS)
        assert container.slot_of(program.pid) == 7


def test_of_two_that_ask_at_once_for_what_one_can_have_one_gets_it(
    node: Node, container: Container, lines: list[Line]
) -> None:
    """Two reservations of which one fits never both fail and never both stand, however often they meet."""
    container.write(limits_of([replace(line, line_bytes=300 * MIB, context_bytes=0) for line in lines]))
    rounds = 600
    done = subprocess.run(
        [compiled("both"), str(rounds), str(200 * MIB)],
        env=node.environment(container.environment),
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE_S,
    )
    none, one, both = (int(word) for word in done.stdout.split())
    assert (none, one, both) == (0, rounds, 0)


def test_each_gpu_has_a_line_of_its_own(
    node: Node, asker: Path, container: Container, lines: list[Line]
) -> None:
    """Filling one GPU's line leaves the other GPU's line, for every process of the container."""
    container.write(limits_of([lines[0], replace(lines[1], line_bytes=192 * MIB)]))
    with (
        node.run(asker, container.environment) as first,
        node.run(asker, container.environment) as second,
    ):
        first.start(0)
        second.start(1)
        assert first.alloc(256)[0] == SUCCESS
        assert first.alloc(2)[0] == second.alloc(2, "cuMemCreate", "0")[0] == OUT_OF_MEMORY
        assert second.alloc(64)[0] == first.alloc(64, "cuMemCreate", "1")[0] == SUCCESS
        assert second.alloc(2)[0] == first.alloc(2, "cuMemCreate", "1")[0] == OUT_OF_MEMORY
        assert (container.used_bytes(0), container.used_bytes(1)) == (320 * MIB, 192 * MIB)


def test_a_child_forked_before_cuda_claims_its_own_slot(
    node: Node, asker: Path, container: Container, tmp_path: Path
) -> None:
    """A child that starts CUDA itself counts in a slot of its own, beside its parent's."""
    commands = tmp_path / "commands"
    commands.write_text("load\ninit\nretain 0\nalloc cuMemAlloc_v2 1048576\n")
    with node.run(asker, container.environment) as program:
        program.tell(f"fork {commands}")
        assert program.answer() == ["0"]
        assert program.answer()[0] == "0"
        assert program.answer() == ["0"]
        assert program.answer()[0] == "0"
        child, status = (int(word) for word in program.answer())
        assert status == 0
        assert int(container.counts().slots[container.slot_of(child)].used_bytes[0]) == 65 * MIB
        program.start()
        assert container.slot_of(program.pid) != container.slot_of(child)


def test_a_child_forked_after_cuda_leaves_the_parents_count(
    program: Program, container: Container, tmp_path: Path
) -> None:
    """A child forked from a process with CUDA counts in a slot of its own, and leaves its parent's alone."""
    _, pointer = program.alloc(100)
    commands = tmp_path / "commands"
    commands.write_text(f"free cuMemFree_v2 {pointer}\nalloc cuMemAlloc_v2 1048576\n")
    program.tell(f"fork {commands}")
    assert program.answer() == [str(NOT_INITIALIZED)]
    assert program.answer()[0] == str(NOT_INITIALIZED)
    child, status = (int(word) for word in program.answer())
    assert status == 0
    assert container.slot_of(child) != container.slot_of(program.pid)
    assert container.used_bytes() == 164 * MIB
    assert program.ask(f"free cuMemFree_v2 {pointer}") == [SUCCESS]
    assert container.used_bytes() == 64 * MIB


@pytest.mark.parametrize("how", ["vfork", "spawn"])
def test_a_child_that_becomes_another_program_leaves_its_parents_count(
    program: Program, container: Container, how: str
) -> None:
    """A child that execs another program leaves its parent's word alone. With CUDA it gets a slot of its own."""
    _, pointer = program.alloc(100)
    _, plain_status = program.ask(f"{how} /bin/true")
    assert plain_status == 0
    assert container.counts().slots_touched == 1
    program.tell(f"{how} {compiled('linked')}")
    results = [int(word) for word in program.answer()[:5]]
    assert results == [SUCCESS, SUCCESS, SUCCESS, SUCCESS, OUT_OF_MEMORY]
    child, status = (int(word) for word in program.answer())
    assert status == 0
    mine, theirs = container.slot_of(program.pid), container.slot_of(child)
    words = container.counts().slots
    assert [int(words[slot].used_bytes[0]) for slot in (mine, theirs)] == [164 * MIB, 128 * MIB]
    assert program.ask(f"free cuMemFree_v2 {pointer}") == [SUCCESS]
    assert int(container.counts().slots[mine].used_bytes[0]) == 64 * MIB


def test_an_exec_starts_from_nothing_in_the_same_slot(
    program: Program, asker: Path, container: Container
) -> None:
    """An exec frees the old image's memory, and the new one takes over the slot of the same process."""
    assert program.alloc(100)[0] == SUCCESS
    assert program.ask(f"exec {asker}") == [0]
    program.start()
    assert container.counts().slots_touched == 1
    assert container.used_bytes() == 64 * MIB


def test_an_exec_leaves_a_slot_that_is_being_cleared(
    program: Program, node: Node, asker: Path, container: Container
) -> None:
    """While the broker clears the old image's slot, the new image counts in another slot and keeps it."""
    assert program.alloc(100)[0] == SUCCESS
    container.mark_vacating(0)
    assert program.ask(f"exec {asker}") == [0]
    program.start()
    words = [int(slot.used_bytes[0]) for slot in container.counts().slots[:3]]
    assert words == [164 * MIB, 64 * MIB, 0]
    container.store_owners([0])
    with node.run(asker, container.environment) as other:
        other.start()
        assert (container.slot_of(other.pid), container.slot_of(program.pid)) == (0, 1)
        assert int(container.counts().slots[0].is_vacating) == 0
