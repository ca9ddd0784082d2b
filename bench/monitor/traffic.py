"""Messages and bytes of a node's events over ten minutes of a realistic mix, beside polling every 1, 5 and 30 s.

The mix: services that hold their memory all the time and answer now and then, trainings that load in steps and load
again, and short jobs. A poll carries the node's whole state, as an event does, so its size is that of the newest
event. The other costs of a poll (a reading of NVML, a request) are left out, in favour of polling.
"""

import asyncio
import contextlib
import math
import random
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Final

from bench.monitor.monitored_node import GPUS, Json, MonitoredNode, Program
from bench.monitor.subscriber import Arrival
from plimsoll.quantity import GIB
from simulator.charts import ChartLine, line_chart

POLLS_S: Final = (1.0, 5.0, 30.0)
WINDOW_S: Final = 600.0
"""The figures are for ten minutes."""

DAY_S: Final = 86_400.0
FLEET: Final = 1000
"""The nodes of the cluster for which the stream's growth is computed, if each sends as much as this one."""

SERVICES: Final = 16
TRAINING_EVERY_S: Final = 15.0
SHORT_EVERY_S: Final = 10.0
"""Means of the pauses between two arrivals, which are exponential. Some eight trainings live at a time."""

WORK_EVERY_S: Final = 10.0
"""A service works for half a second in this time."""

HOOKED_RATIO: Final = 0.75
RELOAD_RATIO: Final = 0.25
SEED: Final = 2024
COLOURS: Final = {1.0: "#c0392b", 5.0: "#e08e0b", 30.0: "#2e8b57"}


@dataclass(frozen=True, slots=True)
class Lived:
    """A task of the mix: when it came and went, in seconds since the scene's beginning, and its pid."""

    pid: int
    began_s: float
    ended_s: float


@dataclass(frozen=True, slots=True)
class Sent:
    """A message: when it came, in seconds since the scene's beginning, and its size."""

    at_s: float
    size_bytes: int


async def measure(here: MonitoredNode, seconds: float) -> tuple[Json, str]:
    """Run the mix; returns the figures and the picture."""
    here.subscriber.forget()
    scene = _Scene(here)
    async with asyncio.TaskGroup() as group:
        for number in range(SERVICES):
            group.create_task(scene.service(number % GPUS))
        assert await here.until(scene.services_loaded), "the services did not load"
        here.subscriber.forget()
        scene.begin(seconds)
        group.create_task(scene.arrivals(group, TRAINING_EVERY_S, seconds, scene.training))
        group.create_task(scene.arrivals(group, SHORT_EVERY_S, seconds, scene.short))
    arrivals = [each for each in here.subscriber.arrivals if each.at_ns <= scene.began_ns + seconds * 1e9]
    found = compared(arrivals, scene.lives, scene.began_ns, seconds)
    return found, chart(_sent(arrivals, scene.began_ns), seconds)


Life = Callable[[int, float], Coroutine[None, None, None]]
"""A task's life on a GPU, in at most this many seconds."""


class _Scene:
    def __init__(self, here: MonitoredNode) -> None:
        self.began_ns = 0
        self.lives: list[Lived] = []
        self._here = here
        self._chance = random.Random(SEED)
        self._is_over = asyncio.Event()

    def services_loaded(self) -> bool:
        """Whether all services hold their memory."""
        return sum(what == "loaded" for _, what in self._here.subscriber.moments) >= SERVICES

    def begin(self, seconds: float) -> None:
        """Begin to measure; the services end after this many seconds."""
        self.began_ns = time.monotonic_ns()
        asyncio.get_running_loop().call_later(seconds, self._is_over.set)

    async def arrivals(self, group: asyncio.TaskGroup, every_s: float, seconds: float, life: Life) -> None:
        """Start lives at random until the scene ends."""
        end_s = time.monotonic() + seconds
        while (pause_s := self._chance.expovariate(1 / every_s)) + time.monotonic() < end_s:
            await asyncio.sleep(pause_s)
            group.create_task(life(self._chance.randrange(GPUS), end_s - time.monotonic()))

    async def service(self, gpu: int) -> None:
        """Hold memory, and work for a twentieth of the time, until the scene is over."""
        async with self._alive(gpu, is_hooked=True) as program:
            program.send(f"context {gpu}", "alloc 4096")
            while not self._is_over.is_set():
                program.send("work 0.5")
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._is_over.wait(), WORK_EVERY_S)

    async def training(self, gpu: int, left_s: float) -> None:
        """Load in four steps, work all the time, and maybe load again."""
        length_s = min(self._chance.uniform(60.0, 180.0), left_s)
        async with self._alive(gpu, is_hooked=self._chance.random() < HOOKED_RATIO) as program:
            program.send(f"context {gpu}", *("alloc 1024", "sleep 0.5") * 4, f"work {length_s:.0f}")
            await asyncio.sleep(length_s / 2)
            if self._chance.random() < RELOAD_RATIO:
                program.send("free", "alloc 1536")
            await asyncio.sleep(length_s / 2)

    async def short(self, gpu: int, left_s: float) -> None:
        """Load once, and end after some seconds."""
        async with self._alive(gpu, is_hooked=self._chance.random() < HOOKED_RATIO) as program:
            program.send(f"context {gpu}", "alloc 512")
            await asyncio.sleep(min(self._chance.uniform(0.5, 8.0), left_s))

    @contextlib.asynccontextmanager
    async def _alive(self, gpu: int, *, is_hooked: bool) -> AsyncIterator[Program]:
        program = await self._here.start(gpu, is_hooked=is_hooked)
        try:
            yield program
        finally:
            ended_ns = time.monotonic_ns()
            program.kill()
            await program.ended()
            if program.reports and program.reports[0]["at_ns"] >= self.began_ns > 0:
                began_s = (program.reports[0]["at_ns"] - self.began_ns) / 1e9
                self.lives.append(Lived(program.pid, began_s, (ended_ns - self.began_ns) / 1e9))


