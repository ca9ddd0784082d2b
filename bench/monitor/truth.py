"""The truth run: random tasks while every part is killed and started again, judged by the emulator's own book.

Tasks grow, shrink, load again, fork, crash, end, and are killed, with the hook and without. Meanwhile monitor,
broker, NATS and placer are killed by SIGKILL, twice each. A task without the hook lives for several samples at
least, because samples can miss a shorter task.
"""

import asyncio
import contextlib
import random
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

import nats.errors
import redis.asyncio as redis
from nats.aio.client import Client

from bench.monitor.book import BookReadings, watching
from bench.monitor.monitored_node import (
    NODE,
    PATIENCE_S,
    Json,
    MonitoredNode,
    Program,
    monitored_node,
    start_placer,
)
from bench.monitor.subscriber import Arrival, connected, read_stream
from bench.monitor.verdict import StreamedEvent, Truth, Violations, judge, plateaus, two_contents
from plimsoll.ids import ProcessKey
from plimsoll.part.processes import read_stat
from plimsoll.placer_api import redis_keys as keys
from plimsoll_cli.demo.servers import EmbeddedServer

GPUS: Final = 4
SETTLE_NS: Final = 1_000_000_000
WINDOW_NS: Final = 2 * SETTLE_NS
"""The monitor's settle time, and as much again: on a busy machine a round ends late."""

RELOAD_BYTES: Final = 64 << 20
HOOKED_RATIO: Final = 0.7
PAUSE_S: Final = 0.5
FAILED: Final = 1
"""The exit status of a program to which the driver returned an error."""

BEFORE_NS: Final = 500_000_000
"""An announcement may wait in the socket of a broker that is killed."""

AFTER_NS: Final = 2_000_000_000
"""A broker that has just started looks for the processes that began while none was there."""

SHOWN: Final = 20
"""This many findings are shown in words; the rest are counted."""


@dataclass(frozen=True, slots=True)
class TruthPlan:
    """A truth run.

    Attributes:
        seconds: the time in which tasks are started.
        kills: how often each part is killed.
        workers: tasks at a time.
        unhooked_s: the least life of a task without the hook; None lets every task live until the stream has its
            start, so that nothing depends on how long a busy machine takes.
        plateau_s: memory that stood still for this long must have had a `loaded`; None demands none. It covers the
            time between two samples, the settle time, and a restart of the monitor.
        holds_s: how long memory stands still, one of these.
        seed: the same tasks and kills, as far as the machine allows.
    """

    seconds: float
    kills: int
    workers: int
    unhooked_s: float | None
    plateau_s: float | None
    holds_s: tuple[float, ...] = (0.2, 2.0, 12.0)
    seed: int = 14


FULL: Final = TruthPlan(300.0, 2, 8, 10.0, 10.0)
QUICK: Final = TruthPlan(60.0, 1, 6, 10.0, 10.0)


async def measure(folder: Path, plan: TruthPlan) -> Json:
    """Run, and count what must not be."""
    found = await run(folder, plan)
    verdict = found.verdict
    for finding in verdict.all[:SHOWN]:
        print(f"truth: {finding}", file=sys.stderr)
    return {
        "lost_events": len(verdict.lost),
        "phantom_events": len(verdict.phantom),
        "truth_inaccurate": len(verdict.inaccurate),
        "truth_two_contents": len(verdict.two_contents),
        "truth_disorder": len(verdict.disorder),
        "truth_list_behind": found.is_behind,
        "truth_tasks": [found.hooked, found.unhooked],
        "truth_hidden_tasks": found.hidden,
        "truth_failed_programs": found.failed,
        "truth_kills": 4 * plan.kills,
    }


@dataclass(frozen=True, slots=True)
class TruthResult:
    """The result of a run.

    Attributes:
        verdict: what must not be.
        hooked: tasks whose events name a container.
        unhooked: the others.
        hidden: hooked tasks that lived only while the broker was away. They may have events, and need none.
        failed: programs to which the driver returned an error.
        is_behind: the list in Redis lacked the last report.
    """

    verdict: Violations
    hooked: int
    unhooked: int
    hidden: int
    failed: int
    is_behind: bool


