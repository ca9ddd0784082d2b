"""A pod with wishes about other pods is placed exactly if a node fits it, where decisions read next to nothing."""

import random
from collections.abc import Mapping
from types import ModuleType
from typing import Final

import pytest

from placer import decide
from placer.scheduler import profile, schedule_pod
from placer.scheduler.plugins.pod_counts import store
from plimsoll.ids import NodeName, PodUid
from tests.placer.kube.memory_cluster import MemoryCluster, pod
from tests.placer.kube.objects import Object
from tests.placer.scheduler.plugins.topology.rules import apart, evenly, far, near

SEEDS: Final = 60
STEPS: Final = 40
NODES: Final = 7

BOUNDS: Final[Mapping[tuple[ModuleType, str], tuple[int, ...]]] = {
    (schedule_pod, "FEW_NODES"): (1, 2, 3, 128),
    (schedule_pod, "SLICE"): (2,),
    (schedule_pod, "READ_AT_ONCE"): (1, 2, 5, 1024),
    (profile, "CHECKS"): (1, 4, 128),
    (schedule_pod, "PROMISING"): (1, 2, 16),
    (decide, "MOST_UNFIT"): (1, 2, 128),
    (decide, "MOST_PLANS"): (1, 2, 64),
    (store, "MOST_CONSTRAINTS"): (1, 2, 1024),
    (store, "MOST_NODES"): (3, 10, 1_000_000),
}
"""The bounds of decisions and counts, as small as a cluster of a few nodes can reach."""


def wishes(draw: random.Random) -> Object:
    """A spec with up to three wishes, and sometimes with a rule beside them."""
    spec: Object = {}
    affinity: Object = {}

    def target() -> tuple[str, str]:
        return draw.choice("xy"), draw.choice(("zone", "host"))

    if draw.random() < 0.6:
        spec |= evenly(*target())
    if draw.random() < 0.4:
        affinity |= far(*target(), draw.randint(1, 100))["affinity"]
    if draw.random() < 0.4:
        affinity |= near(*target(), draw.randint(1, 100))["affinity"]
    if draw.random() < 0.2:
        affinity["podAntiAffinity"] = (
            affinity.get("podAntiAffinity", {}) | apart()["affinity"]["podAntiAffinity"]
        )
    return spec | ({"affinity": affinity} if affinity else {})


def change(made: MemoryCluster, draw: random.Random, living: list[str]) -> bool:
    """Make a change of the cluster by chance; returns whether one was made."""
    name, chance = f"n{draw.randrange(NODES)}", draw.random()
    if chance < 0.15:
        labels = {"zone": draw.choice("ab"), "host": f"n{draw.randrange(NODES)}"}
        made.node(name, draw.choice("014"), labels if draw.random() < 0.8 else {})
    elif chance < 0.2:
        made.cluster.remove_node(NodeName(name))
    elif chance < 0.3:
        made.report(name, *draw.choices((0, 8), k=draw.randint(0, 2)))
    elif chance < 0.45 and living:
        made.cluster.forget(PodUid(living.pop(draw.randrange(len(living)))))
    else:
        return False
    return True


async def test_a_wish_makes_no_pod_wait_while_a_node_has_a_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is read and forgotten, a pod with wishes gets a node if one fits, and none if none does."""
    for seed in range(SEEDS):
        draw = random.Random(seed)  # noqa: S311 - a drawn test
        made = MemoryCluster()
        living: list[str] = []
        for (module, name), values in BOUNDS.items():
            monkeypatch.setattr(module, name, draw.choice(values))
        for number in range(5):
            made.node(f"n{number}", draw.choice("014"), {"zone": draw.choice("ab"), "host": f"n{number}"})
            made.report(f"n{number}", *draw.choices((0, 8), k=draw.randint(0, 2)))
        for step in range(STEPS):
            if change(made, draw, living):
                continue
            labels = {"app": draw.choice("xy")}
            wanted = pod(
                f"p{step}", draw.choice((None, "4Gi")), draw.choice("12"), labels=labels, **wishes(draw)
            )
            made.profile.topology.counts.prepare(wanted.constraints, 1000)
            fitting = made.fitting(wanted)
            place = await made.place(wanted)
            assert (place in fitting) if fitting else place is None, (seed, step)
            living += [f"p{step}"] if place else []
