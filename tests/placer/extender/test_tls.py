"""Beyond loopback, nobody asks the extender anything without the right certificate."""

import asyncio
import os
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import aiohttp
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from placer.extender.http import PATH, ExtenderMetrics, serving_extender
from placer.extender.tls import TlsFiles
from placer.settings import load
from plimsoll.part.errors import InputError
from plimsoll_cli.demo.servers import EmbeddedServer
from tests.placer.extender.front import MEMORY, configured, front_pod, gpu_node
from tests.placer.kube.scene import Scene
from tests.placer.kube.world import gpu_of, scheduler
from tests.servers.apiserver import ApiServer
from tests.servers.objects import create_pod
from tests.servers.waiting import until


@dataclass(frozen=True, slots=True)
class Authority:
    """Signs certificates in a folder."""

    folder: Path
    name: str
    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @property
    def path(self) -> str:
        """Its certificate's file."""
        return str(self.folder / f"{self.name}.crt")

    def sign(self, common_name: str, file: str) -> tuple[str, str]:
        """The files of a new certificate and its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        made = _certificate(common_name, key, self.certificate.subject, self.key, is_authority=False)
        certificate, private = self.folder / f"{file}.crt", self.folder / f"{file}.key"
        certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))
        form = serialization.PrivateFormat.PKCS8
        encoding, plain = serialization.Encoding.PEM, serialization.NoEncryption()
        private.write_bytes(key.private_bytes(encoding, form, plain))
        return str(certificate), str(private)


def authority(folder: Path, name: str) -> Authority:
    """A new authority with its file."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    made = Authority(folder, name, key, _certificate(name, key, subject, key, is_authority=True))
    Path(made.path).write_bytes(made.certificate.public_bytes(serialization.Encoding.PEM))
    return made


