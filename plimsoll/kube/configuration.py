"""How to reach an API server, by a kubeconfig or a service account: address, TLS, credentials, proxy.

The only module that uses the generated client. `kubernetes.aio` provides configuration, credentials and certificates.
Its requests, typed decoding, watch and bind are not used (see the package's docstring). `configured` imports
parts of `kubernetes`, which takes long; importing this module does not.
"""

import asyncio
import importlib.util
import os
import ssl
import sys
from base64 import b64encode
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from plimsoll.kube import credentials as kube_credentials
from plimsoll.kube import kubeconfig as kubeconfig_check
from plimsoll.kube.credentials import Credentials, Token, file_credentials, plugin_credentials
from plimsoll.kube.exec_plugin import CredentialsError, ExecPlugin, ExecStatus, exec_plugin
from plimsoll.kube.kubeconfig import IN_CLUSTER
from plimsoll.kube.proxies import proxy_of
from plimsoll.kube.transport import text_of
from plimsoll.part.errors import InputError
from plimsoll.part.log import get_logger

log = get_logger()


def kubeconfig_path(where: str) -> Path | None:
    """The argument of `connect` for a setting: a path, or None for `in-cluster`."""
    return None if where == IN_CLUSTER else Path(where)


async def configured(kubeconfig: Path | None, context: str | None) -> tuple[Any, ssl.SSLContext, Credentials]:
    """The library's configuration, the TLS context and the credentials, see `plimsoll.kube.client.connect`.

    Raises:
        InputError: the configuration is missing or unreadable.
    """
    # Importing, reading files and reading certificates all block, in coroutines too, so each step runs in a thread.
    # The step that may ask a login provider has an event loop in its thread.
    if kubeconfig is not None:
        # Without this the library prints a line, and reports another error.
        await asyncio.to_thread(kubeconfig_check.check_kubeconfig, "kubeconfig", str(kubeconfig))
    client, config = await asyncio.to_thread(_imported)
    configuration = client.Configuration()
    try:
        if kubeconfig is None:
            await asyncio.to_thread(config.load_incluster_config, configuration, try_refresh_token=False)
            credentials = await file_credentials(kube_credentials.SERVICE_TOKEN)
        else:
            loader = await asyncio.to_thread(_loader, config.kube_config, str(kubeconfig), context)
            plugin = await asyncio.to_thread(_plugin_of, loader)
            first = None if plugin is None else await _first_run(plugin, loader)
            await asyncio.to_thread(asyncio.run, loader.load_and_set(configuration))
            # The cluster may stand in one of several files, and no public attribute says in which.
            kubeconfig_check.check_cluster(loader._cluster.path, loader._cluster.value)  # noqa: SLF001 - as below
            has_certificate = configuration.cert_file is not None
            if plugin is not None and ((first is not None and first.token) or not has_certificate):
                credentials = plugin_credentials(plugin, first)
            else:
                credentials = await _own_credentials(configuration, loader)
        # Nothing but its reading of certificates is used, so it has no connection to close.
        api = await asyncio.to_thread(client.ApiClient, configuration)
    except InputError:
        raise
    except Exception as error:  # the library raises errors of any type here, TypeError included
        raise await asyncio.to_thread(_unusable, kubeconfig, error) from error
    return configuration, api.rest_client.ssl_context, credentials


def _unusable(kubeconfig: Path | None, error: Exception) -> InputError:
    text = text_of(error)
    if kubeconfig is None:
        remedy = "run in a pod with a service account, or name a kubeconfig"
        return InputError("kubeconfig", IN_CLUSTER, f"is no choice here ({text})", remedy)
    if "current-context" in text:
        remedy = "choose one by `kubectl config use-context`"
        return InputError("kubeconfig", str(kubeconfig), f"names no current context ({text})", remedy)
    if isinstance(error, TypeError | AttributeError | KeyError):  # the library met an unexpected type
        damage = kubeconfig_check.damage("kubeconfig", str(kubeconfig))
        if damage is not None:
            return damage
    remedy = "mend it: `kubectl --kubeconfig` with this file must work"
    return InputError("kubeconfig", str(kubeconfig), f"cannot be used ({text})", remedy)


def way_to(configuration: Any) -> dict[str, Any]:  # noqa: ANN401 - untyped library
    """How requests reach the server: by the kubeconfig, or a proxy that the environment names when we connect.

    Raises:
        InputError: the proxy cannot be used.
    """
    way: dict[str, Any] = {}
    if configuration.tls_server_name:
        way["server_hostname"] = configuration.tls_server_name
    field = "clusters[].cluster.proxy-url"
    proxy = proxy_of(configuration.host, field, configuration.proxy, os.environ)
    if proxy is not None:
        credentials, _, host = proxy.netloc.rpartition("@")
        way["proxy"] = proxy._replace(netloc=host).geturl()
        headers = dict(configuration.proxy_headers or {})
        if credentials:
            headers["Proxy-Authorization"] = f"Basic {b64encode(unquote(credentials).encode()).decode()}"
        if headers:
            way["proxy_headers"] = headers
    return way


