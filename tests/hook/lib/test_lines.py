"""Every request for GPU memory is held to the line, and every free is counted."""

import time
from dataclasses import replace
from pathlib import Path

import pytest

from plimsoll.broker.pages import FLAG_WHOLE_GPUS, LIMITS_NAME, Limits
from tests.hook.lib.container import Container, Line, limits_of
from tests.hook.lib.program import MIB, OUT_OF_MEMORY, SUCCESS, Node, Program
from tests.slow import quick_and_slow

NO_UUID = "00000000-0000-0000-0000-000000000000"

PATHS = [
    ("cuMemAlloc_v2", "cuMemFree_v2"),
    ("cuMemAllocPitch_v2", "cuMemFree_v2"),
    ("cuMemAllocManaged", "cuMemFree_v2"),
    ("cuMemAllocAsync", "cuMemFreeAsync"),
    ("cuMemAllocAsync_ptsz", "cuMemFreeAsync_ptsz"),
    ("cuMemAllocAsync", "cuMemFree_v2"),
    ("cuMemAllocFromPoolAsync", "cuMemFreeAsync"),
    ("cuMemAllocFromPoolAsync_ptsz", "cuMemFreeAsync_ptsz"),
    ("cuMemCreate", "cuMemRelease"),
    ("cuArrayCreate_v2", "cuArrayDestroy"),
    ("cuArrayCreate", "cuArrayDestroy"),
    ("cuArray3DCreate_v2", "cuArrayDestroy"),
    ("cuArray3DCreate", "cuArrayDestroy"),
    ("cuMipmappedArrayCreate", "cuMipmappedArrayDestroy"),
]


@pytest.mark.parametrize(("allocate", "free"), PATHS)
def test_past_the_line_is_refused_and_a_free_makes_room(
    program: Program, container: Container, allocate: str, free: str
) -> None:
    """A request past the line gets CUDA's own out-of-memory error, and freed memory can be taken again."""
    assert container.used_bytes() == 64 * MIB
    first, handle = program.alloc(128, allocate)
    second, other = program.alloc(128, allocate)
    assert (first, second) == (SUCCESS, SUCCESS)
    assert container.used_bytes() == 320 * MIB
    assert program.alloc(1, allocate)[0] == OUT_OF_MEMORY
    assert program.ask(f"free {free} {handle}") == program.ask("sync") == [SUCCESS]
    assert container.used_bytes() == 192 * MIB
    assert program.alloc(128, allocate)[0] == SUCCESS
    assert program.ask(f"free {free} {other}") == program.ask("sync") == [SUCCESS]
    assert container.used_bytes() == 192 * MIB


def test_refusal_leaves_the_neighbour_alone(
    program: Program, node: Node, asker: Path, tmp_path: Path, lines: list[Line]
) -> None:
    """While one container is refused past its line, another on the same GPU goes on."""
    neighbour = Container(tmp_path / "neighbour")
    neighbour.write(limits_of(lines))
    with node.run(asker, neighbour.environment) as other:
        other.start()
        assert other.alloc(128)[0] == SUCCESS
        assert program.alloc(1024)[0] == OUT_OF_MEMORY
        assert other.alloc(128)[0] == SUCCESS
        assert neighbour.used_bytes() == 320 * MIB


def test_counts_agree_with_the_driver_over_every_path(
    program: Program, node: Node, container: Container, lines: list[Line]
) -> None:
    """For sizes that the driver need not round up, `counts` equals the emulator's book."""
    container.rewrite([replace(line, line_bytes=1024 * MIB) for line in lines])
    for allocate, _ in PATHS:
        assert program.alloc(32, allocate)[0] == SUCCESS
    assert container.used_bytes() == (64 + 32 * len(PATHS)) * MIB
    assert node.held_bytes({program.pid}) == container.used_bytes()


