"""Every field of a kubeconfig is honoured as kubectl honours it, or refused by its name."""

import asyncio
import contextlib
import json
import os
from base64 import b64encode
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml

from plimsoll.kube.client import connect
from plimsoll.kube.transport import TransientError
from plimsoll.part.errors import InputError
from plimsoll_cli.cluster import Cluster, kubeconfig_of
from tests.cluster import assets
from tests.kube.plugin import Certificate, Guard, certificate_in, guard, kubeconfig

EXEC_V1 = "client.authentication.k8s.io/v1"
ANSWER = json.dumps({"apiVersion": EXEC_V1, "kind": "ExecCredential", "status": {"token": "plugins"}})
NEVER = {"apiVersion": EXEC_V1, "interactiveMode": "Never"}
PLUGIN = {"command": "./plugin", **NEVER}
CERTIFICATE = {"client-certificate": "one.crt", "client-key": "one.key"}


def basic(login: str) -> str:
    """The header of a user with a password."""
    return f"Basic {b64encode(login.encode()).decode()}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a token's file and a plugin; it is the folder of the process in no test."""
    (tmp_path / "token").write_text("files\n")
    (tmp_path / "plugin").write_text(f"#!/bin/sh\necho '{ANSWER}'\n")
    (tmp_path / "plugin").chmod(0o755)
    return tmp_path


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    """One certificate for all roles."""
    return certificate_in(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
async def server(certificate: Certificate) -> AsyncIterator[Guard]:
    """A server that accepts every request; kubectl shows no token to a server without TLS."""
    async with guard(certificate.serving()) as made:
        yield made


def trusting(certificate: Certificate, cluster: Mapping[str, object]) -> dict[str, object]:
    """A cluster's fields, and the server's authority."""
    return {"certificate-authority": str(certificate.certificate), **cluster}


async def by_kubectl(where: str, **environment: str) -> bool:
    """Whether the real kubectl gets an answer by these files; without credentials it asks a person for some."""
    process = await asyncio.create_subprocess_exec(
        assets.binary("kubectl"),
        *("get", "--raw", "/version"),
        env={"PATH": os.environ["PATH"], "KUBECONFIG": where, **environment},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    return await process.wait() == 0


Row = tuple[dict[str, object], dict[str, object], str | None]
HONOURED: list[Row] = [
    ({}, {}, None),
    (dict.fromkeys(("token", "tokenFile", "as", "as-groups", "exec", "auth-provider", "username")), {}, None),
    (
        {},
        dict.fromkeys(("certificate-authority-data", "proxy-url", "insecure-skip-tls-verify", "extensions")),
        None,
    ),
    ({"token": "own"}, {}, "Bearer own"),
    ({"tokenFile": "token"}, {}, "Bearer files"),
    ({"token": "own", "tokenFile": "token"}, {}, "Bearer files"),
    ({"username": "u", "password": "p"}, {}, basic("u:p")),
    ({"username": "u"}, {}, basic("u:")),
    ({"password": "p"}, {}, None),
    ({"exec": PLUGIN}, {}, "Bearer plugins"),
    ({"exec": {**PLUGIN, "args": None, "env": None, "installHint": "h"}}, {}, "Bearer plugins"),
    ({"exec": PLUGIN, "token": "own"}, {}, "Bearer own"),
    ({"exec": PLUGIN, "username": "u"}, {}, basic("u:")),
    ({"exec": PLUGIN, "as-user-extra": {}, "as-groups": []}, {}, "Bearer plugins"),
    ({"tokn": "x", "extensions": [{"name": "e", "extension": {"a": 1}}]}, {"servr": 5}, None),
    (
        {"token": "own"},
        {"tls-server-name": "api", "extensions": [{"name": "e", "extension": 1}]},
        "Bearer own",
    ),
]
"""User, cluster, and the header `Authorization` that the server sees."""


@pytest.mark.parametrize("row", HONOURED)
async def test_a_field_is_honoured(server: Guard, certificate: Certificate, folder: Path, row: Row) -> None:
    """The server sees the login that kubectl would show it."""
    user, cluster, header = row
    async with connect(
        kubeconfig(folder / "config", server.url, user, trusting(certificate, cluster))
    ) as client:
        await client.get("/version")
    assert server.headers.get("Authorization") == header


@pytest.mark.slow
@pytest.mark.parametrize("row", HONOURED)
async def test_kubectl_honours_it_so(server: Guard, certificate: Certificate, folder: Path, row: Row) -> None:
    """The table above says what the real kubectl does."""
    user, cluster, header = row
    path = kubeconfig(folder / "config", server.url, user, trusting(certificate, cluster))
    assert await by_kubectl(str(path)) is (header is not None)
    assert server.headers.get("Authorization") == header


REFUSED: list[tuple[dict[str, object], dict[str, object], str]] = [
    ({"as": "root"}, {}, r"users\[\]\.user\.as: 'root' is not supported"),
    ({"as-groups": ["system:masters"]}, {}, r"user\.as-groups"),
    ({"as-uid": "7"}, {}, r"user\.as-uid"),
    ({"as-user-extra": {"a": ["b"]}}, {}, r"user\.as-user-extra"),
    ({"auth-provider": {"name": "azure"}}, {}, r"auth-provider\.name: 'azure' is not supported"),
    ({"exec": {**PLUGIN, "interactiveMode": "Always"}}, {}, r"interactiveMode: 'Always' cannot be met"),
    ({}, {"certificate-authority": "token", "insecure-skip-tls-verify": True}, "insecure-skip-tls-verify"),
    (
        {},
        {"insecure-skip-tls-verify": "false"},
        "insecure-skip-tls-verify: 'false' is neither true nor false",
    ),
    ({}, {"proxy-url": "socks5://127.0.0.1:1"}, r"cluster.proxy-url: 'socks5://127.0.0.1:1' is a SOCKS"),
    ({}, {"proxy-url": "gopher://127.0.0.1:1"}, "is no HTTP proxy"),
    ({}, {"server": None}, r"clusters\[\]\.cluster\.server: '' is no URL"),
    ({}, {"server": "ftp://127.0.0.1:9"}, r"cluster\.server: 'ftp://127.0.0.1:9' is no URL"),
    ({}, {"server": ""}, r"clusters\[\]\.cluster\.server: '' is no URL"),
]
"""User, cluster, and the refusal."""


@pytest.mark.parametrize(("user", "cluster", "named"), REFUSED)
async def test_a_field_is_refused_by_its_name(
    folder: Path, user: dict[str, object], cluster: dict[str, object], named: str
) -> None:
    """A field that kubectl refuses, or honours and Plimsoll does not, is never passed over."""
    with pytest.raises(InputError, match=named):
        async with connect(kubeconfig(folder / "config", "https://127.0.0.1:9", user, cluster)):
            pass


@dataclass(frozen=True, slots=True)
class Files:
    """The value of KUBECONFIG with `:`, and the files; `{url}`, in capitals too, and `{ca}` are the server's."""

    where: str
    files: Mapping[str, str] = field(default_factory=dict)


CLUSTERS = 'clusters: [{name: c, cluster: {server: "{url}", certificate-authority: "{ca}"}}]\n'
USERS = "users: [{name: u, user: {token: own}}]\n"
CONTEXTS = "contexts: [{name: c, context: {cluster: c, user: u}}]\n"
CURRENT = "current-context: c\n"
WHOLE = f"apiVersion: v1\nkind: Config\npreferences: {{}}\n{CLUSTERS}{USERS}{CONTEXTS}{CURRENT}"
ANCHORS = (
    'base: &s {server: "{url}", certificate-authority: "{ca}"}\n'
    "clusters: [{name: d, cluster: *s}, {name: c, cluster: {<<: *s}}]\n" + USERS + CONTEXTS + CURRENT
)

LISTS: list[tuple[Files, str | None]] = [
    (Files("a", {"a": WHOLE}), "own"),
    (Files("a:missing", {"a": WHOLE}), "own"),
    (Files("missing:a", {"a": WHOLE}), "own"),
    (Files(":a:", {"a": WHOLE}), "own"),
    (Files("a:a", {"a": WHOLE}), "own"),
    (Files("empty:a", {"a": WHOLE, "empty": ""}), "own"),
    (Files("a:b", {"a": CLUSTERS + USERS, "b": CONTEXTS + CURRENT}), "own"),
    (Files("a:b", {"a": USERS, "b": WHOLE.replace("own", "other")}), "own"),
    (Files("a:b", {"a": WHOLE, "b": "current-context: d\n"}), "own"),
    (Files("a:b", {"a": "current-context: ''\n", "b": WHOLE}), "own"),
    (Files("a:b", {"a": "users: null\nclusters: []\ncontexts:\n", "b": WHOLE}), "own"),
    (
        Files("a:d/b", {"a": WHOLE.replace(USERS, ""), "d/b": USERS.replace("token: own", "tokenFile: t")}),
        "d",
    ),
    (Files("a", {"a": WHOLE.replace(USERS, "")}), None),
    (Files("a", {"a": WHOLE.replace("user: u}", "user: w}")}), None),
    (Files("a", {"a": ANCHORS}), "own"),
    (
        Files(
            "a",
            {
                "a": WHOLE.replace("name: c, context", "name: 2026-11-28, context").replace(
                    CURRENT, "current-context: 2026-11-28\n"
                )
            },
        ),
        "own",
    ),
    (Files("a", {"a": "\ufeff" + WHOLE}), "own"),
    (Files("a", {"a": WHOLE.replace("{url}", "{url}/")}), "own"),
    (Files("a", {"a": WHOLE.replace("{url}", "{URL}")}), "own"),
]
"""Lists of files, and the token that the server sees."""


def laid_out(folder: Path, files: Files, server: Guard, certificate: Certificate) -> str:
    """Write the files; returns KUBECONFIG's value."""
    (folder / "d").mkdir()
    (folder / "d" / "t").write_text("d")
    for name, text in files.files.items():
        (folder / name).write_text(
            text.replace("{url}", server.url)
            .replace("{URL}", server.url.replace("https", "HTTPS"))
            .replace("{ca}", str(certificate.certificate))
        )
    return os.pathsep.join(name and str(folder / name) for name in files.where.split(":"))


@pytest.mark.parametrize(("files", "token"), LISTS)
async def test_lists_of_files(
    server: Guard,
    certificate: Certificate,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    files: Files,
    token: str | None,
) -> None:
    """The first file that names a thing counts, paths are each file's own, and forms of YAML and JSON are read."""
    monkeypatch.setenv("KUBECONFIG", await asyncio.to_thread(laid_out, folder, files, server, certificate))
    async with connect(await asyncio.to_thread(kubeconfig_of, Cluster())) as client:
        await client.get("/version")
    assert server.headers.get("Authorization") == (f"Bearer {token}" if token else None)


@pytest.mark.slow
@pytest.mark.parametrize(("files", "token"), LISTS)
async def test_kubectl_reads_lists_so(
    server: Guard, certificate: Certificate, folder: Path, files: Files, token: str | None
) -> None:
    """The table above says what the real kubectl does."""
    where = await asyncio.to_thread(laid_out, folder, files, server, certificate)
    assert await by_kubectl(where) is (token is not None)
    assert server.headers.get("Authorization") == (f"Bearer {token}" if token else None)


@pytest.mark.parametrize(
    ("user", "cluster", "outcome"),
    [
        ({}, {"certificate-authority": "one.crt"}, "trusted"),
        ({}, {"certificate-authority-data": "one.crt"}, "trusted"),
        ({}, {"certificate-authority-data": "one.crt", "certificate-authority": "missing"}, "trusted"),
        ({}, {"certificate-authority-data": "", "certificate-authority": "one.crt"}, "trusted"),
        ({}, {"certificate-authority": "one.crt", "tls-server-name": "api"}, "trusted"),
        ({}, {"certificate-authority": "one.crt", "tls-server-name": "other"}, "untrusted"),
        ({}, {}, "untrusted"),
        ({}, {"certificate-authority": "", "insecure-skip-tls-verify": False}, "untrusted"),
        ({}, {"certificate-authority-data": "", "insecure-skip-tls-verify": True}, "trusted"),
        (CERTIFICATE, {"certificate-authority": "one.crt"}, "known"),
        (
            {f"{name}-data": file for name, file in CERTIFICATE.items()},
            {"insecure-skip-tls-verify": True},
            "known",
        ),
    ],
)
async def test_tls(
    certificate: Certificate, user: dict[str, str], cluster: dict[str, object], outcome: str
) -> None:
    """The server is trusted, and knows the client, by files beside the kubeconfig and by data in it."""
    beside = certificate.certificate.parent

    def filled(fields: Mapping[str, object]) -> dict[str, object]:
        return {
            name: b64encode((beside / str(value)).read_bytes()).decode()
            if name.endswith("-data") and value
            else value
            for name, value in fields.items()
        }

    async with guard(certificate.serving()) as server:
        path = kubeconfig(beside / "config", server.url, filled(user), filled(cluster))
        async with connect(path) as client:
            unless = contextlib.nullcontext()
            with pytest.raises(TransientError) if outcome == "untrusted" else unless:
                await client.get("/version")
        assert (bool(server.seen), bool(server.certificate)) == (outcome != "untrusted", outcome == "known")


async def test_a_users_certificate_is_beside_the_users_file(certificate: Certificate, folder: Path) -> None:
    """A relative path belongs to the file in which it stands, also where the cluster stands in another one."""
    beside = certificate.certificate.parent
    async with guard(certificate.serving()) as server:
        cluster = kubeconfig(folder / "config", server.url, {}, trusting(certificate, {}))
        user = beside / "user"
        await asyncio.to_thread(
            user.write_text, yaml.safe_dump({"users": [{"name": "v", "user": CERTIFICATE}]})
        )
        text = (await asyncio.to_thread(cluster.read_text)).replace("user: u\n", "user: v\n")
        await asyncio.to_thread(cluster.write_text, text)
        async with connect(Path(f"{cluster}:{user}")) as client:
            await client.get("/version")
        assert server.certificate


async def test_a_plugins_certificate_is_shown_to_the_server(certificate: Certificate, folder: Path) -> None:
    """A plugin may give a certificate and its key in place of a token."""
    beside = certificate.certificate.parent
    status = {
        "clientCertificateData": (beside / "one.crt").read_text(),
        "clientKeyData": (beside / "one.key").read_text(),
    }
    answer = json.dumps({"apiVersion": EXEC_V1, "kind": "ExecCredential", "status": status})
    (folder / "answer").write_text(answer)
    (folder / "plugin").write_text(f"#!/bin/sh\ncat {folder / 'answer'}\n")
    async with guard(certificate.serving()) as server:
        path = kubeconfig(folder / "config", server.url, {"exec": PLUGIN}, trusting(certificate, {}))
        async with connect(path) as client:
            await client.get("/version")
        assert server.certificate
        assert "Authorization" not in server.headers
