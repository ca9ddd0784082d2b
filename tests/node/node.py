"""A running test node: its control plane, container runtime, kubelet and driver, and what tests do on it."""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from plimsoll.native import PROGRAMS
from plimsoll_cli.demo.servers import EmbeddedServer, running
from tests.node.containers import SOCKET_NAME, containerd_kind, import_image
from tests.node.control import KUBELET_USER, control
from tests.node.driver import Driver, install
from tests.node.images import PAUSE, PROGRAM, program_files, write_archive
from tests.node.kubelet import kubelet_kind
from tests.node.places import NODE
from tests.servers.apiserver import ApiServer, Object
from tests.servers.waiting import until

START_S = 180.0
"""The longest time in which a pod starts on a busy machine: image unpacked, sandbox, network, volumes."""


@dataclass(slots=True)
class Node:
    """A real node.

    Attributes:
        directory: the directory of all files.
        api: its control plane.
        driver: its emulated driver.
        containerd, kubelet: may be killed and restarted.
    """

    directory: Path
    api: ApiServer
    driver: Driver
    containerd: EmbeddedServer
    kubelet: EmbeddedServer
    started_s: float = field(default_factory=time.monotonic)

    async def until_account(self, namespace: str) -> None:
        """Wait for a namespace's service account, without which no pod is admitted."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/default"

        async def look() -> bool:
            return (await self.api.call("GET", path)).status == 200

        await until(look)

    async def remove_namespace(self, name: str) -> None:
        """Delete a namespace and wait until it is gone: its volumes need the broker that served them."""
        path = f"/api/v1/namespaces/{name}"
        await self.api.must("DELETE", path)

        async def gone() -> bool:
            return (await self.api.call("GET", path)).status == 404

        await until(gone, timeout_s=START_S)

    async def create(self, namespace: str, pod: Object) -> Object:
        """Create a pod from a manifest, and return it as stored."""
        return await self.api.must("POST", f"/api/v1/namespaces/{namespace}/pods", pod)

    async def pod(self, namespace: str, name: str) -> Object:
        """The pod as stored."""
        return await self.api.get(f"/api/v1/namespaces/{namespace}/pods/{name}")

    async def pods(self, namespace: str, labels: str = "") -> list[Object]:
        """The pods of a namespace, those with a label alone if one is named (`app=x`)."""
        found: list[Object] = (
            await self.api.get(f"/api/v1/namespaces/{namespace}/pods?labelSelector={labels}")
        )["items"]
        return found

    async def until_phase(self, namespace: str, name: str, *phases: str) -> Object:
        """Wait until the pod is in one of the phases, and return it. A failure names the pod's events."""
        return await self._until(namespace, name, lambda pod: pod["status"].get("phase") in phases)

    async def until_ready(self, namespace: str, name: str) -> Object:
        """Wait until every container of the pod is ready, and return it. A failure names the pod's events."""
        return await self._until(namespace, name, says_ready)

    async def _until(self, namespace: str, name: str, wanted: Callable[[Object], bool]) -> Object:
        async def look() -> Object | None:
            pod = await self.pod(namespace, name)
            return pod if wanted(pod) else None

        try:
            found = await until(look, timeout_s=START_S)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{await self.account(namespace, name)}") from error
        assert found is not None
        return found

    async def account(self, namespace: str, name: str) -> str:
        """A pod's status, events and log, for messages of failures."""
        pod = await self.pod(namespace, name)
        lines = [json.dumps(pod["status"], indent=1), *await self.events(namespace, name)]
        with contextlib.suppress(AssertionError):
            lines.append(await self.logs(namespace, name))
        return "\n".join(lines)

    async def events(self, namespace: str, name: str) -> list[str]:
        """The events of a pod: reason and message."""
        items = (await self.api.get(f"/api/v1/namespaces/{namespace}/events"))["items"]
        return [
            f"{one['reason']}: {one.get('message', '')}"
            for one in items
            if one["involvedObject"]["name"] == name
        ]

    async def logs(self, namespace: str, name: str) -> str:
        """The output of a pod's only container, by `kubectl logs`."""
        return await self.api.kubectl("logs", f"--namespace={namespace}", name)

    async def run(self, namespace: str, name: str, *command: str) -> str:
        """The output of a command in a pod's first container, by `kubectl exec`."""
        return await self.api.kubectl("exec", f"--namespace={namespace}", name, "--", *command)

    async def delete(self, namespace: str, name: str) -> None:
        """Delete a pod and wait until it is gone."""
        path = f"/api/v1/namespaces/{namespace}/pods/{name}"
        await self.api.call("DELETE", path)

        async def gone() -> bool:
            return (await self.api.call("GET", path)).status == 404

        await until(gone, timeout_s=START_S)

    async def seen(self, namespace: str, name: str) -> dict[str, Any]:
        """The first line of `view`'s output in a pod. A container is ready before it has written that line."""

        async def look() -> list[str]:
            return [line for line in (await self.logs(namespace, name)).splitlines() if line.startswith("{")]

        found: dict[str, Any] = json.loads((await until(look, timeout_s=START_S))[0])
        return found


