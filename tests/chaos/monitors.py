"""Speaks for the monitors of all nodes: one report for each node every other second, on the real NATS.

What always holds: as with real monitors, (`epoch`, `seq`) of a node only grows, and each fact has an id of its own.
"""

import asyncio
import hashlib
import random
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

import nats
import nats.errors
from nats.aio.client import Client

from plimsoll.bus.subjects import state_subject, task_subject
from plimsoll.envelope import encode, fact_id
from plimsoll.events import Gpu, NodeState, Phase, Report, Task
from plimsoll.ids import ContainerName, GpuUuid, NodeName, PodUid
from plimsoll.part.ending import heed_cancellation
from tests.chaos.fleet import FLEET, MIB, Card, Machine
from tests.chaos.promises import Promise, Sums
from tests.servers.stores import ignore

BEAT_S: Final = 2.0
"""The longest pause between two reports of a node."""
PUBLISH_S: Final = 3.0
"""The longest wait for an acknowledgement: NATS may be stopped."""
BEST_EFFORT_BYTES: Final = 512 * MIB
"""The most memory that the task of a best-effort container uses here."""


@dataclass(slots=True)
class Voice:
    """The monitor of one node.

    Attributes:
        silent: the monitor is dead.
        last: its last report, as published; None before the first.
    """

    machine: Machine
    epoch: int = 1
    seq: int = 0
    silent: bool = False
    last: NodeState | None = None


@dataclass(slots=True)
class Monitors:
    """All monitors.

    Attributes:
        sums: the promises, of which the tasks use a part.
        quiet: no task runs any more, and every GPU is idle.
        published: the newest report of each node that NATS acknowledged.
    """

    sums: Sums
    rng: random.Random
    quiet: bool = False
    voices: dict[str, Voice] = field(default_factory=lambda: {one.name: Voice(one) for one in FLEET})
    published: dict[str, NodeState] = field(default_factory=dict)
    _client: Client = field(default_factory=Client)

    async def run(self, url: str) -> None:
        """Connect, then report until cancelled."""
        await self._client.connect(url, max_reconnect_attempts=-1, reconnect_time_wait=1, error_cb=ignore)
        try:
            async with asyncio.TaskGroup() as group:
                for voice in self.voices.values():
                    group.create_task(self._beat(voice), name=f"monitor of {voice.machine.name}")
        finally:
            await self._client.close()

    async def _beat(self, voice: Voice) -> None:
        while True:
            heed_cancellation()  # nats-py may swallow one
            if not voice.silent:
                await self.report(voice)
            await asyncio.sleep(BEAT_S * self.rng.uniform(0.5, 1.0))  # random, so that nodes report apart

    async def report(self, voice: Voice) -> bool:
        """Publish a node's next report; whether NATS acknowledged it."""
        voice.seq += 1
        state = self._state(voice)
        as_task = self.rng.random() < 0.2 and not self.quiet
        name = NodeName(voice.machine.name)
        subject = task_subject("loaded", name) if as_task else state_subject(name)
        if not await self._publish(subject, "task.loaded" if as_task else "node.state", state):
            return False
        voice.last = state
        self.published[voice.machine.name] = state
        return True

    async def repeat_late(self, voice: Voice) -> None:
        """Publish a report with the number before the last one, as a network that reorders messages would."""
        if voice.last is None or voice.last.seq < 2:
            return
        state = NodeState(
            node=voice.last.node,
            epoch=voice.last.epoch,
            seq=voice.last.seq - 1,
            time=voice.last.time,
            gpus=(),
        )
        await self._publish(task_subject("exited", state.node), "task.exited", state)

    async def _publish(self, subject: str, what: str, state: NodeState) -> bool:
        event_id = fact_id("chaos", state.node, state.epoch, state.seq, what, len(state.gpus))
        message = encode(what, event_id, f"/nodes/{state.node}", state.time, Report(state=state))
        try:
            await self._client.jetstream().publish(
                subject, message, timeout=PUBLISH_S, headers={"Nats-Msg-Id": event_id}
            )
        except (nats.errors.Error, TimeoutError, OSError):
            return False
        return True

    def _state(self, voice: Voice) -> NodeState:
        gpus = tuple(self._gpu(card) for card in voice.machine.cards)
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        return NodeState(
            node=NodeName(voice.machine.name), epoch=voice.epoch, seq=voice.seq, time=now, gpus=gpus
        )

    def _gpu(self, card: Card) -> Gpu:
        tasks = () if self.quiet else tuple(_tasks(self.sums.on(card.uuid), card))
        strangers = 0 if self.quiet else self.rng.choice((0, 0, 0, 100 * MIB))
        used = min(sum(task.used_bytes for task in tasks) + strangers, card.usable_bytes)
        return Gpu(
            uuid=GpuUuid(card.uuid),
            index=card.index,
            model=card.model,
            usable_bytes=card.usable_bytes,
            used_bytes=used,
            idle_pct=100.0 if self.quiet else self.rng.uniform(0, 100),
            overcommit_ratio=card.ratio,
            tasks=tasks,
        )


def _tasks(promises: tuple[Promise, ...], card: Card) -> list[Task]:
    """The running tasks of a GPU: most containers have one, which uses a part of its line."""
    tasks = []
    for promise in promises:
        if promise.place is not None and not promise.stays:
            continue  # the init container has ended
        number = int(hashlib.sha256(f"{promise.pod}/{promise.container}".encode()).hexdigest()[:6], 16)
        line = card.usable_bytes // 2 if promise.whole else promise.memory_bytes or BEST_EFFORT_BYTES
        used = line * (number % 5) // 5
        if used:
            tasks.append(
                Task(
                    pid=number,
                    start_ticks=1,
                    gpu=GpuUuid(card.uuid),
                    phase=Phase.LOADED,
                    used_bytes=used,
                    peak_bytes=used,
                    pod=PodUid(promise.pod),
                    container=ContainerName(promise.container),
                )
            )
    return tasks
