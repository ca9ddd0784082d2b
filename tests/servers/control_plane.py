"""Starts etcd and kube-apiserver without root, as the design's test cluster describes.

What always holds: both listen on 127.0.0.1, write only below the folder they are given, and die with us. Users
come from a token file, so tests need no certificates; the API server makes its own serving certificate, which
is also what clients trust.
"""

import asyncio
import base64
import csv
import json
import secrets
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import aiohttp

from plimsoll_cli.demo.servers import EmbeddedServer, ServerKind, running
from tests.cluster import assets
from tests.servers.waiting import until

ADMIN = "admin"
# The rights of each user beside those of every authenticated user. Tests bind roles to the other users.
USERS: Mapping[str, Sequence[str]] = {
    ADMIN: ("system:masters",),
    "plimsoll-placer": (),
    "plimsoll-monitor": (),
    "somebody": (),
}


@dataclass(frozen=True, slots=True)
class ControlPlane:
    """A running API server and how to reach it.

    Attributes:
        url: Its HTTPS address.
        ca_file: PEM of the certificate to trust.
        tokens: Bearer token per user of `USERS`.
        directory: The folder that holds everything, kubeconfigs too.
        etcd: Its store.
        server: The kube-apiserver process.
    """

    url: str
    ca_file: Path
    tokens: Mapping[str, str]
    directory: Path
    etcd: EmbeddedServer
    server: EmbeddedServer

    def kubeconfig(self, user: str = ADMIN) -> Path:
        """The path of a kubeconfig file for `user`, written when the control plane started."""
        return self.directory / f"{user}.kubeconfig"


@asynccontextmanager
async def control_plane(directory: Path, options: Sequence[str] = ()) -> AsyncIterator[ControlPlane]:
    """Run etcd and kube-apiserver until the context ends; ready for requests when entered.

    Args:
        directory: The folder for everything that they write.
        options: Further options of kube-apiserver.

    Raises:
        EmbeddedServerError: A server did not start.
        MissingBinaryError: A server is not built; the message says how to build it.
    """
    tokens = {user: secrets.token_hex(16) for user in USERS}
    await asyncio.to_thread(write_credentials, directory, tokens)
    async with running(etcd_kind(), directory / "etcd") as etcd:
        async with running(apiserver_kind(etcd, directory, options), directory / "apiserver") as server:
            plane = ControlPlane(
                server.url, directory / "apiserver" / "apiserver.crt", tokens, directory, etcd, server
            )
            await asyncio.to_thread(write_kubeconfigs, plane)
            await until_ready(plane)
            yield plane
            # On SIGTERM the server would wait for open watches, and none of its data is kept.
            await server.kill()
        await etcd.kill()


def etcd_kind() -> ServerKind:
    """An etcd that does not wait for the disk, as its data is thrown away."""

    def arguments(port: int, directory: Path) -> Sequence[str]:
        url = f"http://127.0.0.1:{port}"
        return (
            f"--data-dir={directory / 'data'}",
            f"--listen-client-urls={url}",
            f"--advertise-client-urls={url}",
            "--listen-peer-urls=http://127.0.0.1:0",
            "--unsafe-no-fsync",
        )

    return ServerKind(
        "etcd", "http", "ready to serve client requests", lambda: assets.binary("etcd"), arguments
    )


def apiserver_kind(etcd: EmbeddedServer, credentials: Path, options: Sequence[str] = ()) -> ServerKind:
    """A kube-apiserver over `etcd` that knows the users whose tokens are in `credentials`."""

    def arguments(port: int, directory: Path) -> Sequence[str]:
        return (
            f"--etcd-servers={etcd.url}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            f"--secure-port={port}",
            f"--cert-dir={directory}",
            f"--token-auth-file={credentials / 'tokens.csv'}",
            "--authorization-mode=RBAC,Node",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={credentials / 'service-account.key'}",
            f"--service-account-signing-key-file={credentials / 'service-account.key'}",
            "--disable-admission-plugins=ServiceAccount",  # no controller makes the accounts
            "--service-cluster-ip-range=10.0.0.0/24",
            "--allow-privileged",  # as installers give it: the broker's pods, and those of NVIDIA's, are privileged
            "--endpoint-reconciler-type=none",  # The server refuses a loopback address as an endpoint.
            *options,
        )

    return ServerKind(
        "kube-apiserver", "https", "Serving securely on", lambda: assets.binary("kube-apiserver"), arguments
    )


def write_credentials(directory: Path, tokens: Mapping[str, str]) -> None:
    """Write the token file and the key that signs service account tokens."""
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "tokens.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        for user, token in tokens.items():
            rows.writerow([token, user, f"uid-{user}", ",".join(USERS[user])])
    (directory / "service-account.key").write_text(private_key_pem())


def private_key_pem() -> str:
    """A fresh P-256 private key as in RFC 5915, without its optional public half and without a library."""
    # The leading 1 keeps the number below the order of the curve.
    number = b"\x01" + secrets.token_bytes(31)
    curve = bytes.fromhex("a00a06082a8648ce3d030107")
    der = bytes.fromhex("30310201010420") + number + curve
    return f"-----BEGIN EC PRIVATE KEY-----\n{base64.b64encode(der).decode()}\n-----END EC PRIVATE KEY-----\n"


def write_kubeconfigs(plane: ControlPlane) -> None:
    """Write one kubeconfig per user; JSON is YAML."""
    cluster = {"server": plane.url, "certificate-authority": str(plane.ca_file)}
    for user, token in plane.tokens.items():
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": user, "user": {"token": token}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": user}}],
            "current-context": "test",
        }
        plane.kubeconfig(user).write_text(json.dumps(config))


async def until_ready(plane: ControlPlane) -> None:
    """Wait until every post-start hook is done, so that the default roles and namespaces exist."""
    context = await asyncio.to_thread(ssl.create_default_context, cafile=plane.ca_file)
    headers = {"Authorization": f"Bearer {plane.tokens[ADMIN]}"}
    connector = aiohttp.TCPConnector(ssl=context)
    async with aiohttp.ClientSession(plane.url, headers=headers, connector=connector) as http:
        for path in ("/readyz", "/api/v1/namespaces/default"):
            await until(partial(answers_ok, http, path))


async def answers_ok(http: aiohttp.ClientSession, path: str) -> bool:
    """Whether a GET of `path` gets status 200."""
    async with http.get(path) as answer:
        return answer.status == 200
