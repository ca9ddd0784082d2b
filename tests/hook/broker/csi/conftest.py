"""A node with a mount namespace of its own, so that no mount of a test reaches the machine.

A test needs root, and the right to make mount namespaces. Without them it is skipped, and says what is missing.
"""

import asyncio
import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Final

import pytest

from hook.broker.core.volume import Mount, read_mounts
from plimsoll.ids import PodUid
from plimsoll.native import HOOK_LIBRARY
from plimsoll.quantity import GIB
from tests.hook.broker.conftest import Broker, Process, until
from tests.hook.broker.csi.kubelet import Kubelet
from tests.servers.apiserver import ApiServer, Object
from tests.servers.objects import create_node, create_pod, pod_manifest
from tests.servers.waiting import PATIENCE_S

NODE: Final = "n1"
GPU: Final = "GPU-aaaa"
ON_THE_NODE: Final = ""
IN_A_CONTAINER: Final = "mount --make-private {root} && mount --make-private {root}/../kubelet && "
"""A DaemonSet's container shares the mounts in the kubelet's `pods` with the node, and no others."""


@pytest.fixture(scope="session", autouse=True)
def _grpc(grpc_stays: None) -> None:
    """All tests here speak gRPC."""


def missing_right() -> str | None:
    """The reason why this machine cannot run the tests; None where it can."""
    if os.geteuid() != 0:
        return "mounts need root: run these tests as root"
    tried = subprocess.run(["unshare", "--mount", "true"], check=False, capture_output=True)
    return f"unshare --mount failed: {tried.stderr.decode()}" if tried.returncode else None


class NodeMachine:
    """A machine: a mount namespace, the broker's directory and the kubelet's.

    Attributes:
        kubelet: the kubelet.
        broker: the broker.
        library: the library that the broker installs.
    """

    def __init__(self, directory: Path, namespace_pid: int, api: ApiServer, namespace: str) -> None:
        self._pid = namespace_pid
        self._api = api
        self._namespace = namespace
        self.directory = directory
        self.kubelet = Kubelet(directory / "kubelet")
        self.library = directory / "libplimsoll.so"
        self.put_library(b"version 1")
        self.broker = Broker(
            directory / "root",
            {
                "kubeconfig": str(api.kubeconfig()),
                "node": NODE,
                "kubelet_root": str(self.kubelet.directory),
                "hook_library": str(self.library),
            },
        )
        self.broker.root.mkdir(exist_ok=True)

    def put_library(self, content: bytes) -> None:
        """Put another version of the library beside the broker: the loader reads nothing behind its end."""
        self.library.write_bytes(HOOK_LIBRARY.read_bytes() + content)

    async def start(self, where: str = ON_THE_NODE, **settings: str) -> None:
        """Start the broker, and let the kubelet find it."""
        await self.launch(where, **settings)
        await self.broker.client.connect()
        assert await self.kubelet.register() == NODE

    async def launch(self, where: str = ON_THE_NODE, **settings: str) -> None:
        """Start the broker."""
        script = f'{where.format(root=self.broker.root)}exec "$0" "$@"'
        unshare = ("unshare", "--mount", "--propagation", "unchanged") if where else ()
        self.broker.wrapper = (*self.inside, *unshare, "sh", "-c", script)
        await self.broker.launch(**settings)

    @property
    def inside(self) -> tuple[str, ...]:
        """A command that runs another one in the machine's mount namespace, where its directory is `/`."""
        return ("nsenter", f"--mount=/proc/{self._pid}/ns/mnt", "env", f"PYTHONPATH={Path.cwd()}")

    def see(self, path: Path) -> Path:
        """A path of the machine, as this process reaches it."""
        return Path(f"/proc/{self._pid}/root{path}")

    def mounts(self) -> tuple[Mount, ...]:
        """The machine's mounts below its two directories, apart from the broker's stage."""
        table = read_mounts(Path(f"/proc/{self._pid}/mountinfo").read_text())
        ours = {
            str(self.directory / place) for place in ("root", "kubelet", "kubelet/pods", "root/csi/stage")
        }
        return tuple(
            one for one in table if one.point.startswith(f"{self.directory}/") and one.point not in ours
        )

    async def pod(self, name: str = "p", *, share_pct: int = 30, node: str = NODE, **changes: str) -> PodUid:
        """Create a pod that the placer has bound; returns its uid.

        Args:
            name: the name of the pod.
            share_pct: its share of the only GPU.
            node: its node.
            changes: `decision`, another value of that annotation, empty for none; `resources`, empty for none.
        """
        grant = {"gpu": GPU, "memory_bytes": GIB, "line_bytes": GIB, "share_pct": share_pct}
        decision = {"score": 1.0, "policy": "headroom", "time": "t", "containers": {"main": [grant]}}
        value = changes.get("decision", json.dumps(decision))
        resources = {"plimsoll.dev/gpu-memory": "1Gi"} if changes.get("resources", "1") else {}
        manifest: Object = pod_manifest(
            name, resources, annotations={"plimsoll.dev/decision": value} if value else {}
        )
        manifest["spec"]["nodeName"] = node
        return PodUid((await create_pod(self._api, self._namespace, manifest))["metadata"]["uid"])

    async def delete_pod(self, name: str = "p") -> None:
        """Delete a pod at once, as by force."""
        path = f"/api/v1/namespaces/{self._namespace}/pods/{name}?gracePeriodSeconds=0"
        await self._api.must("DELETE", path)

    async def run(self, uid: PodUid) -> Process:
        """Start a program in the pod's container, with the directories of its volume."""
        target = self.kubelet.target(uid)
        place = (str(target / "limits"), str(target / "counts"))
        return await self.broker.spawn(*self.inside, place=place)

    async def until_gone(self) -> None:
        """Wait until nothing of any pod is mounted, and the broker has no pod."""

        async def holds() -> bool:
            return not self.mounts() and not (await self.broker.client.describe()).containers

        await until(holds, "no mount and no pod left")


@pytest.fixture(name="directory")
def short_directory() -> Iterator[Path]:
    """A directory whose path is short enough for sockets below it."""
    place = Path(tempfile.mkdtemp(prefix="csi-", dir="/tmp"))
    yield place
    shutil.rmtree(place)


@pytest.fixture(name="machine")
async def node_machine(apiserver: ApiServer, namespace: str, directory: Path) -> AsyncIterator[NodeMachine]:
    """A node without a running broker."""
    problem = await asyncio.to_thread(missing_right)
    if problem is not None:
        pytest.skip(problem)
    # Shared only once all are bound: a bind of a directory in a shared mount would be that mount's peer.
    script = (
        'cd "$0" && for d in root kubelet kubelet/pods; do mkdir -p $d && mount --bind $d $d; done'
        " && for d in root kubelet kubelet/pods; do mount --make-shared $d; done"
        " && echo ready && exec sleep infinity"
    )
    holder = await asyncio.create_subprocess_exec(
        *("unshare", "--mount", "sh", "-c", script, str(directory)), stdout=asyncio.subprocess.PIPE
    )
    assert holder.stdout is not None
    async with asyncio.timeout(PATIENCE_S):
        assert await holder.stdout.readline() == b"ready\n"
    await create_node(apiserver, NODE)
    machine = NodeMachine(directory, holder.pid, apiserver, namespace)
    try:
        yield machine
    finally:
        await machine.broker.close()
        with contextlib.suppress(ProcessLookupError):
            holder.send_signal(signal.SIGKILL)
        await holder.wait()
