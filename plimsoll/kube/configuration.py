"""The way to an API server, by a kubeconfig or a service account: address, TLS, credentials, proxy.

`kubernetes.aio` reads all of this too, but importing it takes a third of a placer's start. So it is imported for an
`auth-provider` alone, the old form of a cloud's login. Reading files and certificates blocks, so a thread does it.
"""

import asyncio
import contextlib
import importlib
import os
import ssl
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from plimsoll.kube import credentials as kube_credentials
from plimsoll.kube.certificates import mutual, trusting
from plimsoll.kube.context import FIELD, Cluster, User, chosen, unusable
from plimsoll.kube.credentials import Credentials, Token, file_credentials, plugin_credentials
from plimsoll.kube.exec_plugin import CredentialsError, ExecStatus, exec_plugin
from plimsoll.kube.kubeconfig import IN_CLUSTER, SERVICE_ACCOUNT, check_kubeconfig
from plimsoll.kube.transport import text_of
from plimsoll.part.errors import InputError

SERVICE_HOST: Final = "KUBERNETES_SERVICE_HOST"
SERVICE_PORT: Final = "KUBERNETES_SERVICE_PORT"
"""The variables by which the kubelet gives each container the API server's address."""


@dataclass(frozen=True, slots=True)
class Configuration:
    """The way to an API server.

    Attributes:
        host: the server's address, with its scheme and without a slash at the end.
        tls: trusts the server, and has the client's certificate if there is one.
        credentials: the tokens of requests.
        way: what each request needs to reach the server: a proxy, a TLS server name, or nothing.
    """

    host: str
    tls: ssl.SSLContext
    credentials: Credentials
    way: Mapping[str, Any]


def kubeconfig_path(where: str) -> Path | None:
    """The argument of `connect` for a setting: a path, or None for `in-cluster`."""
    return None if where == IN_CLUSTER else Path(where)


async def configured(kubeconfig: Path | None, context: str | None) -> Configuration:
    """The way to the server of a kubeconfig's context, see `plimsoll.kube.client.connect`.

    Raises:
        InputError: the configuration is missing or unreadable.
    """
    if kubeconfig is None:
        return await _in_cluster()
    where = str(kubeconfig)
    await asyncio.to_thread(check_kubeconfig, FIELD, where)
    found = await asyncio.to_thread(chosen, where, context)
    try:
        status = await _first_run(found.user)
        tls = await asyncio.to_thread(mutual, found, status)
        if found.user.auth_provider is not None:
            credentials = await _provided(where, context)
        else:
            credentials = await _credentials(found.user, status, found.user_file.parent)
    except (OSError, ValueError) as error:  # no file, no certificate in it, no token, no base64
        raise unusable(where, error) from error
    return Configuration(found.cluster.server.rstrip("/"), tls, credentials, way_to(found.cluster))


async def _in_cluster() -> Configuration:
    try:
        cluster = service_cluster()
        tls = await asyncio.to_thread(trusting, cluster, SERVICE_ACCOUNT)
        credentials = await file_credentials(kube_credentials.SERVICE_TOKEN)
    except (OSError, ValueError) as error:
        remedy = "run in a pod with a service account, or name a kubeconfig"
        raise InputError(FIELD, IN_CLUSTER, f"is no choice here ({text_of(error)})", remedy) from error
    return Configuration(cluster.server, tls, credentials, way_to(cluster))


def service_cluster() -> Cluster:
    """The server that the kubelet names to the containers of a pod.

    Raises:
        ValueError: this process runs in no pod.
    """
    host, port = os.environ.get(SERVICE_HOST), os.environ.get(SERVICE_PORT)
    if not host or not port:
        raise ValueError(f"{SERVICE_HOST} or {SERVICE_PORT} is not set")
    return Cluster(f"https://{f'[{host}]' if ':' in host else host}:{port}", "ca.crt")


def way_to(cluster: Cluster) -> dict[str, Any]:
    """How requests reach the server: by the kubeconfig, or a proxy that the environment names when we connect."""
    way: dict[str, Any] = {}
    if cluster.tls_server_name:
        way["server_hostname"] = cluster.tls_server_name
    server = urlsplit(cluster.server)
    proxy = cluster.proxy_url
    if not proxy and not proxy_bypass(server.hostname or ""):
        proxy = getproxies().get(server.scheme)
    if proxy:
        address = urlsplit(proxy)
        login, _, host = address.netloc.rpartition("@")
        way["proxy"] = address._replace(netloc=host).geturl()
        if login:
            way["proxy_headers"] = {"Proxy-Authorization": _basic(unquote(login))}
    return way


async def _first_run(user: User) -> ExecStatus | None:
    """The result of the user's exec plugin; None if there is no plugin, or if it failed."""
    if user.exec is None or user.auth_provider is not None:
        return None
    with contextlib.suppress(
        CredentialsError
    ):  # the first request runs the plugin again, and shows its failure
        return await exec_plugin(user.exec).run()
    return None


async def _credentials(user: User, status: ExecStatus | None, folder: Path) -> Credentials:
    """The tokens of requests. Only those of an exec plugin and of a file are ever renewed."""
    if user.exec is not None:
        has_certificate = user.client_certificate or user.client_certificate_data
        if (status is None and has_certificate) or (status is not None and not status.token):
            return Credentials(Token(None))
        return plugin_credentials(exec_plugin(user.exec), status)
    if user.token_file:
        return await file_credentials(folder / user.token_file)
    if user.token:
        return Credentials(Token(f"Bearer {user.token}"))
    if user.username is not None and user.password is not None:
        return Credentials(Token(_basic(f"{user.username}:{user.password}")))
    return Credentials(Token(None))


def _basic(login: str) -> str:
    return f"Basic {b64encode(login.encode()).decode()}"


async def _provided(where: str, context: str | None) -> Credentials:
    """The token of an `auth-provider`, whose server may be asked for one; it is never renewed.

    Raises:
        ValueError: there is none.
    """
    client, config = await asyncio.to_thread(_imported)
    configuration = client.Configuration()
    try:
        loading = config.load_kube_config(where, context=context, client_configuration=configuration)
        await asyncio.to_thread(asyncio.run, loading)
    except Exception as error:  # the library raises errors of any type here, TypeError included
        raise ValueError(text_of(error)) from error
    return Credentials(Token(configuration.api_key.get("BearerToken")))


def _imported() -> tuple[Any, Any]:
    """`kubernetes.aio`'s client and config."""
    client, config = (importlib.import_module(f"kubernetes.aio.{name}") for name in ("client", "config"))
    return client, config