async def run(folder: Path, plan: TruthPlan) -> TruthResult:
    """Run, and judge."""
    async with monitored_node(folder, GPUS) as here:
        cluster = here.cluster
        placer = await start_placer(cluster)
        async with (
            watching(cluster.node_environment(NODE), GPUS) as book,
            connected(cluster.nats.url) as client,
        ):
            scene = _Scene(here, client, plan)
            parts = (cluster.monitors[NODE], cluster.brokers[NODE], cluster.nats, placer)
            async with asyncio.TaskGroup() as group:
                for _ in range(plan.workers):
                    group.create_task(scene.work())
                group.create_task(scene.kill(parts))
            truth = scene.truth(book)
            events = await scene.events(lambda events: _exits(events) >= truth.tasks)
            is_behind = not await _caught_up(cluster.valkey.url, events)
        verdict = _judged(truth, events, here.subscriber.arrivals)
    tasks = {task.process: task for each in events if (task := each.task) is not None}
    hooked = sum(task.container is not None for task in tasks.values())
    return TruthResult(
        verdict, hooked, max(len(truth.tasks) - hooked, 0), scene.hidden, scene.failed, is_behind
    )


class _Scene:
    """The tasks of the run, and what they reported."""

    def __init__(self, here: MonitoredNode, client: Client, plan: TruthPlan) -> None:
        self._here = here
        self._client = client
        self._plan = plan
        self._chance = random.Random(plan.seed)
        self._end_s = time.monotonic() + plan.seconds
        self._programs: list[Program] = []
        self.failed = 0  # programs to which the driver returned an error
        self.hidden = 0  # tasks that nobody can have seen, because the broker was away
        self._away: list[tuple[int, int]] = []  # when it was, on the book's clock
        self._ended_ns: dict[int, int] = {}
        self._spawned: dict[int, ProcessKey] = {}

    async def work(self) -> None:
        """One task after another until the time is up."""
        while time.monotonic() < self._end_s:
            is_hooked = self._chance.random() < HOOKED_RATIO
            program = await self._here.start(self._chance.randrange(GPUS), is_hooked=is_hooked)
            self._programs.append(program)
            if (stat := await asyncio.to_thread(read_stat, program.pid)) is not None:
                self._spawned[program.pid] = ProcessKey(program.pid, stat.start_ticks)
            try:
                await self._live(program)
            finally:
                program.kill()
                await program.ended()
                self._ended_ns[program.pid] = time.monotonic_ns()
                self.failed += program.child.returncode == FAILED

    async def kill(self, parts: tuple[EmbeddedServer, ...]) -> None:
        """Kill each part this many times, spread over the run, in random order; each starts again after a while."""
        turns = self._chance.sample(parts * self._plan.kills, len(parts) * self._plan.kills)
        pause_s = self._plan.seconds / (len(turns) + 1)
        for part in turns:
            await asyncio.sleep(pause_s)
            killed_ns = time.monotonic_ns()
            await part.kill()
            await asyncio.sleep(self._chance.uniform(0.1, 2.0))
            await part.start()
            if part is self._here.cluster.brokers[NODE]:
                self._away.append((killed_ns - BEFORE_NS, time.monotonic_ns() + AFTER_NS))

    def truth(self, book: BookReadings) -> Truth:
        """The course of events, once all tasks have ended."""
        reports = [each for program in self._programs for each in program.reports]
        tasks = {ProcessKey(one["pid"], one["start_ticks"]) for one in reports if one["what"] == "context"}
        tasks |= {self._spawned[pid] for pid in book.readings if pid in self._spawned}
        spawned = frozenset(one["pid"] for one in reports) | self._spawned.keys()
        hidden = {pid for program in self._programs if self._is_hidden(program) for pid in _pids(program)}
        self.hidden = sum(process.pid in hidden for process in tasks)
        tasks = {process for process in tasks if process.pid not in hidden}
        least_s = self._plan.plateau_s
        expected = {
            pid: plateaus(readings, int(least_s * 1e9), RELOAD_BYTES)
            for pid, readings in book.readings.items()
            if least_s is not None
        }
        return Truth(frozenset(tasks), spawned, book.readings, expected, RELOAD_BYTES)

    async def events(self, are_enough: Callable[[list[StreamedEvent]], bool]) -> list[Arrival]:
        """The stream, once it is enough or the patience is over."""
        end_s, found = time.monotonic() + PATIENCE_S, list[Arrival]()
        while time.monotonic() < end_s:
            with contextlib.suppress(nats.errors.Error, TimeoutError, OSError):
                found = await read_stream(self._client)
                if are_enough(_task_events(found)):
                    return found
            await asyncio.sleep(PAUSE_S)
        return found

    async def _live(self, program: Program) -> None:
        """A random life; see the module."""
        gpu, chance = program.gpu, self._chance
        first, second = chance.randrange(100, 900), chance.randrange(100, 900)
        hold_s, pause_s = chance.choice(self._plan.holds_s), chance.uniform(0.0, 0.5)
        grow = [f"context {gpu}", *(f"alloc {first // 4}", f"sleep {pause_s / 4:.3f}") * 4]
        hold = f"sleep {hold_s}"
        ends, lines = "end", grow
        match chance.choice(("grow", "shrink", "reload", "peak", "fork", "crash", "kill", "short")):
            case "grow":
                lines = [*grow, hold]
            case "shrink":
                lines = [*grow, hold, "free", "free", hold]
            case "reload":
                lines = [*grow, hold, f"alloc {second}", hold]
            case "peak":
                lines = [*grow, hold, f"alloc {second}", f"sleep {pause_s:.3f}", "free", hold]
            case "fork":
                lines = [f"fork {gpu} {second} {self._least_s(program) + pause_s}", *grow, hold]
            case "crash":
                ends = "crash"
            case "kill":
                ends = "kill"
            case _:
                lines = [f"context {gpu}"]
        program.send(*lines)
        await self._seen(program, 2 if lines[0].startswith("fork") else 1)
        if ends == "kill":
            await asyncio.sleep(self._least_s(program) + chance.uniform(0.05, 1.0))
            return
        program.send(f"sleep {self._least_s(program)}", *(["crash"] if ends == "crash" else []))
        program.close()
        await program.ended()

    def _is_hidden(self, program: Program) -> bool:
        """Whether a hooked program lived only while the broker was away, so that its announcement is lost."""
        if not program.is_hooked or not program.reports:
            return False
        began_ns = min(one["at_ns"] for one in program.reports)
        ended_ns = self._ended_ns[program.pid]
        return any(from_ns <= began_ns and ended_ns <= to_ns for from_ns, to_ns in self._away)

    def _least_s(self, program: Program) -> float:
        return 0.0 if program.is_hooked or self._plan.unhooked_s is None else self._plan.unhooked_s

    async def _seen(self, program: Program, processes: int) -> None:
        """Let a task live until the stream has its start, where the plan says so."""
        if self._plan.unhooked_s is None:
            pids = await program.contexts(processes)
            await self.events(lambda events: pids <= {each.process.pid for each in events})


