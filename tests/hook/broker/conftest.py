"""Real brokers and real processes for the broker's tests, which start, kill and inspect them from outside."""

import asyncio
import contextlib
import importlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from hook.broker.core.journal import Snapshot, decode_line
from plimsoll.broker.announcements import Announcement, Context, ShareUnenforced
from plimsoll.broker.client import BrokerClient
from plimsoll.broker.pages import Counts, Limits
from plimsoll.broker.subscription import subscribed
from plimsoll.broker.wire import Acknowledge, ContainerLines, Line, Register, Subscribe
from plimsoll.ids import ContainerName, GpuUuid, PodUid
from tests.constants import start_of
from tests.servers.waiting import PATIENCE_S

GIB: Final = 1 << 30
GPUS: Final = (GpuUuid("GPU-aaaa"), GpuUuid("GPU-bbbb"))
POD: Final = PodUid("6c4b1c0e-0d6f-4b7e-9d0c-9a1c2f3e4d5a")
MAIN: Final = ContainerName("main")


@pytest.fixture(scope="session")
def grpc_stays() -> Iterator[None]:
    """Keep gRPC's thread for all tests: the end of the last channel would join the thread on the loop."""
    aio = importlib.import_module("grpc.aio")  # here, as most tests of the broker need none

    async def begin() -> None:
        aio.init_grpc_aio()

    loop = asyncio.new_event_loop()  # it asks for a loop, and a test before may have left none
    with contextlib.closing(loop):
        loop.run_until_complete(begin())
        yield
        aio.shutdown_grpc_aio()


def registration(
    line_bytes: int = GIB,
    pod: PodUid = POD,
    *,
    whole: bool = False,
    share_pct: int = 30,
    limit_pct: int = 100,
) -> Register:
    """A pod of one container with the same line on both GPUs.

    Alone and without a limit, its gate is open. So a broker that takes long to start announces no gap.
    """
    lines = tuple(
        Line(gpu=gpu, line_bytes=line_bytes, share_pct=share_pct, limit_pct=limit_pct) for gpu in GPUS
    )
    container = ContainerLines(name=MAIN, lines=lines, whole=whole)
    return Register(pod=pod, namespace="default", name="train", containers=(container,))


def gpu_of(entry: Announcement) -> GpuUuid | None:
    """The GPU of an announcement; None for a sort that has none."""
    gpu: GpuUuid | None = getattr(entry, "gpu", None)
    return gpu


