"""The stub of NVIDIA's runtime shows a container exactly the GPUs that it asks for, in both of its modes."""

from typing import Any

import pytest

from plimsoll.quantity import GIB
from tests.node.driver import TOTAL_GIB, UUIDS
from tests.node.node import Node, program_pod
from tests.node.progress import say

pytestmark = [pytest.mark.node, pytest.mark.timeout(600)]

VISIBLE = "NVIDIA_VISIBLE_DEVICES"
CASES: dict[str, list[int] | None] = {
    UUIDS[1]: [1],
    f"{UUIDS[1]},{UUIDS[0]}": [0, 1],
    "0": [0],
    "all": [0, 1],
    "none": [],
    "void": None,
    "": None,
}
"""The requests of containers, each with the indices of the GPUs that it sees; None: it has no driver at all."""


def gpus(seen: dict[str, Any], api: str) -> list[str] | None:
    """The UUIDs that a container saw by CUDA or NVML; None without the library."""
    return None if seen[api] is None else [gpu["uuid"] for gpu in seen[api]["gpus"]]


@pytest.mark.parametrize("runtime", ["nvidia", "nvidia-cdi"])
async def test_a_container_sees_the_gpus_that_it_asks_for(node: Node, space: str, runtime: str) -> None:
    """CUDA, NVML and the device files agree; another process of the container sees the same (`kubectl exec`)."""
    pods = {f"asks-{number}": wanted for number, wanted in enumerate(CASES)}
    for name, wanted in pods.items():
        pod = program_pod(name, "view", env={VISIBLE: wanted}, runtimeClassName=runtime)
        await node.create(space, pod)
    for name, wanted in pods.items():
        await node.until_phase(space, name, "Succeeded")
        seen, expected = await node.seen(space, name), CASES[wanted]
        say(f"{runtime}: {VISIBLE}={wanted!r}", **seen)
        uuids = None if expected is None else [UUIDS[index] for index in expected]
        assert gpus(seen, "nvml") == uuids
        assert gpus(seen, "cuda") == uuids
        assert seen["devices"] == [f"/dev/nvidia{index}" for index in expected or ()]
        if uuids:
            assert {gpu["total_bytes"] for gpu in seen["nvml"]["gpus"]} == {TOTAL_GIB * GIB}


async def test_an_unknown_gpu_fails_the_containers_start(node: Node, space: str) -> None:
    """As with the original, the pod's status names the GPU."""
    for runtime in ("nvidia", "nvidia-cdi"):
        pod = program_pod(f"wrong-{runtime}", "view", env={VISIBLE: "GPU-0"}, runtimeClassName=runtime)
        await node.create(space, pod)
    for runtime in ("nvidia", "nvidia-cdi"):
        failed = await node.until_phase(space, f"wrong-{runtime}", "Failed")
        state = failed["status"]["containerStatuses"][0]["state"]["terminated"]
        say(f"{runtime}: unknown GPU", reason=state["reason"], message=state["message"])
        assert "GPU-0" in state["message"]


async def test_a_command_in_a_running_container_sees_the_same(node: Node, space: str) -> None:
    """`kubectl exec` gets the container's GPUs, as the driver's files are mounts and need no variable."""
    pod = program_pod("long", "sleep", "600", env={VISIBLE: UUIDS[1]}, runtimeClassName="nvidia")
    await node.create(space, pod)
    await node.until_ready(space, "long")
    assert UUIDS[1] in await node.run(space, "long", "view")
    assert UUIDS[0] not in await node.run(space, "long", "env", "-u", VISIBLE, "view")
