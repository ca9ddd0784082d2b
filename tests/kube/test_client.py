"""The transport's errors are split by what the caller does next, on a real API server and through faults."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from plimsoll.kube.client import PROBE_AFTER_S, connect
from plimsoll.kube.models import decode_pod
from plimsoll.kube.transport import (
    ApiError,
    ConflictError,
    GoneError,
    NotFoundError,
    PatchKind,
    RefusedError,
    TransientError,
    error_from,
)
from plimsoll.part.errors import InputError
from plimsoll_cli.demo.servers import free_port
from tests.kube.faults import KUBECONFIG
from tests.servers.apiserver import ApiServer
from tests.servers.objects import create_pod, pod_manifest
from tests.servers.waiting import until_true


async def test_read_create_and_patch_on_a_real_server(apiserver: ApiServer, namespace: str) -> None:
    """A pod is created, patched by merge and strategically, and read back."""
    path = f"/api/v1/namespaces/{namespace}/pods"
    async with connect(apiserver.kubeconfig()) as client:
        await client.post(path, pod_manifest("p"))
        merged = await client.patch(f"{path}/p", {"metadata": {"annotations": {"a": "b"}}}, PatchKind.MERGE)
        assert decode_pod(merged).metadata.annotations == {"a": "b"}
        for kind in ("PodScheduled", "Ready"):
            condition = {"type": kind, "status": "False", "reason": "Test"}
            await client.patch(
                f"{path}/p/status", {"status": {"conditions": [condition]}}, PatchKind.STRATEGIC
            )
        pod = decode_pod(await client.get(f"{path}/p"))
        assert {one.type for one in pod.status.conditions or ()} == {"PodScheduled", "Ready"}


async def test_real_failures_are_distinguished(apiserver: ApiServer, namespace: str) -> None:
    """Absent, conflicting, invalid and forbidden each raise their own error, with the server's message."""
    path = f"/api/v1/namespaces/{namespace}/pods"
    await create_pod(apiserver, namespace, pod_manifest("p"))
    async with connect(apiserver.kubeconfig()) as client:
        with pytest.raises(NotFoundError, match='pods "absent" not found'):
            await client.get(f"{path}/absent")
        with pytest.raises(ConflictError) as conflict:
            await client.post(path, pod_manifest("p"))
        assert (conflict.value.status, conflict.value.reason) == (409, "AlreadyExists")
        with pytest.raises(RefusedError, match="Invalid value"):
            await client.post(path, pod_manifest("Not A Name"))
    async with connect(apiserver.kubeconfig("somebody")) as client:
        with pytest.raises(RefusedError, match="cannot get resource"):
            await client.get(f"{path}/p")


async def test_server_that_is_not_there_is_transient(tmp_path: Path) -> None:
    """A refused connection is transient, so the caller retries."""
    kubeconfig = tmp_path / "config"
    kubeconfig.write_text(KUBECONFIG.format(url=f"http://127.0.0.1:{free_port()}"))
    async with connect(kubeconfig) as client:
        with pytest.raises(TransientError, match="GET /api/v1/pods"):
            await client.get("/api/v1/pods")
        with pytest.raises(TransientError):
            async with client.stream("/api/v1/pods", [], 5) as _:
                pass


async def test_client_that_was_closed_is_transient(tmp_path: Path) -> None:
    """A request that comes while a part ends, after its client was closed, fails like one without an answer."""
    kubeconfig = tmp_path / "config"
    kubeconfig.write_text(KUBECONFIG.format(url=f"http://127.0.0.1:{free_port()}"))
    async with connect(kubeconfig) as client:
        pass
    with pytest.raises(TransientError, match="closed"):
        await client.get("/api/v1/pods")
    with pytest.raises(TransientError, match="closed"):
        async with client.stream("/api/v1/pods", [], 5) as _:
            pass


async def test_cut_answer_is_transient(tmp_path: Path) -> None:
    """An answer that the server cuts off is transient, so the caller retries."""

    async def cut(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{")
        await writer.drain()
        writer.transport.abort()

    kubeconfig = tmp_path / "config"
    async with await asyncio.start_server(cut, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        kubeconfig.write_text(KUBECONFIG.format(url=f"http://127.0.0.1:{port}"))
        async with connect(kubeconfig) as client:
            with pytest.raises(TransientError):
                await client.get("/api/v1/pods")


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, RefusedError),
        (401, RefusedError),
        (404, NotFoundError),
        (408, TransientError),
        (409, ConflictError),
        (410, GoneError),
        (422, RefusedError),
        (429, TransientError),
        (500, TransientError),
        (504, TransientError),
    ],
)
def test_each_status_is_one_error(status: int, kind: type[ApiError]) -> None:
    """Each status raises the error that tells the caller what to do next."""
    assert type(error_from(status, b"{}", "GET /x")) is kind


def test_retry_after_is_read_from_header_or_status() -> None:
    """The pause that a server asks for is read from both places, and its date form is ignored."""
    body = b'{"details":{"retryAfterSeconds":7}}'
    pauses = [
        error.retry_after_s
        for header in (None, "3", "Wed, 21 Oct 2026 07:28:00 GMT")
        if isinstance(error := error_from(429, body, "GET /x", header), TransientError)
    ]
    assert pauses == [7, 3, 7]


def test_proxys_html_is_shown_and_not_decoded() -> None:
    """An answer that is not a `Status` gives a message with the answer's beginning."""
    assert "<html>Bad Gateway" in str(error_from(502, b"<html>Bad Gateway</html>", "GET /x"))


