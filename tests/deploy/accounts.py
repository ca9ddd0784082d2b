"""Service accounts with the rights that the chart gives them, on a real API server, and a record of what they use."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import yaml

from plimsoll.kube.client import connect
from plimsoll.kube.transport import Body, PatchKind, Query, Transport
from tests.servers.apiserver import ApiServer, Object
from tools.chart import BASE, NAMESPACE, render

RIGHTS: Final = ("ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding")
_PATH: Final = re.compile(
    r"/(?:api|apis/(?P<group>[^/]+))/v1"
    r"(?:/namespaces/[^/]+(?=/[a-z]))?/(?P<resource>[a-z]+)(?:/(?P<name>[^/]+)(?:/(?P<sub>[a-z]+))?)?$"
)


@dataclass(frozen=True, slots=True)
class Account:
    """A service account of the chart.

    Attributes:
        user: its name as the API server knows it.
        kubeconfig: a file with its token.
        rights: every pair of a verb and a resource that its roles allow, such as `("list", "pods")`.
    """

    user: str
    kubeconfig: Path
    rights: frozenset[tuple[str, str]]


@asynccontextmanager
async def account(
    api: ApiServer, namespace: str, part: str, directory: Path, *, pod: str | None = None
) -> AsyncIterator[Account]:
    """Apply the chart's account and rights of one part for a release in `namespace`; they go with the context.

    Args:
        api: the API server.
        namespace: the release's namespace, which exists.
        part: `placer`, `webhook`, `monitor` or `broker`.
        directory: for the kubeconfig.
        pod: a pod of the account to which the token is bound, as a kubelet binds it.
    """
    objects = await asyncio.to_thread(rights_of, namespace, part)
    manifest = yaml.safe_dump_all(objects)
    await api.kubectl("apply", "--server-side", "--validate=strict", "--filename=-", stdin=manifest)
    try:
        name = f"plimsoll-{part}"
        kubeconfig = await kubeconfig_of(api, namespace, name, directory, pod=pod)
        yield Account(f"system:serviceaccount:{namespace}:{name}", kubeconfig, allowed(objects))
    finally:
        await api.kubectl("delete", "--ignore-not-found", "--filename=-", stdin=manifest)


@asynccontextmanager
async def readers(api: ApiServer, namespace: str, directory: Path) -> AsyncIterator[Path]:
    """Apply the chart's rights of a placer that asks the API server about its readers, and those of the readers.

    Gives the placer's kubeconfig.
    """
    templates = await asyncio.to_thread(render, {"placer": {"auth": "kubernetes"}}, namespace=namespace)
    manifest = "\n---\n".join(templates[f"placer/{name}.yaml"] for name in ("rbac", "reader"))
    await api.kubectl("apply", "--server-side", "--validate=strict", "--filename=-", stdin=manifest)
    try:
        yield await kubeconfig_of(api, namespace, "plimsoll-placer", directory)
    finally:
        await api.kubectl("delete", "--ignore-not-found", "--filename=-", stdin=manifest)


async def token_of(api: ApiServer, namespace: str, name: str, *audiences: str) -> str:
    """A new token of a service account; without audiences it is one for the API server."""
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
    answer = await api.must("POST", path, {"spec": {"expirationSeconds": 3600, "audiences": list(audiences)}})
    token: str = answer["status"]["token"]
    return token


def rights_of(namespace: str, part: str) -> list[Object]:
    """The chart's account of a part, with its roles and their bindings."""
    # The generated file is the chart's, as test_chart shows.
    text = (BASE / "plimsoll.yaml").read_text().replace(NAMESPACE, namespace)
    objects = [one for one in yaml.safe_load_all(text) if one]
    return [one for one in objects if one["kind"] in RIGHTS and one["metadata"]["name"] == f"plimsoll-{part}"]


def allowed(objects: Iterable[Object]) -> frozenset[tuple[str, str]]:
    """Every pair of a verb and a resource in the roles; a resource outside of the core group has its group."""
    return frozenset(
        (verb, f"{group}/{resource}".lstrip("/"))
        for one in objects
        for rule in one.get("rules", ())
        if "resources" in rule
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    )


async def kubeconfig_of(
    api: ApiServer, namespace: str, name: str, directory: Path, *, pod: str | None = None
) -> Path:
    """A kubeconfig with a new token of a service account, which is bound to a pod if one is named."""
    spec: Object = {"expirationSeconds": 3600}
    if pod is not None:
        stored = await api.get(f"/api/v1/namespaces/{namespace}/pods/{pod}")
        reference = {"kind": "Pod", "apiVersion": "v1", "name": pod, "uid": stored["metadata"]["uid"]}
        spec["boundObjectRef"] = reference
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
    answer = await api.must("POST", path, {"spec": spec})
    file = directory / f"{name}-{pod}.kubeconfig"
    await asyncio.to_thread(file.write_text, json.dumps(_kubeconfig(api, answer["status"]["token"])))
    return file


def _kubeconfig(api: ApiServer, token: str) -> Mapping[str, object]:
    cluster = {"server": api.url, "certificate-authority": str(api.plane.ca_file)}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": cluster}],
        "users": [{"name": "account", "user": {"token": token}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "account"}}],
        "current-context": "test",
    }


@asynccontextmanager
async def recorded(kubeconfig: Path, calls: "Recorder") -> AsyncIterator[Transport]:
    """A client as `connect` gives it, whose calls are noted."""
    async with connect(kubeconfig) as client:
        yield calls.around(client)


@dataclass(slots=True)
class Recorder:
    """Forwards all calls, and notes the right that each one needs, as `Account.rights` names it."""

    used: set[tuple[str, str]] = field(default_factory=set)
    _real: Transport | None = None

    def around(self, real: Transport) -> Transport:
        """Wrap a real transport in this one."""
        self._real = real
        return self

    @property
    def real(self) -> Transport:
        """The wrapped transport."""
        assert self._real is not None
        return self._real

    async def get(self, path: str, query: Query = ()) -> bytes:
        """See `Transport`."""
        self._note("get", path)
        return await self.real.get(path, query)

    async def post(self, path: str, body: Body) -> bytes:
        """See `Transport`."""
        self._note("create", path)
        return await self.real.post(path, body)

    async def patch(self, path: str, body: Body, kind: PatchKind) -> bytes:
        """See `Transport`."""
        self._note("patch", path)
        return await self.real.patch(path, body, kind)

    async def delete(self, path: str, body: Body) -> bytes:
        """See `Transport`."""
        self._note("delete", path)
        return await self.real.delete(path, body)

    def stream(
        self, path: str, query: Query, read_timeout_s: float
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """See `Transport`."""
        self._note("watch", path)
        return self.real.stream(path, query, read_timeout_s)

    def _note(self, verb: str, path: str) -> None:
        found = _PATH.fullmatch(path)
        assert found is not None, path
        group, resource, name, sub = found.group("group", "resource", "name", "sub")
        verb = "list" if verb == "get" and name is None else verb
        self.used.add((verb, "/".join(filter(None, (group, resource, sub)))))
