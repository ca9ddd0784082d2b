"""A container under a real broker and a real monitor, with its programs and NVML's figure of them.

It works on a GPU (`make gpu`) and over the emulator. A process that is not under Plimsoll reads NVML. Programs
wait between their phases: the monitor must measure a context and its modules before the program fills its line,
as with long-running programs.
"""

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from nats.js import JetStreamContext

from plimsoll.broker.pages import COUNTS_DIR_VARIABLE, LIMITS_DIR_VARIABLE, Counts, GpuLimit, Limits
from plimsoll.broker.wire import ContainerLines, Line, Register
from plimsoll.ids import ContainerName, GpuUuid, PodUid
from plimsoll.native import HOOK_LIBRARY
from plimsoll.quantity import MIB
from tests.monitor.harness import ROOT, MonitorProcess, jetstream, stored
from tests.monitor.test_hooked import BrokerProcess, brokering

POD, MAIN = PodUid("5d0f0c2b-7f9e-4c55-8f9e-3c1a4f1f2a10"), ContainerName("main")
LOOK: Final = Path(__file__).parent / "programs" / "nvml_look.py"
BLOCK_BYTES: Final = 2 * MIB
"""Per process. The driver gives memory out in such blocks, and the rest of the last block may exceed the line.

The broker ignores smaller differences.
"""
PATIENCE_S: Final = 150.0
"""For one phase, as torch.compile takes long."""


class Task:
    """A program of the container, in a session of its own."""

    def __init__(self, child: asyncio.subprocess.Process, errors: Path) -> None:
        self._child = child
        self._errors = errors

    @property
    def session(self) -> int:
        """The session of the program and its children."""
        return self._child.pid

    async def phase(self, name: str) -> dict[str, Any]:
        """Wait for a phase; returns the values that the program reports."""
        assert self._child.stdout is not None
        async with asyncio.timeout(PATIENCE_S):
            async for line in self._child.stdout:
                if line.startswith(b'{"phase"'):
                    told: dict[str, Any] = json.loads(line)
                    assert told.pop("phase") == name
                    return told
        message = f"the program ended before it was {name}: {self.errors}"
        raise AssertionError(message)

    async def go_on(self, name: str) -> dict[str, Any]:
        """Let the program go on to its next phase."""
        assert self._child.stdin is not None
        self._child.stdin.write(b"go\n")
        return await self.phase(name)

    @property
    def errors(self) -> str:
        """The end of the program's standard error."""
        return self._errors.read_text()[-4000:]

    async def end(self) -> None:
        """End the program if it still runs."""
        with contextlib.suppress(ProcessLookupError):
            self._child.kill()
        await self._child.wait()


class Watched:
    """One container with one GPU, and NVML's figures of it."""

    def __init__(self, folder: Path, environment: Mapping[str, str], stream: JetStreamContext) -> None:
        """See `watched`."""
        self._folder, self._environment, self._stream = folder, dict(environment), stream
        self._tasks: list[Task] = []
        self._used: dict[int, int] = {}
        self._looks = 0
        self.peak_bytes = 0
        """The most bytes that NVML showed for all programs together."""

    @property
    def used_bytes(self) -> int:
        """NVML's current figure for all programs together."""
        return sum(self._used.get(task.session, 0) for task in self._tasks)

    def see(self, used: Mapping[str, int]) -> None:
        """Take in one NVML reading: bytes by session."""
        self._used = {int(session): held for session, held in used.items()}
        self._looks += 1
        self.peak_bytes = max(self.peak_bytes, self.used_bytes)

    @property
    def page(self) -> GpuLimit:
        """The limits page that the container's processes read for their GPU."""
        path = Path(self._environment[LIMITS_DIR_VARIABLE]) / "limits"
        page: GpuLimit = Limits.from_buffer_copy(path.read_bytes()).gpus[0]
        return page

    @property
    def words_bytes(self) -> int:
        """The bytes that the processes count themselves."""
        path = Path(self._environment[COUNTS_DIR_VARIABLE]) / "counts"
        return sum(int(slot.used_bytes[0]) for slot in Counts.from_buffer_copy(path.read_bytes()).slots)

    @contextlib.asynccontextmanager
    async def running(self, command: Sequence[str], **environment: str) -> AsyncIterator[Task]:
        """A program that runs under the library and ends with the context at the latest."""
        errors = self._folder / f"errors-{len(self._tasks)}"
        with errors.open("wb") as error_file:
            child = await asyncio.create_subprocess_exec(
                *command,
                cwd=ROOT,
                env=self._environment | environment,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=error_file,
                start_new_session=True,
            )
        task = Task(child, errors)
        self._tasks.append(task)
        try:
            yield task
        finally:
            await task.end()

    async def seen(self) -> int:
        """NVML's figure for all programs together in a reading that begins after this call."""
        enough = self._looks + 2
        await self._until(lambda: self._looks >= enough, "nobody looks at NVML:")
        return self.used_bytes

    async def settled(self) -> None:
        """Wait until words and excess together equal NVML's figure, to a block per program."""
        await self.seen()
        await self._until(
            lambda: self.used_bytes > 0, "NVML shows none of the programs: run this on the host,"
        )
        slack = BLOCK_BYTES * len(self._tasks)
        await self._until(
            lambda: self.used_bytes <= self.words_bytes + int(self.page.excess_bytes) + slack,
            "what NVML shows past the words was not charged:",
        )

    async def learned(self) -> None:
        """Wait until the broker has measured what a context costs."""
        await self._until(lambda: int(self.page.context_bytes) > 0, "no context's cost was learned:")

    async def violations(self) -> int:
        """The number of events in which NVML's figure exceeds the line."""
        return sum(message.what == "limit.violated" for message in await stored(self._stream))

    async def _until(self, condition: Callable[[], bool], failure: str) -> None:
        try:
            async with asyncio.timeout(60):
                while not condition():  # noqa: ASYNC110 - other processes change it
                    await asyncio.sleep(0.02)
        except TimeoutError:
            excess = int(self.page.excess_bytes)
            message = f"{failure} NVML {self._used}, words {self.words_bytes}, excess {excess}"
            raise AssertionError(message) from None