def _certificate(
    name: str,
    key: ec.EllipticCurvePrivateKey,
    issuer: x509.Name,
    issuer_key: ec.EllipticCurvePrivateKey,
    *,
    is_authority: bool,
) -> x509.Certificate:
    now = datetime.now(UTC)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    address = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
    builder = x509.CertificateBuilder(issuer, subject, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
    builder = builder.add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
    return builder.add_extension(address, critical=False).sign(issuer_key, hashes.SHA256())


@asynccontextmanager
async def served(files: TlsFiles, *clients: str) -> AsyncIterator[tuple[int, ssl.SSLContext]]:
    """An extender of a placer that does not lead; gives its port and its side of TLS."""
    scene = Scene()
    context = files.context()
    assert context is not None
    metrics = ExtenderMetrics(scene.decider.metrics.registry)
    address = ("127.0.0.1", 0)
    async with serving_extender(scene.parts.extender, address, metrics, context, frozenset(clients)) as port:
        yield port, context


async def asked(port: int, trusted: str, client: tuple[str, str] | None = None) -> tuple[int, str]:
    """Order a bind; gives the status and the text of the answer."""
    context = ssl.create_default_context(cafile=trusted)
    if client is not None:
        context.load_cert_chain(*client)
    order = {"PodName": "p", "PodNamespace": "d", "PodUID": "u", "Node": "n1"}
    async with (
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as http,
        http.post(f"https://127.0.0.1:{port}{PATH}/bind", json=order) as answer,
    ):
        return answer.status, await answer.text()


async def shown(port: int) -> str:
    """The server's certificate, as PEM."""
    return await asyncio.to_thread(ssl.get_server_certificate, ("127.0.0.1", port))


async def test_only_the_named_client_is_heard(tmp_path: Path) -> None:
    """A client without a certificate, of another authority, or of another name changes and learns nothing."""
    ours, theirs = authority(tmp_path, "ours"), authority(tmp_path, "theirs")
    files = TlsFiles(*ours.sign("placer", "placer"), ours.path)
    scheduler = ours.sign("system:kube-scheduler", "scheduler")
    async with served(files, "system:kube-scheduler") as (port, _):
        status, text = await asked(port, ours.path, scheduler)
        assert (status, "plimsoll: this placer has just started" in text) == (200, True)
        status, text = await asked(port, ours.path, ours.sign("system:node:n1", "kubelet"))
        assert (status, text) == (403, "'system:node:n1' may not use the extender\n")
        for stranger in (None, theirs.sign("system:kube-scheduler", "stranger")):
            with pytest.raises((aiohttp.ClientError, OSError)):
                await asked(port, ours.path, stranger)


async def test_a_new_certificate_is_used_without_a_restart(tmp_path: Path) -> None:
    """Once the files change, new connections see the new certificate; a half-written pair does no harm."""
    ours = authority(tmp_path, "ours")
    files = TlsFiles(*ours.sign("placer", "placer"))
    async with served(files) as (port, context):
        follower = asyncio.create_task(files.follow(context, 0.01))
        first = await shown(port)
        others, _ = ours.sign("placer", "other")
        for half in ("half", await asyncio.to_thread(Path(others).read_text)):
            await asyncio.to_thread(Path(files.certificate).write_text, half)
            await asyncio.sleep(0.1)  # it has checked the half-written files
            assert await shown(port) == first
        ours.sign("placer", "placer")

        async def is_new() -> bool:
            return await shown(port) != first

        await until(is_new)
        assert not follower.done()
        follower.cancel()
        await asyncio.wait({follower})


async def test_a_real_kube_scheduler_asks_over_mutual_tls(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str, tmp_path: Path
) -> None:
    """With the `tlsConfig` of the configuration in `deploy/`, kube-scheduler has a pod bound by the placer."""
    ours = authority(tmp_path, "ours")
    files = TlsFiles(*ours.sign("placer", "placer"), ours.path)
    certificate, key = ours.sign("system:kube-scheduler", "scheduler")
    clients = frozenset({"system:kube-scheduler"})
    async with scheduler(apiserver, valkey, namespace) as world:
        metrics = ExtenderMetrics(world.metrics.registry)
        context = await asyncio.to_thread(files.context)
        address = ("127.0.0.1", 0)
        async with serving_extender(world.parts.extender, address, metrics, context, clients) as port:
            tls = {"caFile": ours.path, "certFile": certificate, "keyFile": key}
            changes = {"urlPrefix": f"https://127.0.0.1:{port}{PATH}", "tlsConfig": tls}
            async with configured(apiserver, tmp_path, changes):
                await gpu_node(world, "n1", 24)
                await create_pod(apiserver, namespace, front_pod("p", {MEMORY: "10Gi"}))
                assert gpu_of(await world.until_bound("p")) == ("n1", "GPU-n1-0")


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (
            {"HTTP_ADDRESS": "10.0.0.1"},
            "PLIMSOLL_HTTP_ADDRESS: '10.0.0.1' is open to others, who could bind pods",
        ),
        ({"HTTP_ADDRESS": "placer.example"}, "is open to others"),
        ({"EXTENDER_CERTIFICATE": "a"}, "PLIMSOLL_EXTENDER_KEY: '' is missing beside its other half"),
        ({"EXTENDER_KEY": "a"}, "PLIMSOLL_EXTENDER_CERTIFICATE: '' is missing"),
        ({"EXTENDER_CLIENT_CA": "a"}, "PLIMSOLL_EXTENDER_CLIENT_CA: 'a' needs TLS"),
        ({"EXTENDER_CERTIFICATE": "a", "EXTENDER_KEY": "b", "HTTP_ADDRESS": "::"}, "is open to others"),
    ],
)
def test_settings_that_leave_a_door_open_are_refused(given: dict[str, str], text: str) -> None:
    """The placer does not start with an extender that strangers could use."""
    environment = {f"PLIMSOLL_{name}": value for name, value in {"EXTENDER_PORT": "0", **given}.items()}
    with pytest.raises(InputError) as refused:
        load(environment)
    assert text in str(refused.value)


def test_an_extender_without_a_cluster_is_refused() -> None:
    """The extender binds pods of a cluster, so it needs one."""
    with pytest.raises(InputError, match="PLIMSOLL_EXTENDER_PORT: 7443 needs a cluster"):
        load({"PLIMSOLL_EXTENDER_PORT": "7443", "PLIMSOLL_LOCAL_NODES": "/nodes.json"})
    for address in ("127.0.0.1", "::1", "localhost"):
        given = load({"PLIMSOLL_EXTENDER_PORT": "7443", "PLIMSOLL_HTTP_ADDRESS": address})
        assert given.http_address == address


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    """A missing file is refused by the setting that names it."""
    ours = authority(tmp_path, "ours")
    missing = os.fspath(tmp_path / "missing")
    with pytest.raises(InputError, match="PLIMSOLL_EXTENDER_CERTIFICATE"):
        TlsFiles(missing, missing).context()
    with pytest.raises(InputError, match="PLIMSOLL_EXTENDER_CLIENT_CA"):
        TlsFiles(*ours.sign("placer", "placer"), missing).context()
