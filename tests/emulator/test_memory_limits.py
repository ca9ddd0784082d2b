"""Limits of control groups in the emulated driver: who is charged, who may set them, and what is refused."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.emulator.nvml_program import LIBRARIES
from tests.hook.broker.cgroups import cgroup_tree, inside

PROGRAM: Final = Path(__file__).parent / "programs" / "group_limits.py"
MIB: Final = 1 << 20
NOT_SUPPORTED, NOT_FOUND, NO_PERMISSION, INVALID, FUNCTION_NOT_FOUND = 3, 6, 4, 2, 13


class Node:
    """An emulated node of one GPU of 1 GiB, whose contexts cost 100 MiB, and a tree of control groups."""

    def __init__(self, directory: Path, groups: Path) -> None:
        self.file = directory / "node"
        self.groups = groups
        self.describe("615.71.09")

    def describe(self, driver: str, gpu: str = "") -> None:
        """Write the node file."""
        self.file.write_text(f"driver = {driver}\n[gpu 0]\nmemory = 1Gi\ncontext = 100Mi\n{gpu}\n")

    def run(self, code: str, group: Path | None = None, uid: int = 0) -> Any:  # noqa: ANN401 - any JSON
        """Evaluate a list of expressions in a process in a control group; returns their values."""
        environment = os.environ | {"PLIMSOLL_EMULATOR": str(self.file), "LD_LIBRARY_PATH": str(LIBRARIES)}
        wrapper = inside(group) if group else ()
        command = [*wrapper, sys.executable, str(PROGRAM), code, str(uid)]
        return json.loads(subprocess.run(command, env=environment, check=True, capture_output=True).stdout)


@pytest.fixture(name="node")
def _node(tmp_path: Path) -> Iterator[Node]:
    with cgroup_tree() as groups:
        yield Node(tmp_path, groups)


def test_a_group_and_all_below_it_hold_no_more_than_its_limit(node: Node) -> None:
    """A process two groups below a limit is charged, context and all; one beside it is not."""
    pod, beside = node.groups / "pod", node.groups / "beside"
    (pod / "container").mkdir(parents=True)
    beside.mkdir()
    assert node.run(f"[put('{pod}', {200 * MIB}), get('{pod}')]") == [0, [0, 200 * MIB, 0]]
    code = f"[context(), alloc({100 * MIB}), alloc({2 * MIB}), get('{pod}')[2]]"
    assert node.run(code, pod / "container") == [0, 0, 2, 200 * MIB]
    assert node.run(code, beside) == [0, 0, 0, 0]
    assert node.run(f"get('{pod}')[2]") == 0, "the dead hold nothing"


def test_the_lowest_of_several_limits_holds(node: Node) -> None:
    """A container's own limit holds beside its pod's, whichever is lower."""
    container = node.groups / "pod/container"
    container.mkdir(parents=True)
    for pod_mib, container_mib in ((150, 400), (400, 150)):
        limits = f"put('{container.parent}', {pod_mib * MIB}), put('{container}', {container_mib * MIB})"
        assert node.run(f"[{limits}]") == [0, 0]
        assert node.run(f"[context(), alloc({50 * MIB}), alloc({2 * MIB})]", container) == [0, 0, 2]


def test_a_limit_below_the_use_has_no_effect_and_a_removed_one_is_gone(node: Node) -> None:
    """The earlier limit stays where the group holds more; without limits the card is the limit."""
    group = node.groups / "pod"
    group.mkdir()
    lower = f"put('{group}', {300 * MIB}), context(), put('{group}', {50 * MIB}), get('{group}')[1]"
    assert node.run(f"[{lower}]", group) == [0, 0, 0, 300 * MIB]
    remove = f"put('{group}', 2**64 - 1), get('{group}'), context(), alloc({900 * MIB})"
    assert node.run(f"[{remove}]", group) == [0, [0, 2**64 - 1, 0], 0, 0]


def test_requests_that_cannot_work_are_refused(node: Node) -> None:
    """Only root sets limits, only of groups that exist, and only with a new driver outside of MIG mode."""
    group = node.groups / "pod"
    group.mkdir()
    bad = f"[put('{group}/none', 5), put('/tmp', 5), put('{group}', 5, soft=6), get('{group}/none')]"
    assert node.run(bad) == [NOT_FOUND, INVALID, INVALID, NOT_FOUND]
    assert node.run(f"[put('{group}', 5), get('{group}')[0]]", uid=65534) == [NO_PERMISSION, 0]
    both = f"[put('{group}', 5), get('{group}')]"
    for driver, gpu, answer in (("614.99", "", FUNCTION_NOT_FOUND), ("615.1", "mig = yes", NOT_SUPPORTED)):
        node.file.with_name("node.state").unlink()
        node.describe(driver, gpu)
        assert node.run(both) == [answer, answer]
