"""An emulated machine on which `plimsoll run` and other commands run as processes."""

import asyncio
import contextlib
import json
import os
import sys
from pathlib import Path

from plimsoll.broker.client import BrokerClient
from plimsoll.ids import PodUid
from tests.placer.local.world import BUILD, GPU_GIB, REPOSITORY, gpu_of
from tests.servers.waiting import PATIENCE_S


class Machine:
    """An emulated machine with one GPU, and no broker yet."""

    def __init__(self, directory: Path) -> None:
        self.root = directory / "broker"
        self._config = directory / "node.conf"
        self._config.write_text(
            f"[gpu 0]\nmodel = NVIDIA L4\nmemory = {GPU_GIB}Gi\nuuid = {gpu_of('here')}\n"
        )

    def add_gpu(self, name: str) -> None:
        """Add another GPU; no program may use the machine yet."""
        with self._config.open("a") as config:
            config.write(f"[gpu 1]\nmodel = NVIDIA L4\nmemory = {GPU_GIB}Gi\nuuid = {gpu_of(name)}\n")

    async def start(
        self, *arguments: str, module: str = "plimsoll run", **environment: str
    ) -> asyncio.subprocess.Process:
        """Start `plimsoll run`, or another module (`module` may hold its first arguments), with these arguments."""
        return await self._start(arguments, module, environment, asyncio.subprocess.PIPE)

    async def resize_unread(self, *arguments: str) -> tuple[int | None, bytes]:
        """Run `plimsoll resize -n plimsoll-run` without a reader; returns exit code and error output."""
        reader, writer = os.pipe()
        os.close(reader)
        process = await self._start(arguments, "plimsoll resize", {}, writer)
        os.close(writer)
        _, errors = await process.communicate()
        return process.returncode, errors

    async def _start(
        self, arguments: tuple[str, ...], module: str, environment: dict[str, str], stdout: int
    ) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", *module.split(), "--broker-root", str(self.root)),
            *arguments,
            env={**self._environment, **environment},
            stdin=asyncio.subprocess.PIPE,
            stdout=stdout,
            stderr=asyncio.subprocess.PIPE,
        )

    async def start_program(self, *arguments: str) -> asyncio.subprocess.Process:
        """Start a program that has nothing to do with Plimsoll."""
        output = asyncio.subprocess.DEVNULL
        return await asyncio.create_subprocess_exec(*arguments, env=self._environment, stdout=output)

    async def run_program(self, *arguments: str) -> tuple[int | None, str]:
        """Run a program of the machine; returns exit code and error output."""
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(*arguments, env=self._environment, stderr=pipe)
        _, errors = await process.communicate()
        return process.returncode, errors.decode()

    @property
    def _environment(self) -> dict[str, str]:
        emulated = {"PLIMSOLL_EMULATOR": str(self._config), "LD_LIBRARY_PATH": str(BUILD / "emulator")}
        return {**os.environ, **emulated, "PYTHONPATH": str(REPOSITORY)}

    async def run(self, *arguments: str, **environment: str) -> tuple[int | None, str, str]:
        """Run `plimsoll run`; returns exit code, output and error output."""
        return await self._finish(await self.start(*arguments, **environment))

    async def resize(self, *arguments: str) -> tuple[int | None, str, str]:
        """Run `plimsoll resize -n plimsoll-run`; returns the same."""
        return await self._finish(await self.start(*arguments, module="plimsoll resize"))

    async def plimsoll(self, command: str, *arguments: str) -> tuple[int | None, str, str]:
        """Run another command as a user types it; returns the same."""
        return await self._finish(await self.start(*arguments, module=f"plimsoll {command}"))

    async def _finish(self, process: asyncio.subprocess.Process) -> tuple[int | None, str, str]:
        async with asyncio.timeout(PATIENCE_S):
            output, errors = await process.communicate()
        return process.returncode, output.decode(), errors.decode()

    async def lines(self) -> list[int]:
        """The line of every registered command."""
        async with BrokerClient(self.root) as client:
            uses = (await client.describe()).containers
        return [line.line_bytes for use in uses for line in use.container.lines]

    async def shares(self) -> list[tuple[int, int]]:
        """Share and limit of every registered command."""
        async with BrokerClient(self.root) as client:
            uses = (await client.describe()).containers
        return [(line.share_pct, line.limit_pct) for use in uses for line in use.container.lines]

    async def used_pct(self) -> list[float]:
        """The unfinished time ÷ elapsed time of every process on the GPU, over 2 s, from the emulator's records."""
        watcher = await asyncio.create_subprocess_exec(
            *(str(BUILD / "emulator" / "book"), "watch", "0", "2000"),
            env={**os.environ, "PLIMSOLL_EMULATOR": str(self._config)},
            stdout=asyncio.subprocess.PIPE,
        )
        assert watcher.stdout is not None
        first, second = [json.loads(await watcher.stdout.readline()) for _ in range(2)]
        watcher.kill()
        await watcher.wait()
        span_ns = second["time_ns"] - first["time_ns"]
        earlier_ns = {process["pid"]: process["unfinished_ns"] for process in first["processes"]}
        return [
            100 * (process["unfinished_ns"] - earlier_ns.get(process["pid"], 0)) / span_ns
            for process in second["processes"]
        ]

    async def used_bytes(self) -> int:
        """The bytes that all processes hold on the GPU, from the emulator's records."""
        return int(json.loads(await self._book())["gpus"][0]["used_bytes"])

    async def book(self, *arguments: str) -> None:
        """Change the emulated GPUs as `build/emulator/book` does, for instance `lose 0`."""
        await self._book(*arguments)

    async def slow_nvml(self, milliseconds: int) -> None:
        """Let each query of the GPU's NVML take this long."""
        await self._book("slow", "0", "nvml", str(milliseconds))

    async def _book(self, *arguments: str) -> bytes:
        book = await asyncio.create_subprocess_exec(
            *(str(BUILD / "emulator" / "book"), *arguments),
            env={**os.environ, "PLIMSOLL_EMULATOR": str(self._config)},
            stdout=asyncio.subprocess.PIPE,
        )
        return (await book.communicate())[0]

    async def registered(self) -> set[PodUid]:
        """The commands that the broker has registered; none if there is no broker."""
        if not await asyncio.to_thread((self.root / "broker.sock").exists):
            return set()
        async with BrokerClient(self.root) as client:
            return {use.pod for use in (await client.describe()).containers}

    async def broker_pids(self) -> list[int]:
        """The processes that are this machine's private brokers, by their environment."""
        return await asyncio.to_thread(self._broker_pids)

    def _broker_pids(self) -> list[int]:
        ours, found = f"PLIMSOLL_BROKER_ROOT={self.root}\0".encode(), []
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):  # it ended meanwhile
                if ours in (process / "environ").read_bytes():
                    found.append(int(process.name))
        return found

    async def has_no_broker(self) -> bool:
        """Whether the private broker has ended and removed its socket."""
        return not await asyncio.to_thread((self.root / "broker.sock").exists)
