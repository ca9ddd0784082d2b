"""The placer as a process: settings, HTTP, control socket, signals, and SIGKILL of its NATS and Valkey."""

import asyncio
import contextlib
import json
import os
import stat
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import msgspec
import pytest

from plimsoll.placer_api.http import PODS_PATH, STATE_PATH, PodRow, State
from plimsoll_cli.demo.servers import EmbeddedServer
from tests.constants import part_with
from tests.placer.arrivals import bus, eventually, publish, report
from tests.placer.local.world import BUILD, REPOSITORY, emulated_node, idle_report
from tests.servers.apiserver import ApiServer
from tests.servers.objects import create_pod, pod_manifest
from tests.servers.waiting import PATIENCE_S

MANIFEST = """
apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  containers:
    - name: main
      command: [sh, -c, "env; sleep {seconds}"]
      resources: {{limits: {{plimsoll.dev/gpu-memory: 1Gi}}}}
"""


class PlacerProcess:
    """A placer, a client on its control socket, and the URL of its TCP port, which is empty without one."""

    def __init__(self, process: asyncio.subprocess.Process, client: aiohttp.ClientSession, url: str) -> None:
        self.process = process
        self.client = client
        self.url = url

    async def state(self) -> State:
        """The answer of `GET /v1/state`."""
        async with self.client.get("http://placer" + STATE_PATH) as response:
            return msgspec.json.decode(await response.read(), type=State)

    async def orders(self) -> dict[str, tuple[int, int]]:
        """Each node's order in its last report."""
        return {row.node: (row.epoch, row.seq) for row in (await self.state()).nodes}

    async def submit(self, text: str) -> tuple[int, bytes]:
        """Send `POST /v1/pods`; returns status and body."""
        async with self.client.post("http://placer" + PODS_PATH, data=text.encode()) as response:
            return response.status, await response.read()


NODE_WITHOUT_BROKER = {"name": "without-broker", "broker_socket": "/nonexistent/broker.sock"}
"""For tests that place no pod: a placer without any nodes refuses to start."""


@contextlib.asynccontextmanager
async def placer(
    directory: Path, nats: EmbeddedServer, valkey: EmbeddedServer, **settings: str
) -> AsyncIterator[PlacerProcess]:
    """A placer that is ready, with a control socket. At the end SIGTERM must end it with exit code 0."""
    path = directory / "placer.sock"
    nodes = directory / "node-without-broker.json"
    await asyncio.to_thread(nodes.write_text, json.dumps([NODE_WITHOUT_BROKER]))
    given = {
        "LOCAL_NODES": str(nodes),
        "NATS_URL": nats.url,
        "REDIS_URL": valkey.url,
        "CONTROL_SOCKET": str(path),
        **{name.upper(): value for name, value in settings.items()},
    }
    environment = {f"PLIMSOLL_{name}": value for name, value in given.items()}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "placer",
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), **environment},
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    try:
        url = ""
        async with asyncio.timeout(PATIENCE_S):
            while b'"placer ready"' not in (line := await process.stderr.readline()):
                assert line, "the placer ended instead of getting ready"
                if b'"http ready"' in line:
                    url = f"http://127.0.0.1:{json.loads(line)['port']}"
        drain = asyncio.create_task(process.stderr.read())
        async with aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(path))) as client:
            yield PlacerProcess(process, client, url)
        process.terminate()
        async with asyncio.timeout(PATIENCE_S):
            await drain
            assert await process.wait() == 0
        assert not await asyncio.to_thread(path.exists)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def local_settings(directory: Path, name: str, stack: contextlib.AsyncExitStack) -> dict[str, str]:
    """Settings of a placer with one emulated node."""
    node = await stack.enter_async_context(emulated_node(directory / name, name))
    described = [
        {
            "name": node.name,
            "broker_socket": str(node.broker_socket),
            "environment": dict(node.environment),
            "output": str(directory / "output"),
        }
    ]
    path = directory / "nodes.json"
    await asyncio.to_thread(path.write_text, json.dumps(described))
    return {
        "local_nodes": str(path),
    }