def compared(arrivals: Sequence[Arrival], lives: Sequence[Lived], began_ns: int, seconds: float) -> Json:
    """The table: events, and polling at each pace.

    Args:
        arrivals: the events of the scene.
        lives: its tasks.
        began_ns: when it began, on the clock of the arrivals.
        seconds: its length; messages and bytes are scaled to ten minutes.
    """
    sent = _sent(arrivals, began_ns)
    rows = {"events": _row(sent, seconds, _event_delays_s(arrivals, lives, began_ns), len(lives))}
    for every_s in POLLS_S:
        polls = _polls(sent, seconds, every_s)
        rows[f"poll_{every_s:g}s"] = _row(polls, seconds, _poll_delays_s(lives, every_s), len(lives))
    events = rows["events"]
    saved = {
        f"bytes_saved_pct_{every_s:g}s": round(100 * (1 - events["bytes"] / polled_bytes), 1)
        for every_s in POLLS_S
        if (polled_bytes := rows[f"poll_{every_s:g}s"]["bytes"])
    }
    growth_bytes = events["bytes"] * DAY_S / WINDOW_S * FLEET
    return {
        "traffic": rows,
        **saved,
        f"stream_gib_per_day_{FLEET}_nodes": round(growth_bytes / GIB, 1),
        "traffic_s": seconds,
        "traffic_tasks": len(lives),
    }


def _row(sent: Sequence[Sent], seconds: float, delays_s: Sequence[float], tasks: int) -> Json:
    scale = WINDOW_S / seconds
    return {
        "messages": round(len(sent) * scale),
        "bytes": round(sum(each.size_bytes for each in sent) * scale),
        "start_delay_s_mean": round(fmean(delays_s), 3) if delays_s else None,
        "tasks_unseen": tasks - len(delays_s),
    }


def _sent(arrivals: Sequence[Arrival], began_ns: int) -> list[Sent]:
    return [Sent((each.at_ns - began_ns) / 1e9, each.size_bytes) for each in arrivals]


def _polls(sent: Sequence[Sent], seconds: float, every_s: float) -> list[Sent]:
    """A poll has the size of the newest event so far, and of the first event before that."""
    polls, size_bytes, later = [], sent[0].size_bytes if sent else 0, list(sent)
    for number in range(1, math.floor(seconds / every_s) + 1):
        while later and later[0].at_s <= number * every_s:
            size_bytes = later.pop(0).size_bytes
        polls.append(Sent(number * every_s, size_bytes))
    return polls


def _event_delays_s(arrivals: Sequence[Arrival], lives: Sequence[Lived], began_ns: int) -> list[float]:
    starts = {
        task.pid: (each.at_ns - began_ns) / 1e9
        for each in reversed(arrivals)
        if each.what == "task.started" and (task := each.task) is not None
    }
    return [starts[life.pid] - life.began_s for life in lives if life.pid in starts]


def _poll_delays_s(lives: Sequence[Lived], every_s: float) -> list[float]:
    """From a task's start to the next poll, for the tasks that live until then."""
    nexts = [(life, math.ceil(life.began_s / every_s) * every_s) for life in lives]
    return [next_s - life.began_s for life, next_s in nexts if next_s <= life.ended_s]


def chart(sent: Sequence[Sent], seconds: float) -> str:
    """The bytes sent so far, over time."""
    lines = [ChartLine("events", "#1b6ca8", _summed(sent, seconds))]
    lines += [
        ChartLine(
            f"a poll every {every_s:g} s",
            COLOURS[every_s],
            _summed(_polls(sent, seconds, every_s), seconds),
            dashed=True,
        )
        for every_s in POLLS_S
    ]
    ticks = tuple(seconds / 60 * part / 5 for part in range(6))
    title = "What one node with eight GPUs sends: events, and polling"
    return line_chart(title, "minutes", "MB", lines, x_ticks=ticks)


def _summed(sent: Sequence[Sent], seconds: float) -> tuple[tuple[float, float], ...]:
    points, total_bytes, later = [(0.0, 0.0)], 0, list(sent)
    for step in range(1, 101):
        while later and later[0].at_s <= seconds * step / 100:
            total_bytes += later.pop(0).size_bytes
        points.append((seconds * step / 6000, total_bytes / 1e6))
    return tuple(points)


def table(found: Json) -> str:
    """The rows as text, in columns."""
    head = f"{'':>10} {'messages':>9} {'MB':>8} {'mean delay of a start, s':>25} {'tasks never seen':>17}"
    rows = [
        f"{name:>10} {row['messages']:>9} {row['bytes'] / 1e6:>8.2f} {row['start_delay_s_mean'] or 0:>25.3f} "
        f"{row['tasks_unseen']:>17}"
        for name, row in found["traffic"].items()
    ]
    return "\n".join(
        [
            f"ten minutes of one node, {found['traffic_tasks']} tasks seen in {found['traffic_s']:g} s:",
            head,
            *rows,
        ]
    )
