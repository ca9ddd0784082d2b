"""Runs an exec plugin: a program, named by the kubeconfig's `exec`, that prints a bearer token for the API server.

What always holds: a plugin that fails, hangs or prints something else ends as `CredentialsError`, and a plugin whose
answer nobody waits for is killed together with its children.
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Final

import msgspec

PLUGIN_S: Final = 60.0
"""The longest run of a plugin in seconds. A plugin may ask a cloud's server, and repeat that."""

_SHOWN_CHARS: Final = 200


class CredentialsError(OSError):
    """No credentials came; a later attempt may succeed."""


class ExecStatus(msgspec.Struct, frozen=True, rename="camel"):
    """The `status` of an `ExecCredential`: a bearer token, or a client certificate with its key, in PEM.

    Attributes:
        expiration_timestamp: the end of the token's time; None if the plugin names none.
    """

    token: str | None = None
    expiration_timestamp: Annotated[datetime, msgspec.Meta(tz=True)] | None = None
    client_certificate_data: str | None = None
    client_key_data: str | None = None


class _ExecCredential(msgspec.Struct, frozen=True):
    status: ExecStatus


class _Variable(msgspec.Struct, frozen=True):
    name: str
    value: str


class Exec(msgspec.Struct, frozen=True, rename="camel"):
    """The `exec` of a user in a kubeconfig."""

    command: str
    api_version: str
    args: list[str] | None = None
    env: list[_Variable] | None = None


@dataclass(frozen=True, slots=True)
class ExecPlugin:
    """A program and its arguments, and the environment in which it runs."""

    command: tuple[str, ...]
    environment: Mapping[str, str]

    async def run(self) -> ExecStatus:
        """Run the plugin once. Cancelling kills it.

        Raises:
            CredentialsError: the plugin cannot be started, fails, takes longer than `PLUGIN_S`, or prints neither a
                token nor a certificate with its key.
        """
        output = await _output(self.command, self.environment)
        nothing = f"{self.command[0]} printed no ExecCredential with a token"
        try:
            status = msgspec.json.decode(output, type=_ExecCredential).status
        except msgspec.MsgspecError as error:  # the output may hold a secret, so no message shows it
            raise CredentialsError(f"{nothing} ({error})") from error
        if not status.token and not (status.client_certificate_data and status.client_key_data):
            raise CredentialsError(nothing)
        return status


def exec_plugin(config: Exec) -> ExecPlugin:
    """The plugin of a kubeconfig's user; this runs nothing."""
    info = {"apiVersion": config.api_version, "kind": "ExecCredential", "spec": {"interactive": False}}
    added = {one.name: one.value for one in config.env or ()}
    added["KUBERNETES_EXEC_INFO"] = msgspec.json.encode(info).decode()
    return ExecPlugin((config.command, *(config.args or ())), {**os.environ, **added})


async def _output(command: Sequence[str], environment: Mapping[str, str]) -> bytes:
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            env=environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,  # so that its children can be killed too
        )
    except OSError as error:
        raise CredentialsError(f"{command[0]} cannot be started ({error})") from error
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
