"""The line in the driver holds before a pod's first program runs, and then by each container's own control group."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from hook.broker.core.enforcement import UNKNOWN_CONTEXT_BYTES
from plimsoll.broker.wire import RUN_NAMESPACE, ContainerLines, Line, Register
from plimsoll.ids import PodUid
from plimsoll.quantity import GIB
from tests.hook.broker.cgroups import cgroup_tree, make_container_group, make_pod_group
from tests.hook.broker.conftest import MAIN, until
from tests.hook.broker.csi.conftest import NodeMachine
from tests.hook.broker.csi.kubelet import RefusedError
from tests.hook.broker.test_driver_lines import BUILD, GPUS, describe_node
from tests.servers.apiserver import ApiServer

ANOTHER: Final = Register(
    pod=PodUid("another"),
    namespace=RUN_NAMESPACE,
    name="another",
    containers=(ContainerLines(name=MAIN, lines=(Line(gpu=GPUS[1], line_bytes=GIB),)),),
)
ID: Final = "0a1b" * 16


@pytest.fixture(name="groups")
def _groups(directory: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Control groups, and an emulated driver for all that the test starts."""
    describe_node(directory / "node")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(BUILD / "emulator"))
    monkeypatch.setenv("PLIMSOLL_EMULATOR", str(directory / "node"))
    with cgroup_tree() as root:
        yield root


async def pod(machine: NodeMachine) -> PodUid:
    """A pod of two containers with lines of 1 and 2 GiB on the first GPU."""
    grants = {
        name: [{"gpu": GPUS[0], "memory_bytes": size, "line_bytes": size}]
        for name, size in (("main", GIB), ("side", 2 * GIB))
    }
    decision = {"score": 1.0, "policy": "headroom", "time": "t", "containers": grants}
    return await machine.pod(decision=json.dumps(decision))


async def limit(machine: NodeMachine, group: Path) -> str:
    """A control group's limit in the driver."""
    operator = await machine.broker.spawn(module="tests.hook.broker.driverlimits")
    return await operator.do(f"get 0 {group}")


async def test_a_pods_line_is_in_the_driver_before_its_volume(
    groups: Path, machine: NodeMachine, apiserver: ApiServer, namespace: str
) -> None:
    """The volume comes after the pod's line. A container's own line follows once the pod's status has its id."""
    await machine.start(cgroup_root=str(groups))
    uid = await pod(machine)

    async def is_registered() -> bool:
        return bool((await machine.broker.client.describe()).containers)

    await until(is_registered, "the pod is registered, before it has a control group")
    await machine.broker.client.register(
        ANOTHER
    )  # Registrations come one after the other: the pod's is over.
    group = make_pod_group(groups, uid)
    await machine.kubelet.publish(uid)
    assert await limit(machine, group) == str(3 * GIB + 2 * UNKNOWN_CONTEXT_BYTES)
    container = make_container_group(group, ID)
    status = {
        "containerStatuses": [
            {
                **dict.fromkeys(("image", "imageID"), "i"),
                "name": "main",
                "containerID": f"containerd://{ID}",
                "ready": True,
                "restartCount": 0,
            }
        ]
    }
    await apiserver.must("PATCH", f"/api/v1/namespaces/{namespace}/pods/p/status", {"status": status})

    async def is_set() -> bool:
        return await limit(machine, container) == str(GIB + UNKNOWN_CONTEXT_BYTES)

    await until(is_set, "the container's own line")


async def test_without_a_control_group_only_the_library_lets_a_pod_start(
    groups: Path, machine: NodeMachine
) -> None:
    """`both` starts the pod and logs the reason; `driver` keeps it from starting, and its events say why."""
    await machine.start(cgroup_root=str(groups))
    uid = await pod(machine)
    await machine.kubelet.publish(uid)
    [logged] = machine.broker.log("driver_line_not_set")
    assert f"no control group of the pod is below {groups}" in logged["problem"]
    await machine.kubelet.unpublish(uid)
    await machine.broker.stop()
    await machine.start(cgroup_root=str(groups), enforcement="driver")
    with pytest.raises(RefusedError, match=r"the driver does not hold the lines of pod .* no control group"):
        await machine.kubelet.publish(uid)
