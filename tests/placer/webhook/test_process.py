"""The webhook as a process of its own: `python -m placer.webhook`."""

import asyncio
import json
import os
import sys

from placer.webhook.settings import PREFIX
from tests.constants import part_with
from tests.servers.apiserver import ApiServer
from tests.servers.waiting import PATIENCE_S, until


async def test_the_process_starts_and_ends(apiserver: ApiServer, namespace: str) -> None:
    """It makes its Secret, logs its port, waits for its configuration, and ends with 0 on SIGTERM."""
    settings = {
        "KUBECONFIG": str(apiserver.kubeconfig()),
        "NAMES": "127.0.0.1",
        "PORT": "0",
        "HTTP_PORT": "0",
    }
    environment = {"PATH": os.environ["PATH"], **{PREFIX + name: value for name, value in settings.items()}}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *part_with("placer.webhook", f"placer.webhook.app.own_namespace=lambda: {namespace!r}"),
        env=environment,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    try:
        async with asyncio.timeout(PATIENCE_S):
            while (logged := json.loads(await process.stderr.readline()))["event"] != "webhook ready":
                pass
        assert logged["port"] > 0
        await until(lambda: _made(apiserver, namespace))
        process.terminate()
        async with asyncio.timeout(PATIENCE_S):
            await process.stderr.read()
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def _made(apiserver: ApiServer, namespace: str) -> bool:
    secret = f"/api/v1/namespaces/{namespace}/secrets/plimsoll-webhook-certificates"
    return (await apiserver.call("GET", secret)).status == 200
