"""An exec plugin that a test holds, breaks and counts, and a server that knows which tokens are good."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path

import yaml
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from plimsoll.part.times import rfc3339
from tests.servers.waiting import until_true

SCRIPT = """#!/bin/sh
cd "$(dirname "$0")"
echo $$ >> runs
while [ -e held ]; do sleep 0.02; done
if [ -e broken ]; then echo "no way to the cloud" >&2; exit 3; fi
token=$(cat token 2> /dev/null || echo "token-$(wc -l < runs)")
printf '{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": "%s"' "$token"
if [ -e expires ]; then printf ', "expirationTimestamp": "%s"' "$(cat expires)"; fi
echo '}}'
"""


@dataclass(frozen=True, slots=True)
class Plugin:
    """A plugin. Its tokens are `token-1`, `token-2`, … unless the test names one.

    Attributes:
        folder: holds the program, and the files by which it is steered.
    """

    folder: Path

    def install(self) -> None:
        """Write the program."""
        self.program.write_text(SCRIPT)
        self.program.chmod(0o755)

    @property
    def program(self) -> Path:
        """The path of the program."""
        return self.folder / "plugin"

    def pids(self) -> list[int]:
        """The process of each run so far."""
        path = self.folder / "runs"
        return [int(line) for line in path.read_text().split()] if path.exists() else []

    def give(self, token: str) -> None:
        """Print this token from now on."""
        (self.folder / "token").write_text(token)

    def expire(self, after_s: float | None) -> None:
        """Print this time from now on as the expiry; None prints none."""
        path = self.folder / "expires"
        if after_s is None:
            path.unlink(missing_ok=True)
        else:
            path.write_text(rfc3339(datetime.now(UTC) + timedelta(seconds=after_s)))

    def hold(self) -> None:
        """Let runs hang from now on."""
        (self.folder / "held").touch()

    def release(self) -> None:
        """Let runs go on."""
        (self.folder / "held").unlink()

    def fail(self) -> None:
        """Let runs fail from now on."""
        (self.folder / "broken").touch()

    def mend(self) -> None:
        """Let runs succeed again."""
        (self.folder / "broken").unlink()

    async def until_run(self, number: int) -> None:
        """Wait until the plugin was started this often."""
        await until_true(lambda: len(self.pids()) >= number)

    def user(self) -> dict[str, object]:
        """The kubeconfig's user."""
        version = "client.authentication.k8s.io/v1"
        return {"exec": {"apiVersion": version, "command": str(self.program), "interactiveMode": "Never"}}


def kubeconfig(
    path: Path, url: str, user: dict[str, object], cluster: Mapping[str, object] | None = None
) -> Path:
    """Write a kubeconfig with one user, and with more fields of its cluster; returns its path."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": url, **(cluster or {})}}],
        "users": [{"name": "u", "user": user}],
    }
    path.write_text(yaml.safe_dump(config))
    return path


@dataclass(slots=True)
class Guard:
    """A server that answers 401 to requests without a good token.

    Attributes:
        url: its address.
        good: the good tokens; None accepts any request.
        seen: the token of each request, in order.
        headers: all headers of the last request.
        certificate: the client's certificate of the last request; None without one.
    """

    url: str = ""
    good: set[str] | None = None
    seen: list[str] = field(default_factory=list)
    headers: Mapping[str, str] = field(default_factory=dict)
    certificate: object = None

    async def answer(self, request: web.Request) -> web.Response:
        """Answer any request."""
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        self.seen.append(token)
        self.headers = request.headers
        self.certificate = request.get_extra_info("peercert")
        await request.read()
        is_good = self.good is None or (scheme == "Bearer" and token in self.good)
        await asyncio.sleep(0)
        return web.json_response({}, status=200 if is_good else 401)


@dataclass(frozen=True, slots=True)
class Certificate:
    """The files of a certificate of 127.0.0.1, which is its own authority and may be a client's too."""

    certificate: Path
    key: Path

    def serving(self) -> ssl.SSLContext:
        """TLS of a server that asks for clients' certificates, and needs none."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=self.certificate)
        context.load_cert_chain(self.certificate, self.key)
        context.verify_mode = ssl.CERT_OPTIONAL
        return context


def certificate_in(folder: Path) -> Certificate:
    """Make one; it lacks what Python 3.13 asks for beyond OpenSSL, as authorities of clusters may."""
    key = ec.generate_private_key(ec.SECP256R1())
    name, now = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "one")]), datetime.now(UTC)
    addresses = x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1")), x509.DNSName("api")])
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), 1, now, now + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=False)
        .add_extension(addresses, critical=False)
        .sign(key, hashes.SHA256())
    )
    files = Certificate(folder / "one.crt", folder / "one.key")
    pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    files.certificate.write_bytes(made.public_bytes(pem))
    files.key.write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain))
    return files


@contextlib.asynccontextmanager
async def guard(tls: ssl.SSLContext | None = None) -> AsyncIterator[Guard]:
    """Run a guard until the context ends."""
    made = Guard()
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", made.answer)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
        host, port = runner.addresses[0][:2]
        made.url = f"{'https' if tls else 'http'}://{host}:{port}"
        yield made
    finally:
        await runner.cleanup()