def _pids(program: Program) -> set[int]:
    return {program.pid} | {one["pid"] for one in program.reports}


def _judged(truth: Truth, events: list[Arrival], arrivals: list[Arrival]) -> Violations:
    reports = [report for each in events if (report := each.report) is not None]
    orders = [report.state.order for report in reports if not report.state.is_omitted]
    verdict = judge(truth, _task_events(events), orders, WINDOW_NS)
    verdict.two_contents += two_contents((each.id, each.body) for each in (*events, *arrivals))
    return verdict


def _task_events(events: list[Arrival]) -> list[StreamedEvent]:
    """The task events among the stream's, on the clock of the book."""
    offset_ns = time.time_ns() - time.monotonic_ns()
    return [
        StreamedEvent(
            process=report.task.process,
            what=each.what.removeprefix("task."),
            at_ns=round(datetime.fromisoformat(report.state.time).timestamp() * 1e9) - offset_ns,
            used_bytes=report.task.used_bytes,
        )
        for each in events
        if (report := each.report) is not None and report.task is not None
    ]


def _exits(events: list[StreamedEvent]) -> set[ProcessKey]:
    return {each.process for each in events if each.what == "exited"}


async def _caught_up(url: str, events: list[Arrival]) -> bool:
    """Whether the placer's list comes to have a report that is at least as new as the stream's last one."""
    last = max(report.state.order for each in events if (report := each.report) is not None)
    async with redis.Redis.from_url(url, protocol=2, decode_responses=True) as list_:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE_S):
                while True:
                    order = str(await list_.hget(keys.ORDER, NODE) or "0 0").split()
                    if (int(order[0]), int(order[1])) >= last:
                        return True
                    await asyncio.sleep(PAUSE_S)
    return False