async def test_pods_go_in_over_the_control_socket_and_run(
    tmp_path: Path, nats: EmbeddedServer, valkey: EmbeddedServer
) -> None:
    """A manifest sent to the control socket becomes a running pod.

    A bad one is answered with field, value and remedy.
    """
    async with contextlib.AsyncExitStack() as stack:
        settings = await local_settings(tmp_path, "n1", stack)
        jetstream = await stack.enter_async_context(bus(nats))
        await publish(jetstream, idle_report("n1"))
        part = await stack.enter_async_context(placer(tmp_path, nats, valkey, **settings))
        status, body = await part.submit(MANIFEST.format(name="p", seconds=0))
        [row] = msgspec.json.decode(body, type=list[PodRow])
        assert (status, row.phase) == (201, "Pending")

        async def seen() -> list[tuple[str, str | None]]:
            return [(pod.phase, pod.node) for pod in (await part.state()).pods]

        await eventually(seen, [("Succeeded", "n1")])
        output = tmp_path / "output" / f"default_p_{row.uid}" / "main.log"
        text = await asyncio.to_thread(output.read_text)
        assert "PLIMSOLL_NATS_URL" not in text
        bad = MANIFEST.format(name="bad", seconds=0).replace("1Gi", "-1")
        status, body = await part.submit(MANIFEST.format(name="good", seconds=0) + "---" + bad)
        assert status == 400
        assert b"-1 is negative; give 0 or more bytes" in body
        assert len((await part.state()).pods) == 1


async def test_control_socket_is_its_owners_alone(
    tmp_path: Path, nats: EmbeddedServer, valkey: EmbeddedServer
) -> None:
    """Only the owner can open the control socket, and the TCP port takes no pods."""
    async with contextlib.AsyncExitStack() as stack:
        settings = await local_settings(tmp_path, "n1", stack)
        part = await stack.enter_async_context(placer(tmp_path, nats, valkey, http_port="0", **settings))
        mode = (await asyncio.to_thread((tmp_path / "placer.sock").stat)).st_mode
        assert stat.S_IMODE(mode) == 0o600
        async with aiohttp.ClientSession(part.url) as tcp:
            for path in (STATE_PATH, "/healthz", "/readyz", "/metrics"):
                async with tcp.get(path) as response:
                    assert response.status == 200
            async with tcp.post(PODS_PATH, data=MANIFEST.format(name="p", seconds=0)) as response:
                assert response.status == 404
        assert (await part.state()).pods == ()


