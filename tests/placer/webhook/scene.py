"""A running webhook that a real API server asks, by the shipped configuration and with the shipped rights."""

import asyncio
import dataclasses
import json
import ssl
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest
import yaml

from placer.webhook import app
from placer.webhook.app import run
from placer.webhook.settings import Settings
from plimsoll.dialects import Json
from tests.servers.apiserver import ApiServer
from tests.servers.waiting import until

DEPLOY: Final = Path(__file__).parents[3] / "deploy"
ADMISSION: Final = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
RBAC: Final = "/apis/rbac.authorization.k8s.io/v1"
USER: Final = "somebody"
"""Stands for the webhook's service account; it has the shipped rights alone."""

RESTRICTED: Final = {"pod-security.kubernetes.io/enforce": "restricted"}


@dataclass
class Scene:
    """A webhook and its API server.

    Attributes:
        api: the API server.
        namespace: a namespace that the webhook serves.
        own: the webhook's own namespace, which has its Secret.
        port: the port of reviews, by HTTPS.
        health: the port of metrics and health.
    """

    api: ApiServer
    namespace: str
    own: str
    port: int
    health: int
    names: list[str] = field(default_factory=list)

    async def create(self, pod: Json, *, user: str = "admin", dry: bool = False) -> Json:
        """The pod as the API server stored it, or its refusal as a `Status`."""
        path = f"/api/v1/namespaces/{self.namespace}/pods" + ("?dryRun=All" if dry else "")
        return (await self.api.call("POST", path, pod, user=user)).body

    async def secret_exists(self) -> bool:
        """Whether there is a Secret now."""
        path = f"/api/v1/namespaces/{self.own}/secrets/plimsoll-webhook-certificates"
        return (await self.api.call("GET", path)).status == 200

    async def text(self, path: str) -> str:
        """The answer of the health port."""
        async with (
            aiohttp.ClientSession() as http,
            http.get(f"http://127.0.0.1:{self.health}{path}") as answer,
        ):
            return await answer.text()


def shipped(name: str) -> list[Json]:
    """The objects of a file of `deploy/`."""
    return list(yaml.safe_load_all((DEPLOY / name).read_text()))


@asynccontextmanager
async def scene(
    api: ApiServer,
    namespace: str,
    *,
    files: Sequence[str] = ("webhook.yaml",),
    runs: bool = True,
    check_s: float = 0.2,
    life_s: float = 3600.0,
    **settings: Any,  # noqa: ANN401 - any field of Settings
) -> AsyncIterator[Scene]:
    """Run a webhook, with the shipped rights and configurations, until the context ends.

    Args:
        api: the API server.
        namespace: a namespace to serve; others are untouched.
        files: the files of `deploy/` whose configurations are applied.
        runs: False gives ports on which nothing listens.
        check_s: seconds between two readings of the certificates.
        life_s: seconds for which a certificate is valid.
        settings: fields of `Settings`.
    """
    mark = uuid.uuid4().hex[:8]
    own, label = f"plimsoll-{mark}", {"scene": mark}
    await api.must("POST", "/api/v1/namespaces", {"metadata": {"name": own}})
    await api.must("PATCH", f"/api/v1/namespaces/{namespace}", {"metadata": {"labels": label}})
    ports = [await _free_port(), await _free_port()]
    found = Scene(api, namespace, own, ports[0], ports[1])
    granted = await _grant(api, own, mark)
    configurations = [
        one for file in files for one in await asyncio.to_thread(shipped, file) if "webhooks" in one
    ]
    try:
        for one in configurations:
            found.names.append(one["metadata"]["name"])
            await _apply(api, one, ports[0], label)
        given = Settings(
            port=ports[0],
            http_port=ports[1],
            kubeconfig=str(api.kubeconfig(USER)),
            names="127.0.0.1",
        )
        if not runs:
            yield found
            return
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(app, "own_namespace", lambda: own)
            patch.setattr(app, "CHECK_S", check_s)
            patch.setattr(app, "LIFE_S", life_s)
            async with running(dataclasses.replace(given, **settings)):
                await until(lambda: _trusts(found))
                yield found
    finally:
        for name in found.names:
            await api.call("DELETE", f"{ADMISSION}/{name}")
        for path in granted:
            await api.must("DELETE", path)
        await api.purge_namespace(own)


@asynccontextmanager
async def running(settings: Settings) -> AsyncIterator[None]:
    """Run the webhook's app in this process until the context ends."""
    stop = asyncio.Event()
    task = asyncio.create_task(run(settings, stop))
    try:
        yield
    finally:
        stop.set()
        await task


async def _trusts(found: Scene) -> bool:
    """Whether the API server asks the webhook and understands its answer: the configuration takes a moment."""
    probe = {
        "metadata": {"name": "probe", "annotations": {"plimsoll.dev/probe": "1"}},
        "spec": {"schedulerName": "plimsoll", "containers": [{"name": "c", "image": "i"}]},
    }
    refusal = (await found.create(probe, dry=True)).get("message", "")
    return "denied the request: metadata.annotations[plimsoll.dev/probe]" in refusal


async def _apply(api: ApiServer, configuration: Json, port: int, label: dict[str, str]) -> None:
    """Apply a shipped configuration with a URL in place of the Service, for the namespaces with a label alone."""
    made = json.loads(json.dumps(configuration))
    for webhook in made["webhooks"]:
        webhook["clientConfig"] = {
            "url": f"https://127.0.0.1:{port}{webhook['clientConfig']['service']['path']}"
        }
        [(key, value)] = label.items()
        webhook["namespaceSelector"]["matchExpressions"].append(
            {"key": key, "operator": "In", "values": [value]}
        )
    await api.must("POST", ADMISSION, made)


async def _grant(api: ApiServer, own: str, mark: str) -> list[str]:
    """Give the shipped rights to `USER`; returns the paths of the objects made."""
    made = []
    for one in await asyncio.to_thread(shipped, "webhook.yaml"):
        if not one["apiVersion"].startswith("rbac"):
            continue
        kind, name = one["kind"], f"{one['metadata']['name']}-{mark}"
        path = RBAC + (f"/namespaces/{own}" if kind.startswith("Role") else "") + f"/{kind.lower()}s"
        body = {**one, "metadata": {"name": name}}
        if kind.endswith("Binding"):
            body["roleRef"] = {**one["roleRef"], "name": name}
            body["subjects"] = [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": USER}]
        await api.must("POST", path, body)
        made.append(f"{path}/{name}")
    return made


async def _free_port() -> int:
    server = await asyncio.start_server(lambda _reader, _writer: None, "127.0.0.1", 0)
    port = int(server.sockets[0].getsockname()[1])
    server.close()
    await server.wait_closed()
    return port


async def peer_certificate(port: int) -> str:
    """The certificate that the webhook serves now, PEM."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    encoded = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    await writer.wait_closed()
    del reader
    return ssl.DER_cert_to_PEM_cert(encoded)
