"""A real kube-apiserver for tests: one for the whole run, emptied before each test, a namespace per test.

There is no controller behind it: nobody makes service accounts, empties namespaces or evicts pods, so nothing
changes but what the test and the parts under test change.
"""

import asyncio
import contextlib
import json
import ssl
import uuid
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.cluster import assets
from tests.servers.control_plane import ADMIN, ControlPlane, control_plane
from tests.servers.waiting import PATIENCE_S

# Kubernetes makes these namespaces itself. Everything else is a test's and goes before the next one.
SYSTEM_NAMESPACES = {"default", "kube-system", "kube-public", "kube-node-lease"}

# JSON in Kubernetes' form; `Any` because tests read nested values.
Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Answer:
    """The API server's answer: the HTTP status, and the object or a `Status` with the refusal."""

    status: int
    body: Object


class RefusedError(AssertionError):
    """The API server refused a request that the test needs; the message holds the server's text."""


@dataclass(frozen=True, slots=True)
class ApiServer:
    """The API server as a test sees it.

    Attributes:
        plane: The processes; `plane.server.kill()` and `restart()` are for tests that own it.
        http: A session that trusts it.
    """

    plane: ControlPlane
    http: aiohttp.ClientSession

    @property
    def url(self) -> str:
        """Its HTTPS address."""
        return self.plane.url

    @property
    def token(self) -> str:
        """The administrator's bearer token."""
        return self.plane.tokens[ADMIN]

    def kubeconfig(self, user: str = ADMIN) -> Path:
        """A kubeconfig file for `user`, one of `control_plane.USERS`."""
        return self.plane.kubeconfig(user)

    def authorization(self, user: str = ADMIN) -> Mapping[str, str]:
        """The header that makes a request of `http` one of `user`, for streams, which `call` does not read."""
        return {"Authorization": f"Bearer {self.plane.tokens[user]}"}

    async def call(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        user: str = ADMIN,
        content_type: str | None = None,
    ) -> Answer:
        """Send one request and return the answer, whatever its status.

        Args:
            method: GET, POST, PUT, PATCH or DELETE.
            path: With its query, for instance `/api/v1/nodes?limit=1`.
            body: An object, sent as JSON; None sends none.
            user: The user that sends it.
            content_type: Default is plain JSON, and for PATCH a JSON merge patch.
        """
        default = "application/merge-patch+json" if method == "PATCH" else "application/json"
        headers = {**self.authorization(user), "Content-Type": content_type or default}
        data = None if body is None else json.dumps(body)
        async with self.http.request(method, path, data=data, headers=headers) as answer:
            return Answer(answer.status, await answer.json(content_type=None))

    async def get(self, path: str) -> Object:
        """The object at `path`; raises `RefusedError` when there is none."""
        return await self.must("GET", path)

    async def must(self, method: str, path: str, body: object = None, *, user: str = ADMIN) -> Object:
        """Like `call`, for what has to succeed: the object, or `RefusedError`."""
        answer = await self.call(method, path, body, user=user)
        if answer.status >= 400:
            raise RefusedError(f"{method} {path}: {answer.status} {answer.body.get('message', answer.body)}")
        return answer.body

    async def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        """Run the real kubectl as the administrator, and return its output; raises `RefusedError` if it fails."""
        process = await asyncio.create_subprocess_exec(
            assets.binary("kubectl"),
            f"--kubeconfig={self.kubeconfig()}",
            f"--cache-dir={self.plane.directory / 'kubectl'}",
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            async with asyncio.timeout(PATIENCE_S):
                output, errors = await process.communicate(stdin.encode() if stdin is not None else None)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode != 0:
            raise RefusedError(f"kubectl {' '.join(arguments)}: {errors.decode()}")
        return output.decode()

    async def purge(self) -> None:
        """Remove all nodes, all pods, and all namespaces that are not Kubernetes' own."""
        await self.must("DELETE", "/api/v1/nodes?gracePeriodSeconds=0")
        filled = {
            item["metadata"]["namespace"]
            for kind in ("pods", "events")
            for item in (await self.get(f"/api/v1/{kind}"))["items"]
        }
        names = {item["metadata"]["name"] for item in (await self.get("/api/v1/namespaces"))["items"]}
        for name in filled | (names - SYSTEM_NAMESPACES):
            await self.purge_namespace(name)

    async def purge_namespace(self, name: str) -> None:
        """Remove a namespace's pods and events, and itself unless it is Kubernetes' own."""
        for kind in ("pods", "events"):
            await self.must("DELETE", f"/api/v1/namespaces/{name}/{kind}?gracePeriodSeconds=0")
        if name in SYSTEM_NAMESPACES:
            return
        await self.must("DELETE", f"/api/v1/namespaces/{name}")
        # The controller that would empty and remove the namespace does not run, so this is its last step.
        emptied = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}, "spec": {}}
        await self.must("PUT", f"/api/v1/namespaces/{name}/finalize", emptied)


@pytest.fixture(scope="session")
async def session_apiserver(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ApiServer]:
    """The API server of the whole run. Tests use `apiserver`."""
    async with _running(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture
async def own_apiserver(tmp_path: Path) -> AsyncIterator[ApiServer]:
    """An API server for this test alone, which the test kills and restarts."""
    async with _running(tmp_path / "cluster") as running:
        yield running


@contextlib.asynccontextmanager
async def _running(directory: Path) -> AsyncIterator[ApiServer]:
    async with control_plane(directory) as plane:
        context = await asyncio.to_thread(ssl.create_default_context, cafile=plane.ca_file)
        connector = aiohttp.TCPConnector(ssl=context)
        async with aiohttp.ClientSession(plane.url, connector=connector) as http:
            yield ApiServer(plane, http)


@pytest.fixture
async def apiserver(session_apiserver: ApiServer) -> ApiServer:
    """A real kube-apiserver with no node, no pod and only Kubernetes' own namespaces. Tests do not kill it."""
    await session_apiserver.purge()
    return session_apiserver


@pytest.fixture
async def namespace(apiserver: ApiServer) -> AsyncIterator[str]:
    """The name of a fresh namespace, which goes after the test with its pods and events."""
    name = f"test-{uuid.uuid4().hex[:8]}"
    await apiserver.must("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    yield name
    await apiserver.purge_namespace(name)
