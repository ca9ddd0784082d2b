"""The webhook as a process of its own, with a certificate of its own in an API server."""

import asyncio
import json
import os
import sys
from base64 import b64decode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

import aiohttp

from placer.webhook.settings import PREFIX
from tests.servers.control_plane import ControlPlane

PATIENCE_S: Final = 60.0
SECRET: Final = "/api/v1/namespaces/kube-system/secrets/plimsoll-webhook-certificates"  # noqa: S105 - a path


@dataclass(frozen=True, slots=True)
class Webhook:
    """The running process."""

    pid: int
    port: int
    authority: str


@asynccontextmanager
async def webhook(plane: ControlPlane, api: aiohttp.ClientSession, **further: str) -> AsyncIterator[Webhook]:
    """Run the webhook as a process until the context ends, with `further` settings in lower case."""
    settings = {
        "KUBECONFIG": str(plane.kubeconfig()),
        "NAMES": "127.0.0.1",
        "PORT": "0",
        "HAMI": "true",
        **{name.upper(): value for name, value in further.items()},
    }
    environment = {"PATH": os.environ["PATH"], **{PREFIX + name: value for name, value in settings.items()}}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "placer.webhook", env=environment, stderr=asyncio.subprocess.PIPE
    )
    assert process.stderr is not None
    try:
        async with asyncio.timeout(PATIENCE_S):
            while (logged := json.loads(await process.stderr.readline()))["event"] != "webhook ready":
                pass
        async with api.get(SECRET) as answer:
            [kept] = json.loads(b64decode((await answer.json())["data"]["generations.json"]))
        yield Webhook(process.pid, logged["port"], kept["authority"])
    finally:
        process.terminate()
        await process.communicate()
