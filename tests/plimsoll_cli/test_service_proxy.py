"""The commands find the placer of a kubeconfig's cluster: through a real API server's proxy of its Service."""

import asyncio
import base64
import contextlib
import json
import os
import socket
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from placer.api.access import UnknownReaderError
from plimsoll.part.errors import InputError
from plimsoll.placer_api.access import READER
from plimsoll.placer_api.client import NoSuchPodError, PlacerRefusedError
from plimsoll_cli.asking import NoPlacerError, asking
from plimsoll_cli.cluster import Cluster
from plimsoll_cli.gpus import gpus
from plimsoll_cli.live import snapshot
from plimsoll_cli.service_proxy import PORT, SERVICE, PlacerService
from tests.deploy.accounts import kubeconfig_of, readers
from tests.placer.live.world import card, serving, state, world
from tests.placer.local.world import REPOSITORY
from tests.servers.apiserver import ApiServer
from tests.servers.objects import create_pod, pod_manifest


@dataclass
class Readers:
    """Lets every token in that is not refused, and notes it."""

    tokens: list[str] = field(default_factory=list)
    refused: bool = False

    async def check(self, token: str, path: str) -> None:
        """See `placer.api.access.Access`."""
        assert path
        self.tokens.append(token)
        if self.refused:
            raise UnknownReaderError("not this one")


@dataclass(frozen=True)
class Release:
    """A release in a namespace of a cluster.

    Attributes:
        person: the kubeconfig of somebody who has the chart's Role for readers.
        stranger: the kubeconfig of somebody who has no right.
    """

    api: ApiServer
    namespace: str
    person: Path
    stranger: Path

    def of(self, kubeconfig: Path) -> PlacerService:
        """The placer, for the owner of a kubeconfig."""
        return PlacerService(Cluster(str(kubeconfig)), self.namespace)

    async def lead_to(self, url: str) -> None:
        """Let the Service lead to a server. API servers proxy to addresses of pods alone."""
        base, ip = f"/api/v1/namespaces/{self.namespace}", urlsplit(url).hostname
        await create_pod(self.api, self.namespace, pod_manifest("placer"))
        status = {"podIP": ip, "podIPs": [{"ip": ip}], "phase": "Running"}
        await self.api.must("PATCH", f"{base}/pods/placer/status", {"status": status})
        service = {"metadata": {"name": SERVICE}, "spec": {"ports": [{"name": PORT, "port": 8080}]}}
        await self.api.must("POST", f"{base}/services", service)
        pod = {"kind": "Pod", "name": "placer", "namespace": self.namespace}
        ports = [{"name": PORT, "port": urlsplit(url).port}]
        subsets = [{"addresses": [{"ip": ip, "targetRef": pod}], "ports": ports}]
        await self.api.must("POST", f"{base}/endpoints", {"metadata": {"name": SERVICE}, "subsets": subsets})


@pytest.fixture
def address() -> str:
    """An address of this machine beyond loopback, where API servers proxy to none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, contextlib.suppress(OSError):
        probe.connect(("192.0.2.1", 9))  # sends nothing
        found: str = probe.getsockname()[0]
        if not found.startswith("127."):
            return found
    pytest.skip("this machine has no address beyond loopback")


@pytest.fixture
async def release(apiserver: ApiServer, namespace: str, tmp_path: Path) -> AsyncIterator[Release]:
    """A release with two accounts, one of which is a reader."""
    accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    async with readers(apiserver, namespace, tmp_path):
        for name in ("person", "stranger"):
            await apiserver.must("POST", accounts, {"metadata": {"name": name}})
        subject = {"kind": "ServiceAccount", "name": "person", "namespace": namespace}
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": READER}
        binding = {"metadata": {"name": "person"}, "roleRef": role, "subjects": [subject]}
        path = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings"
        await apiserver.must("POST", path, binding)
        files = [await kubeconfig_of(apiserver, namespace, name, tmp_path) for name in ("person", "stranger")]
        yield Release(apiserver, namespace, *files)


async def test_a_reader_finds_the_placer(release: Release, address: str) -> None:
    """With a kubeconfig alone, tables, streams and explanations come; who lacks the Role learns of it."""
    async with serving(await world(state("n1", card("GPU-1"))), None, address) as url:
        await release.lead_to(url)
        mine = release.of(release.person)
        assert "n1" in await gpus(mine, None, None, "table", None)
        assert list((await snapshot(mine)).nodes) == ["n1"]
        async with asking(mine) as placer:
            assert await placer.missing() == []
            with pytest.raises(NoSuchPodError, match="'team/nobody' does not exist"):
                await placer.explain("team", "nobody")
        with pytest.raises(NoPlacerError, match=f"cannot get resource .*ask for the Role {READER}"):
            await gpus(release.of(release.stranger), None, None, "table", None)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "plimsoll", "nodes", "--release-namespace", release.namespace),
            env={**os.environ, "PYTHONPATH": str(REPOSITORY), "KUBECONFIG": str(release.person)},
            stdout=asyncio.subprocess.PIPE,
        )
        output, _ = await process.communicate()
        assert (process.returncode, output.startswith(b"NODE"), b"n1" in output) == (0, True, True), output


async def test_a_placer_that_asks_gets_a_token_for_itself_alone(release: Release, address: str) -> None:
    """The placer never sees the reader's own token, but one with its own audience; with a wrong one nobody reads."""
    access = Readers()
    async with serving(await world(state("n1", card("GPU-1"))), access, address) as url:
        await release.lead_to(url)
        mine = release.of(release.person)
        for _ in range(2):
            assert "n1" in await gpus(mine, None, None, "table", None)
        token, again = access.tokens
        assert token == again  # kept from one connection to the next, as of `--watch`
        body = token.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
        assert claims["aud"] == ["plimsoll"]
        assert claims["sub"] == f"system:serviceaccount:{release.namespace}:{READER}"
        access.refused = True
        with pytest.raises(PlacerRefusedError, match="not this one"):
            await snapshot(release.of(release.person))


async def test_what_is_wrong_is_told_with_its_remedy(
    release: Release, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A release elsewhere, a placer that does not run, and a name that is none."""
    admin = release.api.kubeconfig()
    with pytest.raises(
        NoPlacerError, match="not found; name the release's namespace with --release-namespace"
    ):
        await gpus(release.of(admin), None, None, "table", None)
    await release.lead_to(f"http://{address}:1")
    with pytest.raises(NoPlacerError, match=r"refused.*get pods -l app=plimsoll-placer.*NetworkPolicy"):
        await gpus(release.of(admin), None, None, "table", None)
    with pytest.raises(InputError, match=r"--release-namespace: 'a/\.\./b' cannot be a namespace"):
        await gpus(PlacerService(Cluster(str(admin)), "a/../b"), None, None, "table", None)
    monkeypatch.setenv("PLIMSOLL_PLACER_TOKEN", "two words")
    with pytest.raises(InputError, match=r"PLIMSOLL_PLACER_TOKEN: \(value not shown\) is no token"):
        await gpus(release.of(admin), None, None, "table", None)


async def test_without_kubeconfig_and_address_all_ways_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where nothing names a placer or a cluster, the error names both ways."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    with pytest.raises(NoPlacerError, match=r"PLIMSOLL_PLACER_URL.*or give a kubeconfig"):
        await gpus(PlacerService(Cluster(), "plimsoll-system"), None, None, "table", None)