def _imported() -> tuple[Any, Any]:
    """`kubernetes.aio`'s client and config, without the rest of the package.

    `kubernetes` and `kubernetes.aio` import all that they contain, such as the blocking client, OAuth and websockets:
    0.1 s of CPU and 9 MiB more in each part. So modules without contents stand in for these two meanwhile.
    """
    above = [name for name in ("kubernetes", "kubernetes.aio") if name not in sys.modules]
    try:
        for name in above:
            spec = importlib.util.find_spec(name)
            if spec is None:
                raise ModuleNotFoundError(name=name)
            sys.modules[name] = importlib.util.module_from_spec(spec)
        client, config = (importlib.import_module(f"kubernetes.aio.{name}") for name in ("client", "config"))
    finally:
        for name in above:  # whoever imports the package later gets the whole of it
            sys.modules.pop(name, None)
    return client, config


def namespace_of(kubeconfig: Path, context: str | None) -> str | None:
    """The namespace that a context of a kubeconfig names, or None. Blocks.

    Raises:
        InputError: the kubeconfig cannot be used.
    """
    _, config = _imported()
    try:
        entry = _loader(config.kube_config, str(kubeconfig), context).current_context
    except InputError:
        raise
    except Exception as error:  # as in `configured`
        raise _unusable(kubeconfig, error) from error
    named = entry["context"].get("namespace")
    return None if named is None else str(named)


def _loader(library: Any, files: str, context: str | None) -> Any:  # noqa: ANN401 - untyped library
    """The library's loader of a kubeconfig, which then reads what kubectl would read. Blocks."""
    paths = [path for path in files.split(os.pathsep) if path and Path(path).stat().st_size > 0]
    merger = library.KubeConfigMerger(os.pathsep.join(paths) or files)  # it fails at an empty file
    for kind in ("cluster", "user", "context"):
        for node in merger.config.value[f"{kind}s"]:
            fields = node.value.get(kind) or {}
            if isinstance(fields, dict):
                node.value[kind] = kubeconfig_check.corrected(kind, fields, Path(node.path).absolute().parent)
    contexts = [str(node.value["name"]) for node in merger.config.value["contexts"]]
    if context is not None and context not in contexts:
        remedy = f"name one of {', '.join(contexts)}" if contexts else "leave --context out"
        raise InputError("--context", context, f"is no context of {files}", remedy)
    # The first file counts that names a current context; the library takes the last one.
    named = filter(None, (config.get("current-context") for config in merger.config_files.values() if config))
    loader = library.KubeConfigLoader(
        merger.config, active_context=context or next(named, None), config_base_path=None
    )
    if loader._user is None:  # noqa: SLF001 - a context may name no user, and the library fails then
        loader._user = library.ConfigNode("user", {}, loader._cluster.path)  # noqa: SLF001 - likewise
    return loader


def _plugin_of(loader: Any) -> ExecPlugin | None:  # noqa: ANN401 - untyped library
    """The exec plugin of a loader, of which the library then knows nothing; None without one. Blocks.

    The library would give a plugin no information about the cluster, and start it relative to our own folder.

    Raises:
        InputError: the user's entry cannot be used.
    """
    user, cluster = loader._user, loader._cluster  # noqa: SLF001 - nothing public gives these entries
    kubeconfig_check.check_user(user.path, user.value)
    config = user.value.pop("exec", None)
    if config is None or "auth-provider" in user.value:
        return None
    return exec_plugin(config, Path(user.path).parent, cluster.value, Path(cluster.path).parent)


async def _first_run(plugin: ExecPlugin, loader: Any) -> ExecStatus | None:  # noqa: ANN401 - untyped library
    """The credentials that the plugin gives; None if it fails. A certificate becomes the user's own."""
    try:
        status = await plugin.run()
    except CredentialsError as error:  # A later run may succeed, and a request says why none has.
        log.warning("the exec plugin gave no credentials, retrying", error=str(error))
        return None
    given = {"client-certificate": status.clientCertificateData, "client-key": status.clientKeyData}
    if all(given.values()):
        data = {f"{name}-data": b64encode(str(text).encode()).decode() for name, text in given.items()}
        loader._user.value.update(data)  # noqa: SLF001 - as above
    return status


async def _own_credentials(configuration: Any, loader: Any) -> Credentials:  # noqa: ANN401 - untyped library
    """The credentials of a user without a plugin. Only a token's file is ever read again."""
    node = loader._user  # noqa: SLF001 - nothing public gives the user's entry
    if "tokenFile" in node.value and "auth-provider" not in node.value:
        return await file_credentials(Path(node.path).parent / node.value["tokenFile"])
    return Credentials(Token(configuration.api_key.get("BearerToken")))