async def test_kill_9_of_nats_and_valkey_loses_nothing(
    tmp_path: Path, own_nats: EmbeddedServer, own_valkey: EmbeddedServer
) -> None:
    """After SIGKILL and restart of both servers, reports from before and after are there and pods run."""
    async with contextlib.AsyncExitStack() as stack:
        settings = await local_settings(tmp_path, "n1", stack)
        jetstream = await stack.enter_async_context(bus(own_nats))
        await publish(jetstream, idle_report("n1"), report("n2", 1))
        part = await stack.enter_async_context(placer(tmp_path, own_nats, own_valkey, **settings))
        await eventually(part.orders, {"n1": (1, 1), "n2": (1, 1)})
        await own_nats.kill()
        await own_valkey.kill()
        await part.submit(MANIFEST.format(name="meanwhile", seconds=1000))
        await own_valkey.restart()
        await own_nats.restart()
        async with bus(own_nats) as again:
            await publish(again, report("n2", 2))
        await eventually(part.orders, {"n1": (1, 1), "n2": (1, 2)})

        async def phases() -> list[str]:
            return [pod.phase for pod in (await part.state()).pods]

        await eventually(phases, ["Running"])


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("LEASE_S", "soon", "PLIMSOLL_LEASE_S: 'soon' is refused"),
        ("CHECK_S", "2", "PLIMSOLL_CHECK_S: (value not shown) is no setting of Plimsoll"),
        ("POLICY", "best", "PLIMSOLL_POLICY: 'best' is no placement policy; choose one of binpack, "),
        ("REDIS_URL", "localhost", "PLIMSOLL_REDIS_URL: 'localhost' is no URL of such a server"),
        ("HTTP_PORT", "70000", "PLIMSOLL_HTTP_PORT: '70000' is refused"),
        ("LOCAL_NODES", "/no/such.json", "PLIMSOLL_LOCAL_NODES: '/no/such.json' cannot be read"),
        ("CONTROL_SOCKET", "/no/such/dir/s", "PLIMSOLL_CONTROL_SOCKET: '/no/such/dir/s' cannot be used"),
    ],
)
async def test_settings_that_cannot_work_end_it_with_code_2(variable: str, value: str, message: str) -> None:
    """A bad setting ends the placer with exit code 2 and a message of variable, value and remedy."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "placer",
        env={
            **os.environ,
            "PYTHONPATH": str(REPOSITORY),
            "PLIMSOLL_KUBECONFIG": "in-cluster",
            f"PLIMSOLL_{variable}": value,
        },
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(PATIENCE_S):
        _, errors = await process.communicate()
    assert process.returncode == 2
    assert message in json.loads(errors.splitlines()[-1])["problem"]


async def test_a_library_of_another_machine_ends_it_before_a_pod_runs_without_its_line(
    tmp_path: Path,
) -> None:
    """Where pods are to run on this machine, exit code 2 and the file, its path and the remedy."""
    nodes = tmp_path / "nodes.json"
    await asyncio.to_thread(
        nodes.write_text, '[{"name": "n1", "broker_socket": "/no/such", "environment": {}}]'
    )
    library = BUILD / "hook" / "other-machine.so"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, *part_with("placer", f"plimsoll.native.HOOK_LIBRARY=Path({str(library)!r})")),
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), "PLIMSOLL_LOCAL_NODES": str(nodes)},
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(PATIENCE_S):
        _, errors = await process.communicate()
    assert process.returncode == 2
    problem = json.loads(errors.splitlines()[-1])["problem"]
    assert problem.startswith(f"other-machine.so: '{library}' is for ")


async def readiness(part: PlacerProcess) -> int:
    """The status of `/readyz`."""
    async with part.client.get("http://placer/readyz") as response:
        return response.status


NOBODY = """
apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "http://127.0.0.1:9"}}]
users: [{name: u, user: {}}]
"""


async def test_placer_is_not_ready_before_it_saw_the_cluster(
    tmp_path: Path, nats: EmbeddedServer, valkey: EmbeddedServer
) -> None:
    """While the API server is out of reach `/readyz` answers that the placer is not ready."""
    path = tmp_path / "kubeconfig"
    await asyncio.to_thread(path.write_text, NOBODY)
    async with placer(tmp_path, nats, valkey, kubeconfig=str(path)) as part:
        assert await readiness(part) == 503
        assert (await part.state()).nodes == ()


async def test_placer_is_ready_and_signs_with_its_name_in_a_cluster(
    tmp_path: Path, nats: EmbeddedServer, valkey: EmbeddedServer, apiserver: ApiServer, namespace: str
) -> None:
    """`/readyz` answers 200 once the placer has read pods and nodes; its messages to pods name the instance."""
    settings = {"kubeconfig": str(apiserver.kubeconfig()), "instance": "left-hand"}
    async with placer(tmp_path, nats, valkey, **settings) as part:
        await eventually(lambda: readiness(part), 200)
        await create_pod(apiserver, namespace, pod_manifest("p", {"plimsoll.dev/gpu-memory": "1Gi"}))

        async def signatures() -> set[str]:
            events = await apiserver.get(f"/apis/events.k8s.io/v1/namespaces/{namespace}/events")
            return {event["reportingInstance"] for event in events["items"]}

        await eventually(signatures, {"left-hand"})
