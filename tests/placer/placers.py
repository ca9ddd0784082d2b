"""Placers as processes, several at a time, each with its log in a file."""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import msgspec

from plimsoll.placer_api.explain import Explained
from tests.placer.local.world import REPOSITORY
from tests.servers.apiserver import ApiServer
from tests.servers.waiting import PATIENCE_S, until

LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/plimsoll-placer"

LEASE_S = "15"
"""The leader keeps its Lease while the machine stands still for up to ten seconds, as a shared one may."""


class Line(msgspec.Struct, frozen=True):
    """A line of the log; the fields that tests read."""

    event: str
    pod: str = ""
    pods: int = 0
    port: int = 0
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Placer:
    """A placer process.

    Attributes:
        name: its instance.
        process: its process.
        log: the path of its log.
    """

    name: str
    process: asyncio.subprocess.Process
    log: Path

    def lines(self) -> list[Line]:
        """The whole lines of the log so far; the last one may still be written."""
        *whole, _ = self.log.read_bytes().split(b"\n")
        return [msgspec.json.decode(line, type=Line) for line in whole]

    def placed(self) -> list[str]:
        """The names of the pods that it says it placed, in order."""
        return [line.pod.partition("/")[2] for line in self.lines() if line.event == "placed"]

    async def until(self, event: str) -> Line:
        """Wait for a line of the log."""

        async def look() -> Line | None:
            assert self.process.returncode is None, self.log.read_text()
            return next((line for line in self.lines() if line.event == event), None)

        line = await until(look)
        assert line is not None
        return line

    async def readiness(self) -> tuple[int, str]:
        """Status and text of `/readyz`."""
        port = (await self.until("http ready")).port
        async with aiohttp.request("GET", f"http://127.0.0.1:{port}/readyz") as response:
            return response.status, await response.text()

    async def explained(self, namespace: str, pod: str) -> Explained:
        """The answer to why a pod waits, once the one who answers has seen the pod in its watch."""
        port = (await self.until("http ready")).port
        url = f"http://127.0.0.1:{port}/v1/pods/{namespace}/{pod}/explain"

        async def asked() -> bytes | None:
            async with aiohttp.request("GET", url) as response:
                body = await response.read()
                if response.status == 404:
                    return None
                assert response.status == 200, body
                return body

        body = await until(asked)
        assert body is not None
        return msgspec.json.decode(body, type=Explained)

    async def metrics(self) -> str:
        """The text of `/metrics`."""
        port = (await self.until("http ready")).port
        async with aiohttp.request("GET", f"http://127.0.0.1:{port}/metrics") as response:
            return await response.text()

    async def ended(self) -> int:
        """Wait for the exit code."""
        async with asyncio.timeout(PATIENCE_S):
            return await self.process.wait()


@dataclass(slots=True)
class Placers:
    """Starts placers; all that still live are killed at the end.

    Attributes:
        directory: the folder of their logs.
        settings: those of every placer, without the prefix.
        started: all that were started.
    """

    directory: Path
    settings: dict[str, str]
    started: list[Placer] = field(default_factory=list)

    async def start(self, name: str, **settings: str) -> Placer:
        """Start one placer; it has not logged anything yet."""
        ours = {
            "instance": name,
            "http_port": "0",
            "lease_s": LEASE_S,
            "unheld_pods": "place",
        }
        given = {**ours, **self.settings, **settings}
        environment = {f"PLIMSOLL_{key.upper()}": value for key, value in given.items()}
        path = self.directory / f"{name}.log"
        with path.open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "placer",
                env={**os.environ, "PYTHONPATH": str(REPOSITORY), **environment},
                stderr=log,
            )
        placer = Placer(name, process, path)
        self.started.append(placer)
        return placer


@contextlib.asynccontextmanager
async def placers(directory: Path, **settings: str) -> AsyncIterator[Placers]:
    """Make placers with these settings."""
    running = Placers(directory, settings)
    try:
        yield running
    finally:
        for placer in running.started:
            if placer.process.returncode is None:
                placer.process.send_signal(signal.SIGCONT)
                placer.process.kill()
                await placer.process.wait()


async def free_lease(api: ApiServer, namespace: str = "kube-system") -> None:
    """Make a Lease one of nobody: if none is there, a placer waits for as long as a Lease lasts."""
    folder, _, name = LEASE.replace("kube-system", namespace).rpartition("/")
    await api.call("DELETE", f"{folder}/{name}")
    await api.must("POST", folder, {"metadata": {"name": name}, "spec": {}})


async def holder(api: ApiServer) -> str:
    """The instance of the placer that holds the lease; empty if none does."""
    answer = await api.call("GET", LEASE)
    identity: str = answer.body["spec"].get("holderIdentity", "") if answer.status == 200 else ""
    return identity.rpartition("-")[0]