@contextlib.asynccontextmanager
async def running_node(directory: Path) -> AsyncIterator[Node]:
    """Start a node with its control plane, and stop it in the end; entered once it is Ready.

    Containers outlive containerd; they end with the namespaces that the node runs in.
    """
    archives = await asyncio.to_thread(_write_images, directory)
    driver = await asyncio.to_thread(install, directory / "driver")
    root = directory / "containerd"
    kind = await asyncio.to_thread(containerd_kind, root, PAUSE, driver.runtimes)
    async with control(directory / "control") as api, running(kind, root) as containerd:
        for archive in archives:
            await import_image(root, archive)
        kubeconfig = api.plane.kubeconfig(KUBELET_USER)
        kubelet = kubelet_kind(directory / "kubelet", root / SOCKET_NAME, kubeconfig)
        async with running(kubelet, directory / "kubelet") as server:
            node = Node(directory, api, driver, containerd, server)
            await until(lambda: is_ready(api), timeout_s=START_S)
            for name in driver.runtimes:
                body = {"metadata": {"name": name}, "handler": name}
                await api.must("POST", "/apis/node.k8s.io/v1/runtimeclasses", body)
            yield node


async def is_ready(api: ApiServer) -> bool:
    """Whether the node says that it is ready."""
    answer = await api.call("GET", f"/api/v1/nodes/{NODE}")
    return answer.status == 200 and says_ready(answer.body)


def says_ready(node_or_pod: Object) -> bool:
    """Whether the condition `Ready` of a node or a pod is true: of a pod, each of its containers is ready."""
    conditions = node_or_pod["status"].get("conditions", [])
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def _write_images(directory: Path) -> Sequence[Path]:
    programs = {name: PROGRAMS / name for name in ("busy", "view", "timed")}
    paths = directory / "pause.tar", directory / "program.tar"
    write_archive(paths[0], PAUSE, program_files({}), ("/bin/busybox", "sleep", "2147483647"))
    write_archive(paths[1], PROGRAM, program_files(programs), ("view",))
    return paths


def program_pod(
    name: str,
    *command: str,
    limits: Mapping[str, str] | None = None,
    env: Mapping[str, str] | None = None,
    change: Callable[[dict[str, Any]], None] = lambda _: None,
    **spec: object,
) -> Object:
    """A pod of one container `main` with the programs of the tests.

    Args:
        name: its name; also its label `app`.
        command: the program with its arguments.
        limits: the limits of resources.
        env: the container's variables.
        change: changes the container.
        spec: further fields of the pod's specification.
    """
    container = {
        "name": "main",
        "image": PROGRAM,
        "imagePullPolicy": "Never",
        "command": list(command),
        "env": [{"name": key, "value": value} for key, value in (env or {}).items()],
        "resources": {"limits": dict(limits or {})},
    }
    change(container)
    fields = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [container]}
    metadata = {"name": name, "labels": {"app": name}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {**fields, **spec}}
