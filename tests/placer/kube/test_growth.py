"""The front end keeps nothing of pods that were, whether it leads or follows.

Pods come, are refused or placed, and go. All collections that its parts hold are counted before and after.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Iterator
from typing import Final

import msgspec
import pytest

from placer.scheduler.queue.heap import SPARE
from plimsoll.kube.models import PodCondition
from tests.placer.kube.objects import MEMORY
from tests.placer.kube.scene import Scene, scene

PODS: Final = 300

BOUNDED: Final = ("_seen", "_waiting", "_ready", "_owners")
"""The last pods of the mix and the last owners have bounds of their own, and no writer writes news here."""

_COLLECTIONS: Final = (dict, list, set, frozenset, tuple, deque)


def collections_of(root: object) -> Counter[str]:
    """The items of all collections that an object's parts hold, by the last attribute on the way there."""
    found: Counter[str] = Counter()
    seen: set[int] = set()
    todo: list[tuple[str, object]] = [("", root)]
    while todo:
        name, one = todo.pop()
        if id(one) in seen or name in BOUNDED:
            continue
        seen.add(id(one))
        if isinstance(one, _COLLECTIONS):
            found[name] += len(one)
            todo += [(name, item) for item in ((*one, *one.values()) if isinstance(one, dict) else one)]
        else:
            todo += _parts(one)
    return found


def _parts(one: object) -> Iterator[tuple[str, object]]:
    for cell in getattr(one, "__closure__", None) or ():
        yield "closure", cell.cell_contents
    if hasattr(one, "__self__"):
        yield "self", one.__self__
    if type(one).__module__.startswith(("placer", "plimsoll")):
        slots = [slot for kind in type(one).__mro__ for slot in getattr(kind, "__slots__", ())]
        for name in (*slots, *getattr(one, "__dict__", ())):
            if hasattr(one, name):
                yield name, getattr(one, name)


async def through(made: Scene, first: int, size: str, *, leads: bool) -> None:
    """Let pods come and go."""
    for number in range(first, first + PODS):
        pod = made.pod(f"p{number}", {MEMORY: size})
        made.show(pod)
        if leads:
            await made.settle()
        else:
            refused = PodCondition("PodScheduled", "False", reason="Unschedulable", message="no room")
            status = msgspec.structs.replace(pod.status, conditions=[refused])
            pod = msgspec.structs.replace(pod, status=status)
            made.show(pod)
            if number % 2:
                made.show(msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, nodeName="n1")))
        made.delete(f"p{number}")
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("leads", "size"), [(False, "1Gi"), (True, "1Gi"), (True, "100Gi")], ids=["follows", "places", "refuses"]
)
async def test_nothing_grows_with_the_number_of_pods_that_were(size: str, *, leads: bool) -> None:
    """After twice as many pods, no collection has more items than spare ones of a heap."""
    async with scene() as made:
        made.node("n1")
        made.report("n1", 24)
        if leads:
            made.parts.context.leads.set()
        await through(made, 0, size, leads=leads)
        before = collections_of(made.parts)
        await through(made, PODS, size, leads=leads)
        grown = collections_of(made.parts) - before
        assert {name: more for name, more in grown.items() if more > SPARE} == {}
        assert len(made.queue) == 0
