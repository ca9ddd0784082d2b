"""Runs an exec plugin: a program, named by the kubeconfig's `exec`, that prints a bearer token for the API server.

`kubernetes.aio` runs plugins too, but lets a program that hangs live on, and shows its failures to nobody but a log.
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
from typing import Annotated, Any, Final

import msgspec

PLUGIN_S: Final = 60.0
"""The longest run of a plugin in seconds. A plugin may ask a cloud's server, and repeat that."""

_SHOWN_CHARS: Final = 200


class CredentialsError(OSError):
    """No credentials came; a later attempt may succeed."""


class ExecStatus(msgspec.Struct, frozen=True):
    """The `status` of an `ExecCredential`; certificates are not read.

    Attributes:
        token: the bearer token.
        expirationTimestamp: the end of the token's time; None if the plugin names none.
    """

    token: Annotated[str, msgspec.Meta(min_length=1)]
    expirationTimestamp: Annotated[datetime, msgspec.Meta(tz=True)] | None = None  # noqa: N815 - the API's name


class _ExecCredential(msgspec.Struct, frozen=True):
    status: ExecStatus


@dataclass(frozen=True, slots=True)
class ExecPlugin:
    """A program and its arguments, and the environment in which it runs."""

    command: tuple[str, ...]
    environment: Mapping[str, str]

    async def run(self) -> ExecStatus:
        """Run the plugin once. Cancelling kills it.

        Raises:
            CredentialsError: the plugin cannot be started, fails, takes longer than `PLUGIN_S`, or prints no token.
        """
        output = await _output(self.command, self.environment)
        try:
            return msgspec.json.decode(output, type=_ExecCredential).status
        except msgspec.MsgspecError as error:  # the output may hold a secret, so no message shows it
            raise CredentialsError(
                f"{self.command[0]} printed no ExecCredential with a token ({error})"
            ) from error


def exec_plugin(config: Mapping[str, Any]) -> ExecPlugin:
    """The plugin of a kubeconfig's `exec`, with `command`, `apiVersion`, `args` and `env`; this runs nothing.

    Raises:
        KeyError: a field is missing.
    """
    info = {"apiVersion": config["apiVersion"], "kind": "ExecCredential", "spec": {"interactive": False}}
    added = {str(one["name"]): str(one["value"]) for one in config.get("env") or ()}
    added["KUBERNETES_EXEC_INFO"] = msgspec.json.encode(info).decode()
    arguments = (str(argument) for argument in config.get("args") or ())
    return ExecPlugin((str(config["command"]), *arguments), {**os.environ, **added})


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