async def until(holds: Callable[[], Awaitable[bool]], what: str) -> None:
    """Wait until a condition holds."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            while not await holds():  # noqa: ASYNC110 - the state is another process's
                await asyncio.sleep(0.01)
    except TimeoutError:
        pytest.fail(f"not reached in {PATIENCE_S} s: {what}")


class Process:
    """A stand-in for a hooked process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.pid = process.pid

    async def do(self, command: str) -> str:
        """Send the process one command; returns its answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(command.encode() + b"\n")
        async with asyncio.timeout(PATIENCE_S):
            answer = (await self._process.stdout.readline()).decode().strip()
        assert answer, f"the stand-in failed at {command!r}"
        return answer

    async def begin(self, used_bytes: int = 0) -> None:
        """Claim a slot, say hello, and hold memory on the first GPU."""
        await self.do("claim")
        await self.do(f"use 0 {used_bytes}")
        await self.do("send hello")

    async def kill(self) -> None:
        """End the process by SIGKILL and reap it."""
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()


CONSTANTS: Final = {
    "audit_s": "hook.broker.app.AUDIT_S={}",
    "cgroup_root": "hook.broker.app.CGROUPS=Path({!r})",
    "hook_library": "hook.broker.app.HOOK_LIBRARY=Path({!r})",
    "shares": "hook.broker.app.SHARES=ShareSettings({})",
    "volume_wait_s": "hook.broker.csi.service.VOLUME_WAIT_S={}",
    "wait_remind_s": "hook.broker.app.REMIND_S={}",
}
"""Constants that tests change, see `start_of`."""


class Broker:
    """A broker process over one root directory, and a client of it."""

    def __init__(
        self,
        root: Path,
        settings: dict[str, str],
        node: Mapping[str, str] | None = None,
        wrapper: Sequence[str] = (),
    ) -> None:
        """Describe a broker that is not started yet.

        Args:
            root: its directory.
            settings: its settings, by their names without the prefix, or `CONSTANTS`.
            node: the environment by which it finds a driver; without it the broker has none.
            wrapper: a command that becomes the broker, such as `nsenter`.
        """
        self.wrapper = wrapper
        self.root = root
        self._node = node or {}
        self.client = BrokerClient(root, timeout_s=PATIENCE_S)
        self.log_path = root.parent / "broker.log"
        self._settings = settings
        self._process: asyncio.subprocess.Process | None = None
        self._processes: list[Process] = []

    async def start(self, **settings: str) -> None:
        """Start the broker and wait until it answers."""
        await self.launch(**settings)
        await self.client.connect()

    async def launch(self, **settings: str) -> None:
        """Start the broker."""
        arguments, given = start_of("hook.broker", "PLIMSOLL_BROKER_", self._settings | settings, CONSTANTS)
        environment = os.environ | self._node | given | {"PLIMSOLL_BROKER_ROOT": str(self.root)}
        with self.log_path.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self.wrapper, sys.executable, *arguments, env=environment, stderr=log
            )

    @property
    def pid(self) -> int:
        """The pid of the running process."""
        assert self._process is not None
        return self._process.pid

    async def wait(self) -> int:
        """Wait until the broker ends by itself; returns its exit status."""
        assert self._process is not None
        async with asyncio.timeout(PATIENCE_S):
            return await self._process.wait()

    async def kill(self) -> None:
        """End the broker by SIGKILL, as a crash would."""
        await self._end(signal.SIGKILL)

    async def stop(self) -> int:
        """End the broker by SIGTERM; returns its exit status."""
        return await self._end(signal.SIGTERM)

    async def _end(self, how: signal.Signals) -> int:
        assert self._process is not None
        if self._process.returncode is None:
            self._process.send_signal(how)
        await self.client.close()
        return await self._process.wait()

    async def close(self) -> None:
        """End the broker and every stand-in."""
        for process in self._processes:
            await process.kill()
        if self._process is not None:
            await self.kill()

    def log(self, event: str) -> list[dict[str, Any]]:
        """The whole log lines with this event, from all of the broker's processes."""
        *whole, _ = self.log_path.read_text().split("\n")
        return [line for line in map(json.loads, whole) if line["event"] == event]

    def journaled(self) -> list[Announcement]:
        """Every announcement in the journal file past the last acknowledged one."""
        *whole, _ = (self.root / "journal").read_bytes().split(b"\n")
        lines = [decode_line(line) for line in whole]
        done = max(line.acknowledged for line in lines if isinstance(line, Snapshot))
        done = max([done, *(line.seq for line in lines if isinstance(line, Acknowledge))])
        return [line for line in lines if isinstance(line, Announcement) and line.seq > done]

    def limits_dir(self, pod: PodUid = POD) -> Path:
        """The limits directory of the pod's only container."""
        return self.root / "limits" / pod / MAIN

    def counts_dir(self, pod: PodUid = POD) -> Path:
        """The counts directory of the pod's only container."""
        return self.root / "counts" / pod / MAIN

    def limits(self, pod: PodUid = POD) -> Limits:
        """The limits page on disk."""
        return Limits.from_buffer_copy((self.limits_dir(pod) / "limits").read_bytes())

    def counts(self, pod: PodUid = POD) -> Counts:
        """The counts page on disk."""
        return Counts.from_buffer_copy((self.counts_dir(pod) / "counts").read_bytes())

    def owners(self, pod: PodUid = POD) -> list[int]:
        """The owner words of the claimed slots."""
        return [slot.owner for slot in self.counts(pod).slots if slot.owner]

    async def spawn(
        self,
        *wrapper: str,
        pod: PodUid = POD,
        module: str = "tests.hook.broker.standin",
        place: tuple[str, str] | None = None,
    ) -> Process:
        """Start a stand-in, or another program that obeys commands on its input, in the pod's container.

        Args:
            wrapper: a command that becomes the program.
            pod: the pod.
            module: the program.
            place: the directories of `limits` and `counts`; None for those below the broker's root.
        """
        place = place or (str(self.limits_dir(pod)), str(self.counts_dir(pod)))
        process = Process(
            await asyncio.create_subprocess_exec(
                *wrapper, sys.executable, "-m", module, *place,
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            )
        )  # fmt: skip
        self._processes.append(process)
        return process

    async def announced(self, count: int, *, contexts: bool = True) -> list[Announcement]:
        """Wait for this many announcements of a new subscription, and return them.

        A subscription that the broker ends, because its reader is slow, begins anew and has them once more.
        `share_unenforced` is left out, because a busy machine decides how soon the broker gets a process's message.

        Args:
            count: so many.
            contexts: whether those are among them. Of a process that tells of none, the broker announces one as soon
                as it happens to see memory.
        """
        entries: list[Announcement] = []
        try:
            async with (
                asyncio.timeout(PATIENCE_S),
                contextlib.aclosing(subscribed(self.root, Subscribe())) as stream,
            ):
                async for entry in stream:
                    assert isinstance(entry, Announcement)
                    left_out = ShareUnenforced if contexts else (ShareUnenforced, Context)
                    if entry not in entries and not isinstance(entry, left_out):
                        entries.append(entry)
                    if len(entries) == count:
                        break
        except TimeoutError:
            pytest.fail(f"only {entries} of {count} announcements came")
        return entries

    async def process_count(self) -> int:
        """The number of processes that the broker describes."""
        description = await self.client.describe()
        return sum(len(container.processes) for container in description.containers)

    async def until_vacant(self, pod: PodUid = POD) -> None:
        """Wait until no slot is claimed any more."""

        async def is_vacant() -> bool:
            return not self.owners(pod)

        await until(is_vacant, "all slots cleared")


@pytest.fixture(name="broker")
async def _broker(tmp_path: Path) -> AsyncIterator[Broker]:
    """A running broker. Its audit is so slow that every change comes from an event."""
    broker = Broker(tmp_path / "root", {"audit_s": "3600"})
    try:
        await broker.start()
        yield broker
    finally:
        await broker.close()
