"""The tenants, and the kubelets that end their pods: creations, endings, deletions, resizes, edits of annotations."""

import asyncio
import contextlib
import random
from dataclasses import dataclass, field
from typing import Final

from tests.chaos.answers import DECISION, ENDED
from tests.chaos.asks import BEST_EFFORT, annotations_of
from tests.chaos.fleet import GIB
from tests.chaos.pods import Object, draw_pod
from tests.chaos.witness import Witness
from tests.chaos.world import PODS, World
from tests.servers.tickets import answer_in, ticket, ticketing

TICK_S: Final = 0.25
"""The pause between two rounds that end pods."""
ANSWER_S: Final = 5.0
"""The time that a ticket for a resize may take to be answered before the next one."""
MOST_WAITING: Final = 80
MOST_PODS: Final = 260
SWEPT_AFTER_S: Final = 8.0
"""The longest time for which an ended pod stays on the API server."""


@dataclass(slots=True)
class Tenants:
    """All tenants of a run.

    Attributes:
        pods_per_s: pods created in a second; they come in bursts.
        edits: whether tenants edit the annotations of pods.
        labels: whether pods have locality labels and policies.
        counts: how often each thing was done.
    """

    world: World
    rng: random.Random
    pods_per_s: float = 8.0
    edits: bool = True
    labels: bool = False
    counts: dict[str, int] = field(default_factory=dict)
    _number: int = 0
    _doomed_s: dict[str, float] = field(default_factory=dict)

    async def run(self) -> None:
        """Keep the cluster busy until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._create(), name="tenants: create")
            group.create_task(self._end(), name="tenants: end")
            group.create_task(self._resize(), name="tenants: resize")
            if self.edits:
                group.create_task(self._edit(), name="tenants: edit")

    @property
    def _witness(self) -> Witness:
        return self.world.witness

    def _count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    def _pods(self, *, bound: bool) -> list[Object]:
        """The pods that have not ended, in the order of their creation."""
        return [
            pod
            for pod in self._witness.pods.values()
            if bool(pod["spec"].get("nodeName")) == bound and pod["status"].get("phase") not in ENDED
        ]

    async def _create(self) -> None:
        while True:
            burst = self.rng.choice((1, 2, 4, 12, 30))
            for _ in range(burst):
                if len(self._pods(bound=False)) < MOST_WAITING and len(self._witness.pods) < MOST_PODS:
                    await self.create_one()
            await asyncio.sleep(burst / self.pods_per_s)  # keeps the mean rate

    async def create_one(self) -> str | None:
        """Create the next pod. Returns its name, or None if the API server did not take it."""
        pod = draw_pod(self._number, self.rng, labels=self.labels)
        self._number += 1
        answer = await self.world.ask("POST", PODS, pod, tenant=True)
        self._count("created" if answer is not None and answer.status == 201 else "not created")
        return str(pod["metadata"]["name"]) if answer is not None and answer.status == 201 else None

    async def _end(self) -> None:
        """End pods some time after they were bound, delete some that wait, and sweep those that ended."""
        while True:
            now_s = self.world.journal.elapsed_s
            for uid, pod in list(self._witness.pods.items()):
                if uid not in self._doomed_s:
                    self._doomed_s[uid] = now_s + self._life_s(pod)
                elif now_s >= self._doomed_s[uid]:
                    await self._end_one(uid, pod)
            await asyncio.sleep(TICK_S)

    def _life_s(self, pod: Object) -> float:
        return self.rng.uniform(6, 40) if pod["spec"].get("nodeName") else self.rng.uniform(15, 60)

    async def _end_one(self, uid: str, pod: Object) -> None:
        name, phase = pod["metadata"]["name"], pod["status"].get("phase")
        self._doomed_s[uid] = self.world.journal.elapsed_s + self.rng.uniform(1, SWEPT_AFTER_S)
        how = self.rng.random()
        if phase in ENDED or pod["metadata"].get("deletionTimestamp") or how < 0.3:
            await self.world.ask("DELETE", f"{PODS}/{name}?gracePeriodSeconds=0")
            self._count("deleted")
        elif how < 0.45:
            await self.world.ask("DELETE", f"{PODS}/{name}")  # A kubelet takes a while to end it.
            self._count("terminated")
        elif pod["spec"].get("nodeName") or how < 0.5:
            phase = "Succeeded" if how < 0.8 else "Failed"
            await self.world.ask("PATCH", f"{PODS}/{name}/status", {"status": {"phase": phase}})
            self._count(phase.lower())

    async def _resize(self) -> None:
        """Ask for other lines and shares of running pods."""
        while True:
            await asyncio.sleep(self.rng.uniform(0.3, 1.5))  # the rate of resizes
            if bound := self._pods(bound=True):
                await self._resize_one(self.rng.choice(bound))

    async def _resize_one(self, pod: Object) -> None:
        change = {"container": "main"}
        if self.rng.random() < 0.6:
            change["gpu_memory"] = str(self.rng.randint(1, 48) * GIB // 2)
        else:
            change["gpu_share"] = str(self.rng.choice((0, 10, 20, 40, 60, 80)))
        text, path = ticket(**change), f"{PODS}/{pod['metadata']['name']}"
        await self.world.ask("PATCH", path, ticketing(text))
        said: Object = {}
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ANSWER_S):
                while not said:
                    await asyncio.sleep(TICK_S)
                    found = await self.world.ask("GET", path)
                    if found is not None and found.status == 404:
                        break
                    if found is not None and found.status < 400:
                        said = answer_in(found.body, text)
        self._count(f"resize {said.get('type', 'unanswered')}")
        self.world.journal.note("resize", request=change, answer=said)

    async def _edit(self) -> None:
        while True:
            await asyncio.sleep(self.rng.uniform(0.1, 0.8))  # the rate of edits
            pods = self._pods(bound=self.rng.random() < 0.7)
            if pods:
                await self._edit_one(self.rng.choice(pods))

    async def _edit_one(self, pod: Object) -> None:
        name = pod["metadata"]["name"]
        annotations = self._wish(pod)
        answer = await self.world.ask(
            "PATCH", f"{PODS}/{name}", {"metadata": {"annotations": annotations}}, tenant=True
        )
        status = answer.status if answer is not None else None
        self._count("edited" if status == 200 else "edit refused")
        bound = bool(pod["spec"].get("nodeName"))
        self.world.journal.note("edit", pod=name, bound=bound, annotations=annotations, status=status)

    def _wish(self, pod: Object) -> dict[str, str | None]:
        """A change that a tenant may wish for: to be counted for less, to have more, or to be somewhere else."""
        mine = annotations_of(pod)
        if self.rng.random() < 0.4:
            return {BEST_EFFORT: None if mine.get(BEST_EFFORT) == "true" else "true"}
        wishes: list[dict[str, str | None]] = [
            {"plimsoll.dev/gpu-share-limit": self.rng.choice(("1", "50", "100", "none", None))},
            {"plimsoll.dev/nonsense": "1"},
            {"plimsoll.dev/gpu-model": "NVIDIA H100"},
            {DECISION: None},
            {DECISION: "{}"},
            {DECISION: mine.get(DECISION, "{").replace("0", "")},
            {"gpus.plimsoll.dev/main": None},
            {"gpus.plimsoll.dev/main": "GPU-05-3"},
            {"gpus.plimsoll.dev/side": "GPU-00-0"},
        ]
        return self.rng.choice(wishes)