@pytest.mark.parametrize("allocate", [allocate for allocate, _ in PATHS[:3] + PATHS[-5:]])
def test_odd_sizes_do_not_add_up_past_the_line(
    program: Program, node: Node, container: Container, allocate: str
) -> None:
    """The driver takes whole blocks of 2 MiB for 1.25 MiB. The blocks count, and the line holds for them."""
    made = 0
    while program.ask(f"alloc {allocate} {5 * MIB // 4}")[0] == SUCCESS:
        made += 1
    assert made == 128
    assert node.held_bytes({program.pid}) == container.used_bytes() == 320 * MIB


def test_a_declaration_that_is_no_multiple_of_a_block_can_be_used_up(
    node: Node, asker: Path, container: Container, lines: list[Line]
) -> None:
    """A line of 100 MB gives 100 MB in one piece, and after that only requests that cost nothing."""
    container.rewrite([Line(line.uuid, 100_000_000) for line in lines])
    with node.run(asker, container.environment) as program, node.run(asker, container.environment) as other:
        program.start()
        assert program.ask("alloc cuMemAlloc_v2 100000000")[0] == SUCCESS
        assert program.ask("info") == [SUCCESS, 0, 100_000_000]
        assert program.alloc(1)[0] == program.alloc(2)[0] == OUT_OF_MEMORY
        other.start()


def test_absurd_sizes_are_refused_and_do_not_wrap(program: Program, container: Container) -> None:
    """Sizes near 2^64 neither wrap the count nor reach the driver."""
    for size in (2**64 - 1, 2**63, 2**64 - 64 * MIB):
        assert program.ask(f"alloc cuMemAlloc_v2 {size}")[0] == OUT_OF_MEMORY
        assert program.ask(f"alloc cuMemAllocPitch_v2 {size}")[0] == OUT_OF_MEMORY
    assert container.used_bytes() == 64 * MIB


@pytest.mark.parametrize("allocate", ["cuMemAlloc", "cuMemAllocPitch"])
def test_the_first_32_bit_functions_are_counted_too(
    program: Program, container: Container, allocate: str
) -> None:
    """Past the line the hook refuses.

    Below it the driver may refuse, as on 64 bits, and then nothing stays counted.
    """
    assert program.alloc(512, allocate)[0] == OUT_OF_MEMORY
    assert int(container.counts().slots[0].denied_count) == 1
    result, _ = program.alloc(32, allocate)
    assert int(container.counts().slots[0].denied_count) == 1
    assert container.used_bytes() == (96 if result == SUCCESS else 64) * MIB


@pytest.mark.parametrize("free", sorted({free for _, free in PATHS} | {"cuMemFree", "cuMemPoolDestroy"}))
def test_unknown_pointers_reach_the_driver(
    program: Program, node: Node, asker: Path, container: Container, free: str
) -> None:
    """A free of an unknown pointer gets the driver's answer, and no count changes."""
    with node.run(asker, preload=None) as bare:
        bare.start()
        assert bare.alloc(64)[0] == SUCCESS
        _, address = program.alloc(64)
        unknown = (0, 1, 4096, address + MIB, address + 64 * MIB, 2**64 - 1)
        driver = [bare.ask(f"free {free} {pointer}") for pointer in unknown]
        assert [program.ask(f"free {free} {pointer}") for pointer in unknown] == driver
    assert program.ask("sync") == [SUCCESS]
    assert container.used_bytes() == node.held_bytes({program.pid}) == 128 * MIB
    assert program.ask(f"free cuMemFree_v2 {address}") == [SUCCESS]
    assert container.used_bytes() == 64 * MIB


def test_a_freed_pointer_is_given_back_once(program: Program, container: Container) -> None:
    """A second free of one pointer fails in the driver and frees nothing in the count."""
    _, pointer = program.alloc(128)
    assert program.ask(f"free cuMemFree_v2 {pointer}") == [SUCCESS]
    assert program.ask(f"free cuMemFree_v2 {pointer}") != [SUCCESS]
    assert container.used_bytes() == 64 * MIB


