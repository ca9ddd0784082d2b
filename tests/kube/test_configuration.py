"""A kubeconfig is read as kubectl reads it: certificates, credentials, several files."""

import asyncio
import contextlib
import json
import ssl
from base64 import b64encode, urlsafe_b64encode
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web

from plimsoll.kube.client import connect
from plimsoll.kube.configuration import configured, service_cluster
from plimsoll.kube.transport import TransientError
from plimsoll.part.errors import InputError
from tests.servers.authority import Authority, authority

Entry = dict[str, object]


def base64(path: str) -> str:
    """The bytes of a file, as a kubeconfig has them."""
    return b64encode(Path(path).read_bytes()).decode()


def write(path: Path, *, cluster: Entry | None = None, user: Entry | None = None, context: str = "c") -> Path:
    """A kubeconfig of what is given; its current context is `c`."""
    config: Entry = {"current-context": "c"}
    if cluster is not None:
        config["clusters"] = [{"name": "c", "cluster": cluster}]
    if user is not None:
        config["users"] = [{"name": "u", "user": user}]
    config["contexts"] = [{"name": context, "context": {"cluster": "c", "user": "u"}}]
    path.write_text(json.dumps(config))
    return path


def printing(folder: Path, certificate: str, key: str) -> Entry:
    """A user whose exec plugin prints a client certificate."""
    status = {"clientCertificateData": Path(certificate).read_text(), "clientKeyData": Path(key).read_text()}
    (folder / "answer").write_text(json.dumps({"status": status}))
    version = "client.authentication.k8s.io/v1"
    return {"exec": {"apiVersion": version, "command": "cat", "args": [str(folder / "answer")]}}


@pytest.fixture
def ours(tmp_path: Path) -> Authority:
    """The authority of the server and of its clients."""
    return authority(tmp_path, "ours")


@pytest.fixture
async def server(ours: Authority) -> AsyncIterator[str]:
    """The address of a server that answers with the name in the client's certificate, and admits none without one."""

    async def answer(request: web.Request) -> web.Response:
        assert request.transport is not None
        subject = dict(pair[0] for pair in request.transport.get_extra_info("peercert")["subject"])
        return web.Response(text=subject["commonName"])

    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=ours.path)
    tls.load_cert_chain(*ours.sign("server", "server"))
    tls.verify_mode = ssl.CERT_REQUIRED
    application = web.Application()
    application.router.add_get("/", answer)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
        yield f"https://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@pytest.mark.parametrize("form", ["files", "data", "plugin"])
async def test_the_server_sees_the_clients_certificate(
    tmp_path: Path, ours: Authority, server: str, form: str
) -> None:
    """Certificates come from files beside the kubeconfig, from the kubeconfig itself, or from an exec plugin."""
    certificate, key = ours.sign("me", "me")
    cluster: Entry = {"server": server + "/", "certificate-authority": "ours.crt"}
    user: Entry = {"client-certificate": "me.crt", "client-key": "me.key"}
    if form == "data":
        cluster |= {"certificate-authority": "/none", "certificate-authority-data": base64(ours.path)}
        user = {"client-certificate-data": base64(certificate), "client-key-data": base64(key)}
    if form == "plugin":
        user = printing(tmp_path, certificate, key)
    async with connect(write(tmp_path / "config", cluster=cluster, user=user)) as client:
        assert await client.get("/") == b"me"


@pytest.mark.parametrize("skips", [True, False])
async def test_another_authority_is_trusted_only_where_the_kubeconfig_says_so(
    tmp_path: Path, ours: Authority, server: str, *, skips: bool
) -> None:
    """A server whose certificate another authority signed gets no request, unless the kubeconfig skips the check."""
    ours.sign("me", "me")
    authority(tmp_path, "theirs")
    cluster: Entry = {
        "server": server,
        "certificate-authority": "theirs.crt",
        "insecure-skip-tls-verify": skips,
    }
    user: Entry = {"client-certificate": "me.crt", "client-key": "me.key"}
    async with connect(write(tmp_path / "config", cluster=cluster, user=user)) as client:
        with contextlib.nullcontext() if skips else pytest.raises(TransientError, match="certificate"):
            assert await client.get("/") == b"me"


def id_token() -> str:
    """A token of an `auth-provider` that never expires."""
    return f"x.{urlsafe_b64encode(b'{}').decode().rstrip('=')}.x"


@pytest.mark.parametrize(
    ("user", "header"),
    [
        ({"token": "t"}, "Bearer t"),
        ({"token": "t", "username": "me", "password": "p"}, "Bearer t"),
        ({"username": "me", "password": "p"}, "Basic bWU6cA=="),
        ({"auth-provider": {"name": "oidc", "config": {"id-token": id_token()}}}, f"Bearer {id_token()}"),
        ({}, None),
        (None, None),
    ],
)
async def test_requests_have_the_credentials_of_the_user(
    tmp_path: Path, user: Entry | None, header: str | None
) -> None:
    """A token, a login, an `auth-provider`, or nothing."""
    path = write(tmp_path / "config", cluster={"server": "https://h"}, user=user)
    found = await configured(path, None)
    assert await found.credentials.header() == header


async def test_the_first_of_several_files_counts(tmp_path: Path) -> None:
    """Of several files the first that has a cluster, user or current context counts, and paths are relative to it."""
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    first = write(tmp_path / "a" / "config", cluster={"server": "https://first"})
    second = write(
        tmp_path / "b" / "config", cluster={"server": "https://second"}, user={"tokenFile": "token"}
    )
    second.write_text(second.read_text().replace('"current-context": "c"', '"current-context": "other"'))
    (tmp_path / "b" / "token").write_text("of b")
    found = await configured(Path(f"{first}:{second}"), None)
    assert (found.host, await found.credentials.header()) == ("https://first", "Bearer of b")
    await found.credentials.close()


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"context": "other"}, "has no context 'c'; see `kubectl config get-contexts`"),
        ({"cluster": None}, "has no cluster 'c', which its context 'c' names; add that entry to `clusters`"),
        ({"cluster": {"server": "https://h", "certificate-authority": "none"}}, "cannot be used .*none"),
        (
            {"cluster": {"server": "https://h", "certificate-authority": "/dev/null"}},
            "cannot be used .*certificate",
        ),
        ({"cluster": {"server": "https://h", "certificate-authority-data": "x"}}, "cannot be used .*base64"),
        ({"user": {"client-certificate": "config"}}, "cannot be used .*SSL"),
        ({"user": {"token": 5}}, r"at users\[0\]\.user\.token: Expected `str \| null`, got `int`; mend that"),
    ],
)
async def test_a_kubeconfig_that_cannot_work_names_the_cause(
    tmp_path: Path, changed: dict[str, object], said: str
) -> None:
    """A missing entry or file, something that is no certificate, and a number in place of a text are refused."""
    given: dict[str, object] = {"cluster": {"server": "https://h"}, "user": {"token": "t"}, **changed}
    path = await asyncio.to_thread(write, tmp_path / "config", **given)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=said) as refused:
        await configured(path, None)
    assert str(path) in str(refused.value)


@pytest.mark.parametrize(
    ("host", "url"), [("10.0.0.1", "https://10.0.0.1:443"), ("fd00::1", "https://[fd00::1]:443")]
)
def test_a_pods_server_is_the_one_of_its_environment(
    monkeypatch: pytest.MonkeyPatch, host: str, url: str
) -> None:
    """The kubelet names host and port to each container, in either form of addresses."""
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    assert service_cluster().server == url
