"""Runs an exec plugin: a program, named by the kubeconfig's `exec`, that prints credentials for the API server.

`kubernetes.aio` runs plugins too, but gives them no information about the cluster, starts a relative command in our
own folder, lets a program that hangs live on, and shows its failures to nobody but a log.
What always holds: a plugin that fails, hangs or prints something else ends as `CredentialsError`, and a plugin whose
answer nobody waits for is killed together with its children.
"""

import asyncio
import contextlib
import os
import signal
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec

from plimsoll.part.errors import InputError

PLUGIN_S: Final = 60.0
"""The longest run of a plugin in seconds. A plugin may ask a cloud's server, and repeat that."""

CLUSTER_EXTENSION: Final = "client.authentication.k8s.io/exec"
"""The name of the cluster's extension whose contents a plugin gets."""

_SHOWN_CHARS: Final = 200


class CredentialsError(OSError):
    """No credentials came; a later attempt may succeed."""


class ExecStatus(msgspec.Struct, frozen=True):
    """The `status` of an `ExecCredential`.

    Attributes:
        token: the bearer token; None where a certificate is given instead.
        clientCertificateData, clientKeyData: a client's certificate and key in PEM; None where there are none.
        expirationTimestamp: the end of the token's time; None if the plugin names none.
    """

    token: Annotated[str, msgspec.Meta(min_length=1)] | None = None
    clientCertificateData: str | None = None  # noqa: N815 - the API's name
    clientKeyData: str | None = None  # noqa: N815 - likewise
    expirationTimestamp: Annotated[datetime, msgspec.Meta(tz=True)] | None = None  # noqa: N815 - likewise

    def __post_init__(self) -> None:
        """Refuse a status without credentials."""
        if not self.token and not (self.clientCertificateData and self.clientKeyData):
            raise ValueError("neither a token nor a certificate with its key is there")


class _ExecCredential(msgspec.Struct, frozen=True):
    status: ExecStatus


@dataclass(frozen=True, slots=True)
class ExecPlugin:
    """A program and its arguments, and the environment in which it runs.

    Attributes:
        command: the program, and its arguments.
        environment: all variables of the program.
        install_hint: the kubeconfig's words for people who lack the program; empty without any.
    """

    command: tuple[str, ...]
    environment: Mapping[str, str]
    install_hint: str = ""

    async def run(self) -> ExecStatus:
        """Run the plugin once. Cancelling kills it.

        Raises:
            CredentialsError: the plugin cannot be started, fails, takes longer than `PLUGIN_S`, or prints no
                credentials.
        """
        output = await _output(self)
        try:
            return msgspec.json.decode(output, type=_ExecCredential).status
        except msgspec.MsgspecError as error:  # the output may hold a secret, so no message shows it
            raise CredentialsError(
                f"{self.command[0]} printed no ExecCredential with credentials ({error})"
            ) from error


def exec_plugin(
    config: Mapping[str, Any], folder: Path, cluster: Mapping[str, Any], cluster_folder: Path
) -> ExecPlugin:
    """The plugin of a kubeconfig's `exec`; this runs nothing, and may read the cluster's file of authorities.

    Args:
        config: `users[].user.exec`.
        folder: the folder of its kubeconfig, to which a command with a slash is relative.
        cluster: `clusters[].cluster` of the context, for a plugin that wants to know it (`provideClusterInfo`).
        cluster_folder: the folder of the kubeconfig with the cluster.

    Raises:
        KeyError: a field is missing.
        OSError: the cluster's file of authorities cannot be read.
        InputError: the plugin needs a terminal.
    """
    if config.get("interactiveMode") == "Always":
        remedy = "name a plugin that needs no person, as a part of Plimsoll has no terminal"
        raise InputError("users[].user.exec.interactiveMode", "Always", "cannot be met", remedy)
    spec: dict[str, Any] = {"interactive": False}
    if config.get("provideClusterInfo"):
        spec["cluster"] = _cluster_info(cluster, cluster_folder)
    info = {"apiVersion": config["apiVersion"], "kind": "ExecCredential", "spec": spec}
    added = {str(one["name"]): str(one["value"]) for one in config.get("env") or ()}
    added["KUBERNETES_EXEC_INFO"] = msgspec.json.encode(info).decode()
    arguments = (str(argument) for argument in config.get("args") or ())
    command = str(config["command"])
    # A `Path` would drop the "./" by which the working directory is searched, and not PATH.
    program = os.path.join(folder, command) if os.sep in command else command  # noqa: PTH118 - see above
    hint = str(config.get("installHint") or "").strip()
    return ExecPlugin((program, *arguments), {**os.environ, **added}, hint)


def _cluster_info(cluster: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The `Cluster` of an `ExecCredential` (client.authentication.k8s.io/v1)."""
    kept = ("server", "tls-server-name", "insecure-skip-tls-verify", "proxy-url", "disable-compression")
    info = {name: cluster[name] for name in (*kept, "certificate-authority-data") if cluster.get(name)}
    if cluster.get("certificate-authority") and "certificate-authority-data" not in info:
        text = (folder / cluster["certificate-authority"]).read_bytes()
        info["certificate-authority-data"] = b64encode(text).decode()
    for extension in cluster.get("extensions") or ():
        if extension.get("name") == CLUSTER_EXTENSION:
            info["config"] = extension.get("extension")
    return info


async def _output(plugin: ExecPlugin) -> bytes:
    command = plugin.command
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            env=plugin.environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,  # so that its children can be killed too
        )
    except OSError as error:
        hint = f"; {plugin.install_hint}" if plugin.install_hint else ""
        raise CredentialsError(f"{command[0]} cannot be started ({error}){hint}") from error
    try:
        async with asyncio.timeout(PLUGIN_S):
            output, errors = await process.communicate()
    except (TimeoutError, asyncio.CancelledError) as error:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        if isinstance(error, TimeoutError):
            raise CredentialsError(f"{command[0]} did not end in {PLUGIN_S:.0f} s") from error
        raise
    if process.returncode != 0:
        text = errors.decode("utf-8", "replace").strip()[-_SHOWN_CHARS:]
        raise CredentialsError(f"{command[0]} ended with {process.returncode}: {text}")
    return output
