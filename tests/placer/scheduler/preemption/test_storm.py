"""Preemption under random arrivals, deletions, and changes of nodes, by seed."""

import asyncio
import random

import pytest

from placer.scheduler.preemption import victim_search
from placer.scheduler.preemption.victims import Victims
from placer.scheduler.reporting.results import Results
from plimsoll.ids import NodeName, PodUid
from plimsoll.kube.models import Pod
from plimsoll.quantity import GIB
from tests.placer.kube.objects import MEMORY, SHARE, WHOLE, Object
from tests.placer.kube.preemption_scene import TAINT, PreemptionScene, budget, pod, preemption_scene

NODES = tuple(f"n{index}" for index in range(4))
STEPS = 120


def draw_limits(rng: random.Random) -> Object:
    """The demand of a pod."""
    kinds: tuple[Object, ...] = (
        {"cpu": str(rng.randint(1, 8))},
        {MEMORY: str(rng.randint(1, 24) * GIB)},
        {SHARE: str(rng.choice((20, 50, 80)))},
        {MEMORY: str(rng.randint(1, 24) * GIB), "cpu": str(rng.randint(1, 8))},
        {WHOLE: "1"},
    )
    return rng.choices(kinds, (4, 3, 2, 1, 1))[0]


def draw_pod(rng: random.Random, number: int) -> Pod:
    """A pod without a node; some never preempt, are nominated already, or are another scheduler's."""
    more: Object = {}
    if rng.random() < 0.1:
        more["preemptionPolicy"] = "Never"
    if rng.random() < 0.1:
        more["status"] = {"nominatedNodeName": rng.choice(NODES)}
    if rng.random() < 0.1:
        more["scheduler"] = "default-scheduler"
    return pod(f"p{number}", None, rng.choice((0, 0, 5, 5, 10, 20)), draw_limits(rng), version=number, **more)


def change(made: PreemptionScene, rng: random.Random, step: int) -> None:
    """Change something in the cluster."""
    scene = made.scene
    ending = [name for name, one in scene.pods.items() if one.metadata.deletionTimestamp]
    match rng.choices(("pod", "end", "delete", "node", "taint", "report", "budget"), (45, 20, 7, 4, 4, 4, 4))[
        0
    ]:
        case "pod":
            scene.show(draw_pod(rng, step + 1))
        case "end" if ending:
            scene.delete(rng.choice(ending))
        case "delete" if scene.pods:
            scene.delete(rng.choice(list(scene.pods)))
        case "node":
            node = rng.choice(NODES)
            scene.remove_node(node) if node in scene.nodes else scene.node(node)
        case "taint":
            scene.node(rng.choice(NODES), taints=[TAINT] if rng.random() < 0.5 else [])
        case "report":
            scene.report(rng.choice(NODES), 24, rng.choice((24, 12)))
        case _:
            made.budgets(budget(f"b{step}", "x", 0))


async def calm_down(made: PreemptionScene) -> None:
    """Mend all nodes, and let victims end until no further pod ends."""
    for node in NODES:
        made.scene.node(node)
        made.scene.report(node, 24, 24)
    for _ in range(STEPS):
        made.scene.pass_backoff()
        await made.settle()
        ending = [name for name, one in made.scene.pods.items() if one.metadata.deletionTimestamp]
        if not ending:
            return
        for name in ending:
            made.scene.delete(name)
    raise AssertionError("pods end for ever")


@pytest.mark.parametrize("seed", [8, 32, 40, 42, 58, 87, 90, 91, 138, 139])
async def test_no_pod_ends_in_vain_and_none_waits_that_could_preempt(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each victim has a lower priority than its preemptor. In the end no room is held, and nobody is missed."""
    if seed % 2:
        monkeypatch.setattr(victim_search, "SLICE_S", 0.0)  # changes come between any two steps
    rng = random.Random(seed)  # noqa: S311 - a test's draws
    async with preemption_scene() as made:
        ended: list[tuple[int, int]] = []

        def note(_: Results, victim: Pod, preemptor: Pod, __: NodeName) -> None:
            ended.append((victim.spec.priority or 0, preemptor.spec.priority or 0))

        monkeypatch.setattr(Results, "preempted", note)
        for node in NODES:
            made.scene.node(node)
            made.scene.report(node, 24, 24)
        for step in range(STEPS):
            change(made, rng, step)
            await asyncio.sleep(0)
            if rng.random() < 0.3:
                made.scene.pass_backoff()
                await made.settle()
        await calm_down(made)
        assert all(victim < preemptor for victim, preemptor in ended)
        assert not made.scene.missed()
        cluster, search = made.scene.cache, made.preemption.search
        held = [one for node in NODES for one in cluster.nominator.on(NodeName(node))]
        assert not [one.uid for one in held if one.is_ours]
        assert all(cluster.infos[NodeName(node)].requested.amounts["cpu"] <= 8000 for node in NODES)
        for name, one in made.scene.pods.items():
            waiting = made.parts.core.queue.get(PodUid(name))
            if waiting is None or waiting.info is None or one.spec.preemptionPolicy == "Never":
                continue
            found = [await search.on_node(waiting.info, NodeName(node)) for node in NODES]
            assert not any(isinstance(result, Victims) for result in found), name
