"""A program that closes every descriptor, the driver's included, gets errors and harms no other process."""

import json

import pytest

from tests.emulator.cuda_program import Node, wait_for
from tests.emulator.test_spinning import HOG, answer, of_pid, running

UNKNOWN = ["CUDA_ERROR_UNKNOWN"] * 3


@pytest.mark.parametrize("work", ["busy", "waiting", "spinning"])
@pytest.mark.parametrize("call", ["stream", "event", "context"])
def test_a_program_without_its_descriptors_waits_no_longer(node: Node, work: str, call: str) -> None:
    """A program without its descriptors counts as dead: the current wait and all later calls return an error."""
    with running(node, ("closed_descriptors.close", work, call)) as (program,):
        assert len(node.book()[0]["processes"]) == 1
        assert answer(program) == 2
        wait_for(lambda: not node.book()[0]["processes"])
        assert program.stdout is not None
        assert json.loads(program.stdout.readline()) == UNKNOWN


def test_a_program_without_its_descriptors_takes_nobody_for_dead(node: Node) -> None:
    """A program without its descriptors notices the loss when its turn ends, and a neighbour's work stays."""
    program = ("closed_descriptors.close", "busy", "stream")
    with running(node, HOG, program) as (hog, closing):
        assert len(node.book()[0]["processes"]) == 2
        assert answer(closing) == 2
        assert closing.stdout is not None
        assert json.loads(closing.stdout.readline()) == UNKNOWN
        assert [process["pid"] for process in node.book()[0]["processes"]] == [hog.pid]
        before = of_pid(node, hog)["busy_ns"]
        wait_for(lambda: of_pid(node, hog)["busy_ns"] > before + 100_000_000)


def test_the_next_in_a_lost_slot_is_left_alone(node: Node) -> None:
    """A process that gets the slot of one without descriptors keeps its own memory and work."""
    program, heir = ("closed_descriptors.close", "memory", "device"), ("closed_descriptors.inherit",)
    with running(node, program) as (closing,):
        assert closing.stdin is not None
        assert closing.stdout is not None
        closing.stdin.write("\n")
        closing.stdin.flush()
        assert closing.stdout.readline() == "2\n"
        with running(node, heir) as (inheriting,):
            process = of_pid(node, inheriting)
            assert process["slot"] == 0
            assert (process["used_bytes"], process["busy_ns"]) == (302 << 20, 50_000_000)
