"""A server that accepts connections and never answers is named within seconds, and every command ends."""

import asyncio
import contextlib
import json
import socket
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from aiohttp import web

from plimsoll.bus.access import BusAccess
from plimsoll.kube import client as kube
from plimsoll.kube.transport import PatchKind
from plimsoll.part.errors import PlimsollError
from plimsoll.placer_api import client as placer_api
from plimsoll.placer_api.rpc import Resize
from plimsoll_cli import asking, events, output
from plimsoll_cli.cluster import Cluster
from plimsoll_cli.cordon import NotCordonedError, connected, cordon
from plimsoll_cli.doctor.cluster import cluster as checked
from plimsoll_cli.explain import explanation
from plimsoll_cli.gpus import nodes_of
from plimsoll_cli.live import snapshot
from plimsoll_cli.resize_pod import NotConfirmedError, resize_pod
from plimsoll_cli.service_proxy import PlacerService
from tests.kube.plugin import kubeconfig
from tests.plimsoll_cli.doctor.findings import found
from tests.servers.waiting import PATIENCE_S

ASKED = Resize(pod="p", namespace="t", gpu_memory="6Gi")


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The port of a server whose connections nobody reads; requests and patience are short."""
    for module, name in (
        (kube, "REQUEST_TIMEOUT_S"),
        (asking, "TIMEOUT_S"),
        (placer_api, "SILENT_S"),
    ):
        monkeypatch.setattr(module, name, 0.6)
    monkeypatch.setattr(output, "SLOW_S", 0.01)
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield int(server.getsockname()[1])


async def doctor(cluster: Cluster) -> None:
    """The doctor's checks of a cluster, which report instead of raising."""
    [finding] = await found(checked(cluster, "plimsoll-system"))
    raise PlimsollError(finding.text)


COMMANDS: dict[str, Callable[[Cluster], Awaitable[object]]] = {
    "nodes": lambda cluster: nodes_of(PlacerService(cluster, "plimsoll-system")),
    "top --once": lambda cluster: snapshot(PlacerService(cluster, "plimsoll-system")),
    "explain": lambda cluster: explanation(PlacerService(cluster, "plimsoll-system"), "t", "p", 1, None),
    "cordon": lambda cluster: cordon(PlacerService(cluster, "plimsoll-system"), cluster, "n1/0"),
    "resize": lambda cluster: resize_pod(ASKED, cluster, 30.0),
    "doctor": doctor,
}


@pytest.mark.parametrize("scheme", ["https", "http"])
@pytest.mark.parametrize("command", COMMANDS)
async def test_a_silent_api_server_is_named(
    silent: int, tmp_path: Path, capfd: pytest.CaptureFixture[str], command: str, scheme: str
) -> None:
    """Standard error has the server while the command still waits, and the command's own error ends it."""
    url = f"{scheme}://127.0.0.1:{silent}"
    file = kubeconfig(tmp_path / "config", url, {"token": "t"}, {"insecure-skip-tls-verify": True})
    with pytest.raises(PlimsollError, match="no answer"):
        async with asyncio.timeout(PATIENCE_S):
            await COMMANDS[command](Cluster(str(file)))
    assert f"plimsoll: {url} has not answered for" in capfd.readouterr().err


@pytest.mark.parametrize("ask", [nodes_of, snapshot])
async def test_a_silent_placer_is_named(
    silent: int, capfd: pytest.CaptureFixture[str], ask: Callable[[str], Awaitable[object]]
) -> None:
    """A placer that is named by its URL, as after `kubectl port-forward`, is no exception."""
    with pytest.raises(PlimsollError, match="no placer answers"):
        async with asyncio.timeout(PATIENCE_S):
            await ask(f"http://127.0.0.1:{silent}")
    assert f"the placer at http://127.0.0.1:{silent} has not answered" in capfd.readouterr().err


async def test_a_silent_bus_is_named(
    silent: int, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """So it is with NATS, which `plimsoll events` reads."""
    url = f"nats://127.0.0.1:{silent}"
    monkeypatch.setattr(events, "CONNECT_S", 1.0)
    with pytest.raises(events.NoEventsError, match="does not answer"):
        await events.connected(url, BusAccess(), "test", [])
    assert capfd.readouterr().err.count(f"NATS at {url} has not answered") == 1


async def test_a_silent_plugin_is_named(
    tmp_path: Path, silent: int, capfd: pytest.CaptureFixture[str]
) -> None:
    """A plugin for credentials that waits for a person is no mystery."""
    user: dict[str, object] = {
        "command": "sleep",
        "args": ["1"],
        "apiVersion": "client.authentication.k8s.io/v1",
    }
    file = kubeconfig(tmp_path / "config", f"http://127.0.0.1:{silent}", {"exec": user})
    with pytest.raises(NotConfirmedError):
        await resize_pod(ASKED, Cluster(str(file)), 30.0)
    assert "the kubeconfig's plugin for credentials has not answered" in capfd.readouterr().err


async def test_the_time_of_a_resize_is_that_of_all_its_requests(tmp_path: Path) -> None:
    """`--timeout-s` bounds the API server's answers too, of which each may take half a minute."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        cluster = Cluster(str(kubeconfig(tmp_path / "config", url, {"token": "t"})))
        with pytest.raises(
            NotConfirmedError, match=r"gave no answer in 0\.2 s; nothing was changed; ask again"
        ):
            await resize_pod(ASKED, cluster, 0.2)


async def test_nothing_was_changed_where_nothing_was_sent(tmp_path: Path) -> None:
    """A refused connection leaves no doubt."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
    cluster = Cluster(str(kubeconfig(tmp_path / "config", url, {"token": "t"})))
    with pytest.raises(NotConfirmedError, match=r"nothing listens there .*; nothing was changed"):
        await resize_pod(ASKED, cluster, 30.0)
    with pytest.raises(NotCordonedError, match=r"nothing listens there .*; nothing was changed"):
        async with connected(cluster) as client:
            await client.patch("/api/v1/nodes/n1", {}, PatchKind.MERGE)


async def test_a_write_without_an_answer_stays_unknown(tmp_path: Path) -> None:
    """Only what was surely not sent is surely not done."""

    async def answer(request: web.Request) -> web.Response:
        if request.method == "PATCH":
            assert request.transport is not None
            request.transport.close()
        pod = {"metadata": {"name": "p", "namespace": "t", "uid": "u", "resourceVersion": "1"}}
        body = {**pod, "spec": {"nodeName": "n1", "containers": []}, "status": {}}
        return web.Response(body=json.dumps(body), content_type="application/json")

    application = web.Application()
    application.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(runner.cleanup)
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        url = "http://{}:{}".format(*runner.addresses[0][:2])
        cluster = Cluster(str(kubeconfig(tmp_path / "config", url, {"token": "t"})))
        with pytest.raises(NotConfirmedError, match="it is unknown whether the ticket was written"):
            await resize_pod(ASKED, cluster, 30.0)
        with pytest.raises(NotCordonedError, match="it is unknown whether it was done"):
            async with connected(cluster) as client:
                await client.patch("/api/v1/nodes/n1", {}, PatchKind.MERGE)