@contextlib.asynccontextmanager
async def watched(
    folder: Path, nats_url: str, line_bytes: int, surroundings: Mapping[str, str]
) -> AsyncIterator[Watched]:
    """A container on the node's first GPU, or on the one that `PLIMSOLL_TEST_GPU` names.

    Args:
        folder: empty, for all files.
        nats_url: the server to which the monitor publishes.
        line_bytes: the container's line.
        surroundings: the environment of the programs; the monitor uses its variables of the driver too.
    """
    driver = {
        key: surroundings[key] for key in ("PLIMSOLL_EMULATOR", "LD_LIBRARY_PATH") if key in surroundings
    }
    monitor = MonitorProcess(folder, nats_url)
    monitor.environment |= driver
    async with brokering(folder / "broker") as broker, jetstream(nats_url) as stream:
        await monitor.start()
        try:
            async with _looking(driver, surroundings.get("PLIMSOLL_TEST_GPU")) as look:
                uuid = GpuUuid((await _look(look))["uuid"])
                hooked = await _registered(broker, uuid, line_bytes)
                seen = Watched(folder, {**surroundings, **hooked, "CUDA_VISIBLE_DEVICES": uuid}, stream)
                following = asyncio.create_task(_follow(look, seen))
                try:
                    yield seen
                finally:
                    following.cancel()
        except BaseException:
            sys.stderr.write(monitor.log_path.read_text()[-4000:])
            raise
        finally:
            await monitor.kill()


async def _registered(broker: BrokerProcess, uuid: GpuUuid, line_bytes: int) -> dict[str, str]:
    lines = ContainerLines(name=MAIN, lines=(Line(gpu=uuid, line_bytes=line_bytes),))
    request = Register(pod=POD, namespace="default", name="watched", containers=(lines,))
    (directories,) = (await broker.client.register(request)).containers
    return {
        "LD_PRELOAD": str(HOOK_LIBRARY),
        LIMITS_DIR_VARIABLE: directories.limits_dir,
        COUNTS_DIR_VARIABLE: directories.counts_dir,
    }


@contextlib.asynccontextmanager
async def _looking(driver: Mapping[str, str], gpu: str | None) -> AsyncIterator[asyncio.StreamReader]:
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, str(LOOK), *([gpu] if gpu else [])),
        env={"PATH": os.environ["PATH"], **driver},
        stdout=asyncio.subprocess.PIPE,
    )
    assert child.stdout is not None
    try:
        yield child.stdout
    finally:
        child.kill()
        await child.wait()


async def _look(looks: asyncio.StreamReader) -> dict[str, Any]:
    async with asyncio.timeout(PATIENCE_S):
        line = await looks.readline()
    assert line, "NVML cannot be read: is there a GPU, and NVIDIA's driver?"
    told: dict[str, Any] = json.loads(line)
    return told


async def _follow(looks: asyncio.StreamReader, seen: Watched) -> None:
    async for line in looks:
        seen.see(json.loads(line)["used"])