def test_memory_is_charged_where_it_lies(program: Program, container: Container) -> None:
    """CuMemCreate and pools charge the device that they name, not the current context's."""
    assert program.alloc(100, "cuMemCreate", "1")[0] == SUCCESS
    assert (container.used_bytes(0), container.used_bytes(1)) == (64 * MIB, 100 * MIB)
    result, pool = program.ask("pool 1")
    assert result == SUCCESS
    assert program.alloc(96, "cuMemAllocFromPoolAsync", f"1 {pool}")[0] == SUCCESS
    assert program.alloc(64, "cuMemAllocFromPoolAsync", "1 0")[0] == SUCCESS
    assert (container.used_bytes(0), container.used_bytes(1)) == (64 * MIB, 260 * MIB)
    assert program.alloc(96, "cuMemAllocFromPoolAsync", f"1 {pool}")[0] == OUT_OF_MEMORY


def test_mapped_memory_stays_counted_after_its_handle_is_released(
    program: Program, container: Container
) -> None:
    """Physical memory counts until it is both released and unmapped, in either order."""
    _, handle = program.alloc(128, "cuMemCreate", "0")
    result, address = program.ask(f"map {handle} {128 * MIB}")
    assert result == SUCCESS
    assert program.ask(f"free cuMemRelease {handle}") == [SUCCESS]
    assert container.used_bytes() == 192 * MIB
    assert program.ask(f"unmap {address} {128 * MIB}") == [SUCCESS]
    assert container.used_bytes() == 64 * MIB


def test_memory_unmapped_together_with_imported_memory_goes_back(
    program: Program, container: Container
) -> None:
    """An unmapping may end several mappings, and only some of them are of this process's memory."""
    _, handle = program.alloc(128, "cuMemCreate", "0")
    assert program.ask(f"beside {handle} {128 * MIB}") == [SUCCESS]
    assert container.used_bytes() == 192 * MIB
    assert program.ask(f"free cuMemRelease {handle}") == [SUCCESS]
    assert container.used_bytes() == 64 * MIB


def test_a_gpu_that_was_not_given_has_no_memory(
    node: Node, asker: Path, container: Container, lines: list[Line]
) -> None:
    """A GPU that is visible and not in `limits` has the line 0, and standard error says so once."""
    container.write(limits_of(lines[1:]))
    with node.run(asker, container.environment) as program:
        assert program.ask("load") == [0]
        assert program.ask("init")[0] == SUCCESS
        assert program.ask("retain 0") == [OUT_OF_MEMORY]
        assert program.ask("total 0") == [SUCCESS, 0]
        assert program.ask("retain 1") == [SUCCESS]
        assert program.alloc(128, "cuMemCreate", "0")[0] == OUT_OF_MEMORY
        assert program.alloc(128)[0] == SUCCESS
        assert container.used_bytes(0) == 192 * MIB
        assert program.errors().count("a GPU that this container was not given") == 1


def test_whole_gpus_are_counted_and_not_limited(
    node: Node, asker: Path, container: Container, lines: list[Line]
) -> None:
    """A container that owns its GPUs may fill them, and sees the whole card."""
    container.write(limits_of([replace(line, line_bytes=0) for line in lines], flags=FLAG_WHOLE_GPUS))
    with node.run(asker, container.environment) as program:
        program.start()
        assert program.alloc(1024)[0] == SUCCESS
        assert container.used_bytes() == 1088 * MIB
        assert program.ask("info")[2] > 1024 * MIB


def test_a_context_costs_what_was_measured(program: Program, container: Container) -> None:
    """Every context is charged while it lives: each created one, and the primary one once."""
    assert program.ask("retain 0") == [SUCCESS]
    assert container.used_bytes() == 64 * MIB
    result, context = program.ask("create 0")
    assert result == SUCCESS
    assert container.used_bytes() == 128 * MIB
    assert program.ask(f"destroy {context}") == [SUCCESS]
    assert container.used_bytes() == 64 * MIB
    assert program.ask("release 0") == [SUCCESS]
    assert container.used_bytes() == 64 * MIB
    assert program.ask("release 0") == [SUCCESS]
    assert container.used_bytes() == 0