@pytest.mark.parametrize(
    "text", [None, "", "[", "{}", "apiVersion: v1\nkind: Config\ncurrent-context: none\n"]
)
async def test_unusable_kubeconfig_is_refused_by_name(tmp_path: Path, text: str | None) -> None:
    """The message for a missing or malformed kubeconfig names the file."""
    kubeconfig = tmp_path / "my.kubeconfig"
    if text is not None:
        kubeconfig.write_text(text)
    with pytest.raises(InputError, match=r"my\.kubeconfig"):
        async with connect(kubeconfig):
            pass


async def test_outside_a_cluster_the_service_account_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without kubeconfig and outside a cluster, the message names the missing configuration."""
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(InputError, match="run in a pod with a service account, or name a kubeconfig"):
        async with connect():
            pass


async def _answer_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str:
    """Answer a request with an empty object, and return its head."""
    head = await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}")
    await writer.drain()
    writer.close()
    return head.decode()


async def test_a_proxy_of_the_environment_is_used_as_it_was_at_connect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests go through the proxy of the environment, with its credentials, unless the host is excepted."""
    heads: list[str] = []

    async def proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await _answer_once(reader, writer))

    for name in ("NO_PROXY", "no_proxy", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)
    kubeconfig = tmp_path / "config"
    kubeconfig.write_text(KUBECONFIG.format(url="https://api.invalid:6443"))
    async with await asyncio.start_server(proxy, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        monkeypatch.setenv("https_proxy", f"http://me:p%40ss@127.0.0.1:{port}")
        async with connect(kubeconfig) as client:
            monkeypatch.delenv("https_proxy")
            with pytest.raises(TransientError):  # the proxy speaks no TLS
                await client.get("/api/v1/pods")
        monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{port}")
        monkeypatch.setenv("no_proxy", "api.invalid")
        async with connect(kubeconfig) as client:
            with pytest.raises(TransientError):
                await client.get("/api/v1/pods")
    [head] = heads
    assert head.startswith("CONNECT api.invalid:6443 HTTP/1.1")
    assert "Proxy-Authorization: Basic bWU6cEBzcw==" in head  # me:p@ss


async def test_lines_of_a_watch_are_cut_anywhere_and_a_silent_one_ends(tmp_path: Path) -> None:
    """A watch yields whole lines however the server cuts them; a line that does not end in time is a silence."""

    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        for part in (b"on", b"e\ntwo\nth", b"ree\n", b"four"):
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(0.01)  # so that the parts arrive one by one
        while not writer.is_closing():
            writer.write(b".")  # never a line's end
            await asyncio.sleep(0.05)  # a line that goes on and on, slowly

    kubeconfig = tmp_path / "config"
    async with await asyncio.start_server(drip, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        kubeconfig.write_text(KUBECONFIG.format(url=f"http://127.0.0.1:{port}"))
        async with connect(kubeconfig) as client, client.stream("/watch", [], 1.0) as coming:
            lines = [await anext(coming) for _ in range(3)]
            with pytest.raises(TransientError, match="silent for"):
                await anext(coming)
    assert lines == [b"one", b"two", b"three"]


async def test_kernel_probes_a_silent_watch(tmp_path: Path) -> None:
    """A connection without traffic has a timer of the kernel, so a peer that is gone without a word is noticed."""

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\nline\n")
        await reader.read()
        writer.close()

    kubeconfig = tmp_path / "config"
    async with await asyncio.start_server(silent, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        kubeconfig.write_text(KUBECONFIG.format(url=f"http://127.0.0.1:{port}"))
        async with connect(kubeconfig) as client, client.stream("/watch", [], 60) as coming:
            assert await anext(coming) == b"line"
            await until_true(lambda: _timers(port) and all(kind == KEEP_ALIVE for kind, _ in _timers(port)))
            assert max(due_s for _, due_s in _timers(port)) <= PROBE_AFTER_S


KEEP_ALIVE = "02"
"""The kind of a timer, see proc(5) on `/proc/net/tcp`. A timer for data that was not acknowledged comes before it."""


def _timers(port: int) -> list[tuple[str, float]]:
    """The kernel's timers of connections to a port: kind, and seconds until it is due."""
    sockets = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    timers = [fields[5].split(":") for fields in sockets if fields[2].endswith(f":{port:04X}")]
    return [(kind, int(due, 16) / 100) for kind, due in timers]


def test_importing_the_client_does_not_import_kubernetes() -> None:
    """Importing the client does not import the generated client, which commands without a cluster do without."""
    code = "import sys, plimsoll.kube.client; sys.exit('kubernetes' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_connecting_imports_two_parts_of_kubernetes_alone(tmp_path: Path) -> None:
    """A part imports no blocking client, OAuth or websockets, and a policy can import all of it afterwards."""
    kubeconfig = tmp_path / "config"
    kubeconfig.write_text(KUBECONFIG.format(url="http://127.0.0.1:1"))
    code = f"""
import asyncio, sys
from pathlib import Path
from plimsoll.kube.configuration import configured
configuration, _, _ = asyncio.run(configured(Path({str(kubeconfig)!r}), None))
assert configuration.host == "http://127.0.0.1:1"
assert not {{"kubernetes.client", "requests", "oauthlib", "websocket"}} & sys.modules.keys()
from kubernetes.client import CoreV1Api
from kubernetes.aio.client import V1Pod
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