def test_a_context_measured_later_is_not_charged_twice(
    node: Node, asker: Path, container: Container, lines: list[Line]
) -> None:
    """A context older than its measurement is in the excess and not in its process's word.

    A newer one is in the word.
    """
    container.write(limits_of([replace(line, context_bytes=0) for line in lines]))
    with node.run(asker, container.environment) as program:
        program.start()
        assert container.used_bytes() == 0
        container.rewrite([replace(line, excess_bytes=64 * MIB) for line in lines])
        assert program.alloc(300)[0] == OUT_OF_MEMORY
        assert program.alloc(128)[0] == SUCCESS
        assert container.used_bytes() == 128 * MIB
        assert program.ask("info") == [SUCCESS, 128 * MIB, 320 * MIB]
        result, context = program.ask("create 0")
        assert result == SUCCESS
        assert container.used_bytes() == 192 * MIB
        container.rewrite([replace(line, excess_bytes=64 * MIB, context_bytes=MIB) for line in lines])
        assert program.ask("reset 0") == [SUCCESS]
        assert container.used_bytes() == 64 * MIB
        assert program.ask(f"destroy {context}") == [SUCCESS]
        assert container.used_bytes() == 0


@pytest.mark.parametrize("excess_bytes", [400 * MIB, 1 << 62, 2**64 - 1])
def test_an_excess_beyond_the_line_leaves_nothing(
    program: Program, container: Container, lines: list[Line], excess_bytes: int
) -> None:
    """An excess beyond the line causes no wrap-around: nothing is free, and nothing is granted."""
    container.rewrite([replace(line, excess_bytes=excess_bytes) for line in lines])
    for bytes_ in (1, 5 * MIB // 4, 32 * MIB, 2**64 - 1):
        assert program.ask(f"alloc cuMemAlloc_v2 {bytes_}")[0] == OUT_OF_MEMORY
    assert program.ask("info") == [SUCCESS, 0, 320 * MIB]
    container.rewrite(lines)
    assert program.alloc(256)[0] == SUCCESS


def test_a_grant_above_the_line_is_worth_no_more(
    program: Program, container: Container, lines: list[Line]
) -> None:
    """The lower of line and grant holds."""
    container.rewrite([replace(line, granted_bytes=1024 * MIB) for line in lines])
    assert program.alloc(257)[0] == OUT_OF_MEMORY
    assert program.alloc(256)[0] == SUCCESS


@pytest.mark.parametrize("rounds", quick_and_slow([2], [8]))
def test_a_line_that_sinks_under_hammering_holds_once_it_is_audited(
    program: Program, node: Node, asker: Path, container: Container, lines: list[Line], rounds: int
) -> None:
    """After the line was lowered and the words were summed, the book never exceeds sum or line."""
    low_bytes = 128 * MIB
    with node.run(asker, container.environment) as other:
        other.start()
        for _ in range(rounds):
            for hammering in (program, other):
                hammering.tell(f"hammer 10000 {90 * MIB}")
            while container.used_bytes() <= low_bytes:
                pass  # until the hammering has begun
            container.rewrite([replace(line, line_bytes=low_bytes) for line in lines])
            audited_bytes = container.used_bytes()
            for _ in range(2):
                assert node.held_bytes({program.pid, other.pid}) <= max(audited_bytes, low_bytes)
            assert sum(int(hammering.answer()[0]) for hammering in (program, other)) > 0
            container.rewrite(lines)
    assert container.used_bytes() == 128 * MIB


def test_a_broker_that_died_while_writing_does_not_hang_the_program(
    program: Program, container: Container
) -> None:
    """With half-written limits the last whole ones stay in force, for refusals and grants."""
    with (container.limits_dir / LIMITS_NAME).open("r+b", buffering=0) as file:
        for generation in (3, 7):
            file.seek(Limits.generation.offset)
            file.write(generation.to_bytes(8, "little"))
            assert program.alloc(1024)[0] == OUT_OF_MEMORY
            assert program.alloc(64)[0] == SUCCESS


def test_a_context_past_the_line_is_refused(
    node: Node, asker: Path, container: Container, lines: list[Line]
) -> None:
    """A line without room for a context refuses it, for both ways to make one."""
    container.write(limits_of([replace(line, line_bytes=63 * MIB) for line in lines]))
    with node.run(asker, container.environment) as program:
        program.ask("load")
        program.ask("init")
        assert program.ask("retain 0") == [OUT_OF_MEMORY]
        assert program.ask("create 0")[0] == OUT_OF_MEMORY
        assert container.used_bytes() == 0


@pytest.mark.parametrize("allocate", ["cuMemAlloc_v2", "cuMemAllocAsync", "cuArrayCreate_v2"])
def test_a_reset_gives_back_what_lived_in_the_primary_context(
    program: Program, node: Node, container: Container, allocate: str
) -> None:
    """A reset removes the primary context's memory and its own cost from `counts`."""
    assert program.alloc(128, allocate)[0] == SUCCESS
    assert program.ask("reset 0") == [SUCCESS]
    assert container.used_bytes() == node.held_bytes({program.pid}) == 0


def test_a_destroyed_context_gives_back_its_memory_alone(
    program: Program, node: Node, container: Container
) -> None:
    """Destroying a created context frees the memory allocated in it, and no other context's."""
    assert program.alloc(100)[0] == SUCCESS
    _, context = program.ask("create 0")
    assert program.alloc(50)[0] == SUCCESS
    assert container.used_bytes() == 278 * MIB
    assert program.ask(f"destroy {context}") == [SUCCESS]
    assert container.used_bytes() == node.held_bytes({program.pid}) == 164 * MIB


def test_a_changed_line_counts_at_once(program: Program, container: Container, lines: list[Line]) -> None:
    """A line that is raised or lowered while the program runs holds from its next allocation."""
    assert program.alloc(512)[0] == OUT_OF_MEMORY
    container.rewrite([replace(line, line_bytes=1024 * MIB) for line in lines])
    assert program.alloc(512)[0] == SUCCESS
    container.rewrite([replace(line, line_bytes=128 * MIB) for line in lines])
    assert program.alloc(1)[0] == OUT_OF_MEMORY
    assert program.ask("info") == [SUCCESS, 0, 128 * MIB]


def test_damaged_new_limits_leave_the_last_ones(
    program: Program, container: Container, lines: list[Line]
) -> None:
    """Limits for other GPUs are refused with a message, and the program goes on under the last ones."""
    container.rewrite([replace(line, uuid=f"GPU-{NO_UUID}", line_bytes=2048 * MIB) for line in lines])
    assert program.alloc(512)[0] == OUT_OF_MEMORY
    assert program.alloc(128)[0] == SUCCESS
    assert program.errors().startswith("plimsoll: new limits")


def test_errno_stays_as_it_was(program: Program) -> None:
    """Neither a refusal nor a success changes the program's errno."""
    assert program.ask(f"alloc cuMemAlloc_v2 {1024 * MIB}")[2] == 77
    assert program.ask(f"alloc cuMemAlloc_v2 {1 * MIB}")[2] == 77


@pytest.mark.parametrize(("allocate", "free"), PATHS)
def test_the_slot_says_when_its_words_last_changed(
    program: Program, container: Container, allocate: str, free: str
) -> None:
    """A call that takes or frees writes the time just before it. A query writes none."""

    def changed_ns() -> int:
        return int(container.counts().slots[container.slot_of(program.pid)].changed_ns)

    before_ns = time.monotonic_ns()
    assert 0 < changed_ns() < before_ns, "the context was charged"
    _, handle = program.alloc(128, allocate)
    taken_ns = changed_ns()
    assert before_ns < taken_ns < time.monotonic_ns()
    assert program.ask("info")[0] == SUCCESS
    assert changed_ns() == taken_ns
    assert program.ask(f"free {free} {handle}") == program.ask("sync") == [SUCCESS]
    freed_ns = changed_ns()
    assert taken_ns < freed_ns < time.monotonic_ns()
